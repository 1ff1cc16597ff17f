package chaos

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"time"

	coordination "k8s.io/api/coordination/v1"

	"github.com/outlane/outlane/internal/controlplane"
)

// LeasesKubernetes is the Options.Leases that keeps leases in a Kubernetes cluster of the run's own.
const LeasesKubernetes = "kubernetes"

// namespace is where the Leases are.
const namespace = "default"

// kubernetesKinds are what can happen besides, with leases there.
var kubernetesKinds = []kind{
	{"API server killed", 4, 0, 6 * time.Second, nobody, only("apiserver"), (*run).killAPIServer},
	{"API server frozen", 4, 500 * time.Millisecond, 10 * time.Second, nobody, only("apiserver"), (*run).freezeAPIServer},
	{"etcd frozen", 3, 500 * time.Millisecond, 10 * time.Second, nobody, only("apiserver"), (*run).freezeEtcd},
	{"Leases edited", 5, 0, 0, one("to a member", "to somebody unknown", "to nothing"), nil, (*run).editKubernetesLeases},
	{"Leases deleted", 3, 0, 0, one("of partitions", "of a member", "of all"), nil, (*run).deleteKubernetesLeases},
}

// drawKubernetes adds what happens to the API server and the Leases. What the seed decides about all else stays the same.
func (p *Plan) drawKubernetes(every time.Duration) {
	r := rand.New(rand.NewPCG(p.Seed, 3))
	p.Faults = append(p.Faults, p.draw(r, kubernetesKinds, 3*every)...)
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
}

func (r *run) startKubernetes(ctx context.Context) error {
	program, err := controlplane.Build(ctx, os.Stderr)
	if err != nil {
		return err
	}
	r.log.say("starting Kubernetes")
	r.cluster, err = controlplane.Start(ctx, controlplane.Options{Program: program})
	return err
}

// leaseSettings are the lines of the configuration about leases.
func (r *run) leaseSettings() string {
	if r.cluster == nil {
		return fmt.Sprintf("lease: {backend: postgres, duration: %s}\n", r.plan.Pool.Lease)
	}
	return fmt.Sprintf("lease: {backend: kubernetes, duration: %s, namespace: %s, instance: chaos, kubeconfig: %q}\n", r.plan.Pool.Lease, namespace,
		r.cluster.Kubeconfig(controlplane.Admin))
}

func (r *run) killAPIServer(d *doing) error {
	r.cluster.Kill(controlplane.APIServer)
	d.last()
	r.heal(d.ctx, "start the API server again", func(ctx context.Context) error {
		r.cluster.Kill(controlplane.APIServer) // one that did not get ready in time
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healing/2)
		defer cancel()
		return r.cluster.Start(ctx, controlplane.APIServer)
	})
	return nil
}

func (r *run) freezeAPIServer(d *doing) error { return r.freezePart(d, controlplane.APIServer) }

func (r *run) freezeEtcd(d *doing) error { return r.freezePart(d, controlplane.Etcd) }

func (r *run) freezePart(d *doing, part controlplane.Part) error {
	r.cluster.Freeze(part)
	d.last()
	r.cluster.Thaw(part)
	return nil
}

const leases = "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases"

// kubernetesLeases reads all Leases. None are read while the API server is away, which is no fault.
func (r *run) kubernetesLeases(ctx context.Context) []coordination.Lease {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	answer, _, err := r.cluster.Call(ctx, http.MethodGet, leases, nil)
	var list coordination.LeaseList
	if err != nil || json.Unmarshal(answer, &list) != nil {
		return nil
	}
	return list.Items
}

// chosen says whether one of about three Leases is meant, the same for the same draw.
func chosen(name string, n int64) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name)) // a hash takes everything
	return (int64(h.Sum32())+n)%3 == 0
}

func role(l coordination.Lease) string { return l.Labels["outlane.dev/role"] }

func (r *run) editKubernetesLeases(d *doing) error {
	all := r.kubernetesLeases(d.ctx)
	holder := fmt.Sprintf("somebody-%d", d.N)
	for _, l := range all {
		if d.Target == "to a member" && role(l) == "member" && l.Spec.HolderIdentity != nil {
			holder = *l.Spec.HolderIdentity
		}
	}
	n := 0
	for _, l := range all {
		if role(l) != "partition" || !chosen(l.Name, d.N) {
			continue
		}
		l.Spec.HolderIdentity = &holder
		if d.Target == "to nothing" {
			l.Labels, l.Spec = nil, coordination.LeaseSpec{}
		}
		if r.changeLease(d.ctx, http.MethodPut, l) {
			n++
		}
	}
	d.say("%d Leases", n)
	return nil
}

func (r *run) deleteKubernetesLeases(d *doing) error {
	n := 0
	for _, l := range r.kubernetesLeases(d.ctx) {
		wanted := d.Target == "of all" || d.Target == "of partitions" && role(l) == "partition" && chosen(l.Name, d.N) || d.Target == "of a member" && role(l) == "member" && n == 0
		if wanted && r.changeLease(d.ctx, http.MethodDelete, l) {
			n++
		}
	}
	d.say("%d Leases", n)
	return nil
}

// changeLease writes or deletes a Lease, and says whether that took effect: workers change them as well, and the API server may be away.
func (r *run) changeLease(ctx context.Context, method string, l coordination.Lease) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var body []byte
	if method == http.MethodPut {
		var err error
		if body, err = json.Marshal(l); err != nil {
			return false
		}
	}
	_, _, err := r.cluster.Call(ctx, method, leases+"/"+l.Name, body)
	return err == nil
}

func (r *run) closeKubernetes() error {
	if r.cluster == nil {
		return nil
	}
	if err := r.cluster.Close(); err != nil {
		return errors.Join(errors.New("end Kubernetes"), err)
	}
	return nil
}
