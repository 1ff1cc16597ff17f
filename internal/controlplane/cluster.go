package controlplane

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/outlane/outlane/internal/child"
	"github.com/outlane/outlane/internal/port"
)

// Options say what to start.
type Options struct {
	// Program is the binary, from Build.
	Program string

	// Controllers asks for the controller manager, without which nothing is collected as garbage and no Deployment makes pods.
	Controllers bool

	// Node is a node that will join. The API server then listens on every address, pods are scheduled, and Controllers is taken as given.
	Node *Node
}

// Node is a node that its owner runs.
type Node struct {
	Name    string
	Address string // by which the node and its pods reach the API server
}

// User is who the node's kubelet is.
func (n Node) User() string { return "system:node:" + n.Name }

// Part is a program of the control plane.
type Part string

// The parts.
const (
	Etcd        Part = "etcd"
	APIServer   Part = "kube-apiserver"
	Controllers Part = "kube-controller-manager"
	Scheduler   Part = "kube-scheduler"
)

var parts = []Part{Etcd, APIServer, Controllers, Scheduler}

// Users of a Cluster. The administrator may do everything, the guest nothing but what is granted to the user of that name; the proxy is a
// node's kube-proxy.
const (
	Admin = "admin"
	Guest = "guest"
	Proxy = "system:kube-proxy"

	controllerUser = "system:kube-controller-manager"
	schedulerUser  = "system:kube-scheduler"
)

// Cluster is a control plane that this process started. Its methods may be called from any goroutine.
type Cluster struct {
	program, dir string
	node         *Node
	keys         *authority
	guard        *child.Guard
	port         int // of the API server
	etcdPort     int
	peerPort     int // of etcd, which nobody uses
	tokens       map[string]string
	client       *http.Client

	mu      sync.Mutex
	running map[Part]*child.Process
}

// Start makes a new control plane and returns when it is ready. The context bounds the start only; the caller ends the cluster by Close.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	dir, err := os.MkdirTemp("", "outlane-k8s-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the control plane: %w", err)
	}
	guard, err := child.StartGuard(guardScript, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c := &Cluster{program: opts.Program, dir: dir, node: opts.Node, guard: guard, tokens: map[string]string{}, running: map[Part]*child.Process{}}
	err = c.prepare()
	for _, part := range parts {
		wanted := part == Etcd || part == APIServer || opts.Node != nil || part == Controllers && opts.Controllers
		if err == nil && wanted {
			err = c.Start(ctx, part)
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) prepare() error {
	keys, err := newAuthority()
	if err != nil {
		return err
	}
	c.keys = keys
	if err := c.writeKeys(); err != nil {
		return err
	}
	groups := map[string]string{Admin: ",system:masters"}
	users := []string{Admin, Guest, controllerUser, schedulerUser, Proxy}
	if c.node != nil {
		users = append(users, c.node.User())
		groups[c.node.User()] = ",system:nodes"
	}
	var table strings.Builder
	for _, user := range users {
		c.tokens[user] = rand.Text()
		fmt.Fprintf(&table, "%s,%s,%s%s\n", c.tokens[user], user, user, groups[user])
	}
	if err := os.WriteFile(filepath.Join(c.dir, tokenFile), []byte(table.String()), 0o600); err != nil {
		return fmt.Errorf("write the tokens: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.Authority())
	c.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	for _, p := range []*int{&c.port, &c.etcdPort, &c.peerPort} {
		var err error
		if *p, err = port.Reserve(); err != nil {
			return err
		}
	}
	for _, user := range users {
		if err := os.WriteFile(c.Kubeconfig(user), []byte(c.kubeconfig(user)), 0o600); err != nil {
			return fmt.Errorf("write a kubeconfig: %w", err)
		}
	}
	return nil
}

// URL is the API server's.
func (c *Cluster) URL() string {
	return "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port))
}

// Kubeconfig is the path of a user's kubeconfig.
func (c *Cluster) Kubeconfig(user string) string {
	return filepath.Join(c.dir, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
}

func (c *Cluster) kubeconfig(user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: outlane, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: %q, user: {token: %q}}]
contexts: [{name: outlane, context: {cluster: outlane, user: %q}}]
current-context: outlane
`, c.URL(), filepath.Join(c.dir, caFile), user, c.tokens[user], user)
}

func loopback(port int) string { return "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (c *Cluster) args(part Part) []string {
	file := func(name string) string { return filepath.Join(c.dir, name) }
	etcd, peer := loopback(c.etcdPort), loopback(c.peerPort)
	switch part {
	case Etcd:
		return []string{
			"--data-dir=" + file("etcd"), "--unsafe-no-fsync", "--log-level=warn", "--listen-client-urls=" + etcd, "--advertise-client-urls=" + etcd,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=default=" + peer,
		}
	case APIServer:
		args := []string{
			"--etcd-servers=" + etcd, "--secure-port=" + strconv.Itoa(c.port), "--service-cluster-ip-range=10.96.0.0/16",
			"--authorization-mode=Node,RBAC", "--token-auth-file=" + file(tokenFile), "--client-ca-file=" + file(caFile),
			"--tls-cert-file=" + file(serverCertFile), "--tls-private-key-file=" + file(serverKeyFile), "--cert-dir=" + file("run"),
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + file(accountKeyFile),
			"--service-account-signing-key-file=" + file(accountKeyFile),
			"--requestheader-client-ca-file=" + file(caFile), "--requestheader-allowed-names=" + frontProxy, // for API servers behind this one
			"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file=" + file(proxyCertFile), "--proxy-client-key-file=" + file(proxyKeyFile),
		}
		if c.node == nil {
			return append(args, "--bind-address=127.0.0.1", "--endpoint-reconciler-type=none")
		}
		return append(args, "--bind-address=0.0.0.0", "--advertise-address="+c.node.Address, "--allow-privileged", "--kubelet-preferred-address-types=InternalIP",
			"--kubelet-client-certificate="+file(kubeletCertFile), "--kubelet-client-key="+file(kubeletKeyFile))
	case Scheduler:
		return []string{"--kubeconfig=" + c.Kubeconfig(schedulerUser), "--secure-port=0", "--leader-elect=false"}
	}
	return []string{
		"--kubeconfig=" + c.Kubeconfig(controllerUser), "--secure-port=0", "--leader-elect=false", "--use-service-account-credentials",
		"--service-account-private-key-file=" + file(accountKeyFile), "--root-ca-file=" + file(caFile),
		"--horizontal-pod-autoscaler-sync-period=2s", // 15 by default, which people who wait for tests need not
	}
}

// Start starts a part that does not run, and returns when it is ready.
func (c *Cluster) Start(ctx context.Context, part Part) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := child.Launch(c.Log(part), nil, c.program, append([]string{string(part)}, c.args(part)...)...)
	if err != nil {
		return err
	}
	c.running[part] = p
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !c.ready(ctx, part) {
		select {
		case <-tick.C:
		case <-p.Done():
			return fmt.Errorf("start %s: it ended: %s", part, p.Tail())
		case <-ctx.Done():
			return fmt.Errorf("start %s: %w: %s", part, ctx.Err(), p.Tail())
		}
	}
	return nil
}

// ready says whether a part does its work.
func (c *Cluster) ready(ctx context.Context, part Part) bool {
	url := c.URL() + "/readyz"
	switch part {
	case Etcd:
		url = loopback(c.etcdPort) + "/health"
	case Controllers: // that it runs shows in what it makes
		url = c.URL() + "/api/v1/namespaces/default/serviceaccounts/default"
	case Scheduler: // shows nothing, and pods wait for it
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	if part != Etcd {
		request.Header.Set("Authorization", "Bearer "+c.tokens[Admin])
	}
	response, err := c.client.Do(request)
	if err != nil {
		return false
	}
	_, _ = io.Copy(io.Discard, response.Body) // what it says does not matter
	return response.Body.Close() == nil && response.StatusCode == http.StatusOK
}

// Call sends a request to the API server as the administrator, with a body in JSON if there is one, and returns the answer. A status that is
// not good is an error.
func (c *Cluster) Call(ctx context.Context, method, path string, body []byte) (answer []byte, status int, err error) {
	request, err := http.NewRequestWithContext(ctx, method, c.URL()+path, bytes.NewReader(body))
	if err != nil {
		return nil, 0, fmt.Errorf("call the API server: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+c.tokens[Admin])
	request.Header.Set("Content-Type", "application/json")
	response, err := c.client.Do(request)
	if err != nil {
		return nil, 0, fmt.Errorf("call the API server: %w", err)
	}
	answer, err = io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, response.StatusCode, fmt.Errorf("read the API server's answer: %w", err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		return answer, response.StatusCode, fmt.Errorf("%s %s: %s: %s", method, path, response.Status, answer)
	}
	return answer, response.StatusCode, nil
}

// Kill ends a part at once, and waits for that.
func (c *Cluster) Kill(part Part) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.running[part]; p != nil {
		p.Kill()
		delete(c.running, part)
	}
}

// Freeze stops a part as it stands, with its connections open, until Thaw.
func (c *Cluster) Freeze(part Part) { c.signal(part, syscall.SIGSTOP) }

// Thaw lets a frozen part go on.
func (c *Cluster) Thaw(part Part) { c.signal(part, syscall.SIGCONT) }

func (c *Cluster) signal(part Part, s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.running[part]; p != nil {
		p.Signal(s)
	}
}

// Memory is how much memory a part has resident, in bytes; 0 if it does not run.
func (c *Cluster) Memory(part Part) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.running[part]; p != nil {
		return p.Memory()
	}
	return 0
}

// Log is the path of a part's log.
func (c *Cluster) Log(part Part) string { return filepath.Join(c.dir, string(part)+".log") }

// Close ends everything at once and removes the folder.
func (c *Cluster) Close() error {
	for _, part := range slices.Backward(parts) {
		c.Kill(part)
	}
	c.guard.End()
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("remove the control plane's folder: %w", err)
	}
	return nil
}
