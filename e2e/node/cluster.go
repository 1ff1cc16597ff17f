package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/outlane/outlane/internal/child"
	"github.com/outlane/outlane/internal/controlplane"
)

const proxyUser = controlplane.Proxy

// Options say what to start.
type Options struct {
	Program string   // Kubernetes, from controlplane.Build
	Images  []string // files with images that the node is to have; the one of BuildPause is needed
}

// Cluster is a cluster that this process runs. It ends with Close, or when this process does.
type Cluster struct {
	name    string
	program string
	plane   *controlplane.Cluster
	running map[string]*child.Process
	order   []string
}

// Start runs a cluster, and returns when its node is ready for pods, and pods would reach the API server. It must be called inside the namespace.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	name := os.Getenv(insideEnv)
	if name == "" {
		return nil, errors.New("start a cluster: this process is not inside the namespace: call Enter first")
	}
	plane, err := controlplane.Start(ctx, controlplane.Options{Program: opts.Program, Node: &controlplane.Node{Name: nodeName, Address: Address}})
	if err != nil {
		return nil, err
	}
	c := &Cluster{name: name, program: opts.Program, plane: plane, running: map[string]*child.Process{}}
	if err := c.start(ctx, opts.Images); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, images []string) error {
	if err := c.prepare(); err != nil {
		return err
	}
	if err := c.launch(ctx, "containerd", c.hasContainerd, "containerd", "--config", c.file("containerd.toml")); err != nil {
		return err
	}
	for _, image := range images {
		if err := c.importImage(ctx, image); err != nil {
			return err
		}
	}
	if err := c.launch(ctx, "kubelet", c.hasNode, c.program, "kubelet", "--config="+c.file("kubelet.yaml"),
		"--kubeconfig="+c.plane.Kubeconfig(controlplane.Node{Name: nodeName}.User()), "--hostname-override="+nodeName, "--node-ip="+Address,
		"--root-dir="+c.file("kubelet"), "--cert-dir="+c.file("kubelet/pki"), "--v=2"); err != nil {
		return err
	}
	return c.launch(ctx, "kube-proxy", c.hasService, c.program, "kube-proxy", "--config="+c.file("proxy.yaml"))
}

func (c *Cluster) file(name string) string { return filepath.Join(folder(c.name), name) }
func (c *Cluster) socket() string          { return c.file("containerd/containerd.sock") }

func (c *Cluster) prepare() error {
	for _, dir := range []string{"containerd", "cni", "kubelet"} {
		if err := os.MkdirAll(c.file(dir), 0o755); err != nil {
			return fmt.Errorf("make the node's folder: %w", err)
		}
	}
	if err := makeCgroups(c.name); err != nil {
		return err
	}
	files := map[string]string{
		c.file("containerd.toml"): c.containerdConfig(), c.file("cni/10-pods.conflist"): c.networkConfig(), c.file("kubelet.yaml"): c.kubeletConfig(),
		c.file("proxy.yaml"): c.proxyConfig(), "/proc/sys/net/ipv4/ip_forward": "1",
	}
	const bridged = "/proc/sys/net/bridge/bridge-nf-call-iptables" // so that pods reach each other through Services, too
	if _, err := os.Stat(bridged); err == nil {
		files[bridged] = "1"
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if err := os.WriteFile(file, []byte(files[file]), 0o644); err != nil {
			return fmt.Errorf("set up the node: %w", err)
		}
	}
	return nil
}

// launch starts a program and waits until it is ready.
func (c *Cluster) launch(ctx context.Context, name string, ready func(context.Context) bool, program string, args ...string) error {
	p, err := child.Launch(c.file(name+".log"), nil, program, args...)
	if err != nil {
		return err
	}
	c.running[name] = p
	c.order = append(c.order, name)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ready(ctx) {
		select {
		case <-tick.C:
		case <-p.Done():
			return fmt.Errorf("start %s: it ended: %s", name, p.Tail())
		case <-ctx.Done():
			return fmt.Errorf("start %s: %w: %s", name, ctx.Err(), p.Tail())
		}
	}
	return nil
}

func (c *Cluster) ctr(ctx context.Context, args ...string) error {
	args = append([]string{"--address", c.socket(), "--namespace", "k8s.io"}, args...)
	if out, err := exec.CommandContext(ctx, "ctr", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ask containerd: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (c *Cluster) importImage(ctx context.Context, file string) error {
	return c.ctr(ctx, "images", "import", file)
}

func (c *Cluster) hasContainerd(ctx context.Context) bool { return c.ctr(ctx, "version") == nil }

func (c *Cluster) hasNode(ctx context.Context) bool {
	answer, _, err := c.plane.Call(ctx, http.MethodGet, "/api/v1/nodes/"+nodeName, nil)
	if err != nil {
		return false
	}
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if json.Unmarshal(answer, &node) != nil {
		return false
	}
	return slices.ContainsFunc(node.Status.Conditions, func(of struct{ Type, Status string }) bool { return of.Type == "Ready" && of.Status == "True" })
}

// hasService says whether the API server can be reached as pods do it.
func (c *Cluster) hasService(ctx context.Context) bool {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", controlplane.ServiceAddress+":443")
	return err == nil && conn.Close() == nil
}

// Plane is the cluster's control plane, of which parts can be killed and started again.
func (c *Cluster) Plane() *controlplane.Cluster { return c.plane }

// Kubeconfig is the path of the administrator's.
func (c *Cluster) Kubeconfig() string { return c.plane.Kubeconfig(controlplane.Admin) }

// Logs are the paths of the logs of all parts.
func (c *Cluster) Logs() (paths []string) {
	for _, part := range []controlplane.Part{controlplane.Etcd, controlplane.APIServer, controlplane.Controllers, controlplane.Scheduler} {
		paths = append(paths, c.plane.Log(part))
	}
	for _, name := range c.order {
		paths = append(paths, c.file(name+".log"))
	}
	return paths
}

// KillContainer sends SIGKILL to every process of a container, whose id is as in the pod's status.
func (c *Cluster) KillContainer(id string) error {
	_, id, _ = strings.Cut(id, "://")
	var pids []int
	for _, parent := range hierarchies() {
		for _, class := range []string{"", "burstable", "besteffort"} {
			found, err := filepath.Glob(filepath.Join(parent, c.name, "kubepods", class, "pod*", id))
			if err != nil {
				return fmt.Errorf("find the container: %w", err)
			}
			for _, dir := range found {
				pids = append(pids, processesUnder(dir)...)
			}
		}
	}
	if len(pids) == 0 {
		return fmt.Errorf("kill container %s: it has no process", id)
	}
	slices.Sort(pids)
	for _, pid := range slices.Compact(pids) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill container %s: %w", id, err)
		}
	}
	return nil
}

// Close ends everything but what Enter takes down.
func (c *Cluster) Close() error {
	for _, name := range slices.Backward(c.order) {
		c.running[name].Kill()
	}
	return c.plane.Close()
}
