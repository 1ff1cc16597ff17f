// Package kubetest gives tests a real Kubernetes API server with its etcd, and the controller manager where garbage is to be collected.
//
// Namespace is for nearly every test: a fresh namespace on one control plane that all tests of a process share. StartCluster is for tests
// that stop it or freeze it. Everything ends with the test, and with the process.
package kubetest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordination "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/outlane/outlane/internal/controlplane"
	"github.com/outlane/outlane/lease"
)

// Ceiling bounds every wait of this package. It is generous: a loaded machine is no failure.
const Ceiling = 2 * time.Minute

// Cluster is a control plane under test.
type Cluster struct {
	*controlplane.Cluster
}

func start(controllers bool) (*Cluster, error) {
	program, err := controlplane.Build(context.Background(), os.Stderr) // which takes long only the first time
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), Ceiling)
	defer cancel()
	c, err := controlplane.Start(ctx, controlplane.Options{Program: program, Controllers: controllers})
	if err != nil {
		return nil, err
	}
	return &Cluster{c}, nil
}

var shared = sync.OnceValues(func() (*Cluster, error) { return start(true) })

// Shared returns the control plane that the tests of this process share. Do not stop it.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	c, err := shared()
	require.NoError(t, err)
	return c
}

// StartCluster starts a control plane of the test's own, without controllers.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c, err := start(false)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// Again starts a part that was killed.
func (c *Cluster) Again(t testing.TB, part controlplane.Part) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Ceiling)
	defer cancel()
	require.NoError(t, c.Start(ctx, part))
}

var counter atomic.Int64

// Namespace makes a namespace. It is left behind: the control plane is thrown away as a whole.
func (c *Cluster) Namespace(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test-%d", counter.Add(1))
	c.Create(t, "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": name}})
	return name
}

// Client is how a user reaches the API server.
func (c *Cluster) Client(t testing.TB, user string) *rest.Config {
	t.Helper()
	client, _, err := lease.LoadKubernetes(c.Kubeconfig(user))
	require.NoError(t, err)
	return client
}

// Create makes an object from whatever is JSON, and returns its UID.
func (c *Cluster) Create(t testing.TB, path string, object any) string {
	t.Helper()
	var made struct{ Metadata struct{ UID string } }
	c.call(t, http.MethodPost, path, object, &made)
	return made.Metadata.UID
}

// Delete removes an object at once.
func (c *Cluster) Delete(t testing.TB, path string) {
	t.Helper()
	c.call(t, http.MethodDelete, path, map[string]any{"gracePeriodSeconds": 0}, nil)
}

func (c *Cluster) call(t testing.TB, method, path string, in, out any) {
	t.Helper()
	var body []byte
	if in != nil {
		var err error
		body, err = json.Marshal(in)
		require.NoError(t, err)
	}
	answer, _, err := c.Call(t.Context(), method, path, body)
	require.NoError(t, err)
	if out != nil {
		require.NoError(t, json.Unmarshal(answer, out))
	}
}

func leases(namespace string) string {
	return "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"
}

// Leases reads all Leases of a namespace.
func (c *Cluster) Leases(t testing.TB, namespace string) []coordination.Lease {
	t.Helper()
	var list coordination.LeaseList
	c.call(t, http.MethodGet, leases(namespace), nil, &list)
	return list.Items
}

// CreateLease makes a Lease.
func (c *Cluster) CreateLease(t testing.TB, namespace string, l coordination.Lease) {
	t.Helper()
	c.call(t, http.MethodPost, leases(namespace), l, nil)
}

// EditLease changes a Lease as a person does, and again if it changed meanwhile. It says whether there is one.
func (c *Cluster) EditLease(t testing.TB, namespace, name string, edit func(*coordination.Lease)) bool {
	t.Helper()
	for {
		answer, status, err := c.Call(t.Context(), http.MethodGet, leases(namespace)+"/"+name, nil)
		if status == http.StatusNotFound {
			return false
		}
		require.NoError(t, err)
		var l coordination.Lease
		require.NoError(t, json.Unmarshal(answer, &l))
		edit(&l)
		body, err := json.Marshal(l)
		require.NoError(t, err)
		if _, status, err = c.Call(t.Context(), http.MethodPut, leases(namespace)+"/"+name, body); status == http.StatusConflict {
			continue
		}
		require.NoError(t, err)
		return true
	}
}

// DeleteLease removes a Lease, if there is one.
func (c *Cluster) DeleteLease(t testing.TB, namespace, name string) {
	t.Helper()
	if _, status, err := c.Call(t.Context(), http.MethodDelete, leases(namespace)+"/"+name, nil); status != http.StatusNotFound {
		require.NoError(t, err)
	}
}

// Pod makes a pod, which never runs: there are no nodes. It returns its UID.
func (c *Cluster) Pod(t testing.TB, namespace, name string) string {
	t.Helper()
	require.Eventually(t, func() bool { // the controller manager makes it, and no pod can be made without
		_, status, err := c.Call(t.Context(), http.MethodGet, "/api/v1/namespaces/"+namespace+"/serviceaccounts/default", nil)
		return err == nil && status == http.StatusOK
	}, Ceiling, 20*time.Millisecond)
	return c.Create(t, "/api/v1/namespaces/"+namespace+"/pods", map[string]any{
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "worker", "image": "none"}}},
	})
}
