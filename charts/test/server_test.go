package charttest

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/outlane/outlane/internal/controlplane"
)

// ceiling bounds every wait. It is generous: a loaded machine is no failure.
const ceiling = 2 * time.Minute

// Modules that bring the custom resource definitions which the chart has objects of.
var definitions = map[string][]string{
	"github.com/kedacore/keda/v2@v2.21.0": {"config/crd/bases/keda.sh_scaledobjects.yaml", "config/crd/bases/keda.sh_triggerauthentications.yaml"},
	"github.com/prometheus-operator/prometheus-operator@v0.85.0": {
		"example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
		"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
		"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
	},
}

// resources are the paths of kinds, after the namespace.
var resources = map[string][2]string{
	"ConfigMap": {"/api/v1", "configmaps"}, "Secret": {"/api/v1", "secrets"}, "Service": {"/api/v1", "services"}, "Pod": {"/api/v1", "pods"},
	"ServiceAccount": {"/api/v1", "serviceaccounts"}, "Deployment": {"/apis/apps/v1", "deployments"}, "Job": {"/apis/batch/v1", "jobs"},
	"PodDisruptionBudget": {"/apis/policy/v1", "poddisruptionbudgets"}, "NetworkPolicy": {"/apis/networking.k8s.io/v1", "networkpolicies"},
	"Role": {"/apis/rbac.authorization.k8s.io/v1", "roles"}, "RoleBinding": {"/apis/rbac.authorization.k8s.io/v1", "rolebindings"},
	"ScaledObject": {"/apis/keda.sh/v1alpha1", "scaledobjects"}, "TriggerAuthentication": {"/apis/keda.sh/v1alpha1", "triggerauthentications"},
	"PodMonitor": {"/apis/monitoring.coreos.com/v1", "podmonitors"}, "ServiceMonitor": {"/apis/monitoring.coreos.com/v1", "servicemonitors"},
	"PrometheusRule": {"/apis/monitoring.coreos.com/v1", "prometheusrules"},
}

// api is an API server.
type api struct {
	t      *testing.T
	url    string
	token  string
	client *http.Client
}

// startAPI runs a real API server that knows the custom resources, and a namespace "ns" under the Pod Security level restricted. It does not run
// beside other tests: the control plane's program is built from within the main module.
func startAPI(t *testing.T) *api {
	t.Helper()
	here, err := os.Getwd()
	require.NoError(t, err)
	require.NoError(t, os.Chdir("../.."))
	program, err := controlplane.Build(context.Background(), os.Stderr)
	require.NoError(t, os.Chdir(here))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), ceiling)
	defer cancel()
	cluster, err := controlplane.Start(ctx, controlplane.Options{Program: program})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Close()) })

	text, err := os.ReadFile(cluster.Kubeconfig(controlplane.Admin))
	require.NoError(t, err)
	var file struct {
		Clusters []struct {
			Cluster struct {
				CA string `json:"certificate-authority"`
			}
		}
		Users []struct{ User struct{ Token string } }
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	ca, err := os.ReadFile(file.Clusters[0].Cluster.CA)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(ca))
	a := &api{t, cluster.URL(), file.Users[0].User.Token, &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}}

	code, answer, _ := a.call(http.MethodPost, "/api/v1/namespaces", "application/yaml", []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: ns, labels: {
		pod-security.kubernetes.io/enforce: restricted, pod-security.kubernetes.io/warn: restricted}}}`))
	require.Equal(t, http.StatusCreated, code, answer)
	// The controller manager would make it, and no controller runs here.
	code, answer, _ = a.call(http.MethodPost, "/api/v1/namespaces/ns/serviceaccounts", "application/yaml", []byte(`{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}`))
	require.Equal(t, http.StatusCreated, code, answer)
	// An example uses it.
	code, answer, _ = a.call(http.MethodPost, "/apis/scheduling.k8s.io/v1/priorityclasses", "application/yaml", []byte(`{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: important}, value: 1}`))
	require.Equal(t, http.StatusCreated, code, answer)
	for module, names := range definitions {
		dir := moduleDir(t, module)
		for _, name := range names {
			text, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			code, answer, _ := a.call(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/yaml", text)
			require.Equal(t, http.StatusCreated, code, answer)
		}
	}
	for kind, path := range resources {
		require.Eventually(t, func() bool {
			code, _, _ := a.call(http.MethodGet, path[0]+"/namespaces/ns/"+path[1], "", nil)
			return code == http.StatusOK
		}, ceiling, 50*time.Millisecond, kind)
	}
	return a
}

// moduleDir is where a module's files are.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	require.NoError(t, err)
	var found struct{ Dir string }
	require.NoError(t, json.Unmarshal(out, &found))
	return found.Dir
}

func (a *api) call(method, path, contentType string, body []byte) (code int, answer string, warnings []string) {
	a.t.Helper()
	request, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, bytes.NewReader(body))
	require.NoError(a.t, err)
	request.Header.Set("Authorization", "Bearer "+a.token)
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	response, err := a.client.Do(request)
	require.NoError(a.t, err)
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	require.NoError(a.t, err)
	return response.StatusCode, string(text), response.Header.Values("Warning")
}

// apply is a server-side apply of which nothing stays, but for ServiceAccounts, without which the server takes no pod.
func (a *api) apply(o Object, text string) (code int, answer string, warnings []string) {
	a.t.Helper()
	path, ok := resources[o.Kind]
	require.True(a.t, ok, "no path for %s", o.Kind)
	query := "?fieldManager=test&force=true&fieldValidation=Strict"
	if o.Kind != "ServiceAccount" {
		query += "&dryRun=All"
	}
	return a.call(http.MethodPatch, path[0]+"/namespaces/ns/"+path[1]+"/"+o.Name+query, "application/apply-patch+yaml", []byte(text))
}

func TestAPIServerTakesEveryExample(t *testing.T) {
	a := startAPI(t)
	kinds := map[string]bool{}
	for _, file := range examples(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			for _, o := range render(t, "example", read(t, file)).objects {
				code, answer, warnings := a.apply(o, o.Text)
				require.Contains(t, []int{http.StatusOK, http.StatusCreated}, code, "%s %s: %s", o.Kind, o.Name, answer)
				require.Empty(t, warnings, "%s %s", o.Kind, o.Name)
				kinds[o.Kind] = true
			}
		})
	}
	for kind := range resources {
		require.True(t, kinds[kind], "no example has a %s", kind)
	}

	// It would say so if something was wrong.
	i := render(t, "example", read(t, chartDir+"/ci/production.yaml"))
	o, _ := i.find("ScaledObject", "")
	code, answer, _ := a.apply(o, string(bytes.Replace([]byte(o.Text), []byte("minReplicaCount"), []byte("minReplicas"), 1)))
	require.GreaterOrEqual(t, code, http.StatusBadRequest)
	require.Contains(t, answer, "minReplicas")
	o, _ = i.find("Deployment", "example-outlane")
	_, _, warnings := a.apply(o, string(bytes.Replace([]byte(o.Text), []byte("runAsNonRoot: true"), []byte("runAsNonRoot: false"), 1)))
	require.NotEmpty(t, warnings)
}
