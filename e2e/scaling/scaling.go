// Package scaling runs KEDA beside a cluster: its operator and its metrics adapter are processes of this machine, not pods, so that neither
// images nor cluster DNS are needed.
//
// What it promises: after Start the cluster knows KEDA's resources, the operator works, and horizontal pod autoscalers get its metrics. Both
// processes listen on loopback only and end with Close, or with this process.
//
// What it does not promise: KEDA under its own RBAC: it is the administrator here. There are no admission webhooks. Names of Services are
// not resolved, so triggers need addresses.
package scaling

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/outlane/outlane/internal/child"
	"github.com/outlane/outlane/internal/controlplane"
	"github.com/outlane/outlane/internal/port"
)

const (
	namespace  = "keda"
	service    = "keda-metrics-apiserver"
	apiService = "v1beta1.external.metrics.k8s.io"

	services    = "/api/v1/namespaces/" + namespace + "/services"
	apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"

	closeTimeout = 10 * time.Second

	guardScript = `trap '' INT TERM HUP; read -r _; sleep 1; rm -rf "$1"`
)

// KEDA is the two processes.
type KEDA struct {
	plane             *controlplane.Cluster
	dir               string
	guard             *child.Guard
	operator, adapter *child.Process
	registered        bool // as the source of external metrics
}

type ports struct{ metricsService, operatorMetrics, probes, adapter, adapterMetrics int }

// Start installs KEDA and returns when it works. The cluster must have controllers. The context bounds the start only.
func Start(ctx context.Context, plane *controlplane.Cluster, programs controlplane.KEDA) (_ *KEDA, err error) {
	k := &KEDA{plane: plane}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start KEDA: %w", err), k.Close())
		}
	}()
	if k.dir, err = os.MkdirTemp("", "outlane-keda-"); err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	if k.guard, err = child.StartGuard(guardScript, k.dir); err != nil {
		return nil, err
	}
	if err := k.writeKeys(); err != nil {
		return nil, err
	}
	if err := k.define(ctx, programs.Definitions); err != nil {
		return nil, err
	}
	var p ports
	for _, of := range []*int{&p.metricsService, &p.operatorMetrics, &p.probes, &p.adapter, &p.adapterMetrics} {
		if *of, err = port.Reserve(); err != nil {
			return nil, err
		}
	}
	env := []string{"KUBECONFIG=" + plane.Kubeconfig(controlplane.Admin), "POD_NAMESPACE=" + namespace, "KEDA_CLUSTER_OBJECT_NAMESPACE=" + namespace, "WATCH_NAMESPACE="}
	k.operator, err = child.Launch(k.file("operator.log"), env, programs.Operator, "--cert-dir="+k.dir, "--metrics-service-bind-address="+loopback(p.metricsService),
		"--metrics-bind-address="+loopback(p.operatorMetrics), "--health-probe-bind-address="+loopback(p.probes), "--zap-log-level=info")
	if err != nil {
		return nil, err
	}
	if err := await(ctx, k.operator, "the operator is ready", func() error { return get("http://" + loopback(p.probes) + "/readyz") }); err != nil {
		return nil, err
	}
	config := plane.Kubeconfig(controlplane.Admin)
	k.adapter, err = child.Launch(k.file("adapter.log"), env, programs.Adapter, "--cert-dir="+k.dir, "--tls-cert-file="+k.file("tls.crt"),
		"--tls-private-key-file="+k.file("tls.key"), "--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(p.adapter), "--authentication-kubeconfig="+config,
		"--authorization-kubeconfig="+config, "--lister-kubeconfig="+config, "--metrics-service-address=localhost:"+strconv.Itoa(p.metricsService),
		"--port="+strconv.Itoa(p.adapterMetrics))
	if err != nil {
		return nil, err
	}
	return k, k.register(ctx, p.adapter)
}

func (k *KEDA) file(name string) string { return filepath.Join(k.dir, name) }

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// writeKeys makes the one certificate that both processes use towards each other and towards the API server.
func (k *KEDA) writeKeys() error {
	cert, key, err := k.plane.Certificate("keda", "", "localhost", "127.0.0.1", service+"."+namespace+".svc", "keda-operator."+namespace+".svc")
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"ca.crt": k.plane.Authority(), "tls.crt": cert, "tls.key": key} {
		if err := os.WriteFile(k.file(name), text, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// define makes the custom resources known, and returns when the API server serves them.
func (k *KEDA) define(ctx context.Context, folder string) error {
	files, err := fs.Glob(os.DirFS(folder), "*.yaml")
	if err != nil || len(files) == 0 {
		return fmt.Errorf("find the definitions in %s: %d files: %w", folder, len(files), err)
	}
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return fmt.Errorf("read a definition: %w", err)
		}
		object, err := yaml.YAMLToJSON(text)
		if err != nil {
			return fmt.Errorf("read the definition %s: %w", name, err)
		}
		if err := k.create(ctx, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", object); err != nil {
			return err
		}
	}
	for _, kind := range []string{"scaledobjects", "scaledjobs", "triggerauthentications", "clustertriggerauthentications"} {
		err := await(ctx, nil, kind+" are served", func() error {
			_, _, err := k.plane.Call(ctx, http.MethodGet, "/apis/keda.sh/v1alpha1/"+kind, nil)
			return err
		})
		if err != nil {
			return err
		}
	}
	return k.create(ctx, "/api/v1/namespaces", []byte(`{"metadata":{"name":"`+namespace+`"}}`))
}

// create makes an object, unless it is there.
func (k *KEDA) create(ctx context.Context, path string, object []byte) error {
	if _, status, err := k.plane.Call(ctx, http.MethodPost, path, object); err != nil && status != http.StatusConflict {
		return err
	}
	return nil
}

// register tells the API server where external metrics come from. A Service of the type ExternalName has it dial that name itself, without
// endpoints or a proxy.
func (k *KEDA) register(ctx context.Context, port int) error {
	objects := []struct {
		path   string
		object map[string]any
	}{
		{services, map[string]any{
			"metadata": map[string]any{"name": service},
			"spec":     map[string]any{"type": "ExternalName", "externalName": "localhost", "ports": []any{map[string]any{"port": port}}},
		}},
		{apiServices, map[string]any{
			"metadata": map[string]any{"name": apiService},
			"spec": map[string]any{
				"group": "external.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100, "caBundle": k.plane.Authority(),
				"service": map[string]any{"name": service, "namespace": namespace, "port": port},
			},
		}},
	}
	k.registered = true
	for _, o := range objects {
		text, err := json.Marshal(o.object)
		if err != nil {
			return fmt.Errorf("write an object: %w", err)
		}
		if err := k.create(ctx, o.path, text); err != nil {
			return err
		}
	}
	return await(ctx, k.adapter, "external metrics are served", func() error {
		_, _, err := k.plane.Call(ctx, http.MethodGet, "/apis/external.metrics.k8s.io/v1beta1", nil)
		return err
	})
}

// unregister undoes register.
func (k *KEDA) unregister() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	for _, path := range []string{apiServices + "/" + apiService, services + "/" + service} {
		if _, status, failed := k.plane.Call(ctx, http.MethodDelete, path, nil); status != http.StatusNotFound {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// Logs are the paths of the processes' logs.
func (k *KEDA) Logs() []string { return []string{k.file("operator.log"), k.file("adapter.log")} }

// Close ends the processes and has the API server forget about external metrics: while one of the APIs that it knows does not answer, no namespace
// can be removed. The definitions stay.
func (k *KEDA) Close() error {
	var err error
	if k.registered {
		err = k.unregister()
	}
	for _, p := range []*child.Process{k.adapter, k.operator} {
		if p != nil {
			p.Kill()
		}
	}
	if k.guard != nil {
		err = errors.Join(err, k.guard.Close())
	}
	return err
}

func get(url string) error {
	client := http.Client{Timeout: 2 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// await returns when do returns no error, or when a process has ended without which it never will.
func await(ctx context.Context, p *child.Process, what string, do func() error) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	var ended <-chan struct{}
	tail := func() string { return "" }
	if p != nil {
		ended, tail = p.Done(), p.Tail
	}
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ended:
			return fmt.Errorf("wait until %s: it ended: %s", what, tail())
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w: %w: %s", what, ctx.Err(), err, tail())
		}
	}
}
