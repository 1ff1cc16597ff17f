package charttest

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/lint"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/outlane/outlane/internal/config"
)

const chartDir = "../outlane"

var update = flag.Bool("update", false, "write the generated README")

func load(t testing.TB) *chart.Chart {
	t.Helper()
	c, err := Load(chartDir)
	require.NoError(t, err)
	return c
}

func read(t testing.TB, path string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	values := map[string]any{}
	require.NoError(t, yaml.UnmarshalStrict(text, &values))
	return values
}

func examples(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(chartDir + "/ci/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

// install is what Helm would install.
type install struct {
	t       testing.TB
	objects []Object
	notes   string
}

func render(t testing.TB, release string, values map[string]any) install {
	t.Helper()
	objects, notes, err := Render(load(t), Release{Name: release, Namespace: "ns"}, values)
	require.NoError(t, err)
	return install{t, objects, notes}
}

// with gives the minimal example, changed by lines of YAML.
func with(t testing.TB, changes string) map[string]any {
	t.Helper()
	values := read(t, chartDir+"/ci/minimal.yaml")
	var more map[string]any
	require.NoError(t, yaml.UnmarshalStrict([]byte(changes), &more))
	for key, value := range more {
		values[key] = value
	}
	return values
}

func (i install) find(kind, name string) (Object, bool) {
	at := slices.IndexFunc(i.objects, func(o Object) bool { return o.Kind == kind && (name == "" || o.Name == name) })
	if at < 0 {
		return Object{}, false
	}
	return i.objects[at], true
}

func typed[T any](i install, kind, name string) *T {
	i.t.Helper()
	o, ok := i.find(kind, name)
	require.True(i.t, ok, "there is no %s %s", kind, name)
	v, err := o.Typed()
	require.NoError(i.t, err)
	return v.(*T)
}

func at(t testing.TB, o Object, path ...string) any {
	t.Helper()
	var v any = o.Raw
	for _, key := range path {
		if list, ok := v.([]any); ok && key == "0" {
			v = list[0]
			continue
		}
		m, ok := v.(map[string]any)
		require.True(t, ok, "%v", path)
		v = m[key]
	}
	return v
}

// podSpecs are those of all pods that an installation may make.
func (i install) podSpecs() map[string]core.PodTemplateSpec {
	specs := map[string]core.PodTemplateSpec{}
	for _, o := range i.objects {
		v, err := o.Typed()
		require.NoError(i.t, err)
		switch v := v.(type) {
		case *apps.Deployment:
			specs["Deployment "+o.Name] = v.Spec.Template
		case *batch.Job:
			specs["Job "+o.Name] = v.Spec.Template
		case *core.Pod:
			specs["Pod "+o.Name] = core.PodTemplateSpec{ObjectMeta: v.ObjectMeta, Spec: v.Spec}
		}
	}
	return specs
}

func TestEveryExampleRendersToWhatKubernetesTakes(t *testing.T) {
	t.Parallel()
	for _, file := range examples(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			i := render(t, "example", read(t, file))
			require.NotContains(t, i.notes, "<no value>")
			seen := map[string]bool{}
			for _, o := range i.objects {
				_, err := o.Typed()
				require.NoError(t, err)
				require.NotContains(t, o.Text, "<no value>")
				require.NotRegexp(t, `\de\+\d`, o.Text, "a number became a power of ten")
				require.LessOrEqual(t, len(o.Name), 63)
				require.False(t, seen[o.Kind+o.Name], "%s %s is there twice", o.Kind, o.Name)
				seen[o.Kind+o.Name] = true
				labels, _ := at(t, o, "metadata", "labels").(map[string]any)
				require.Equal(t, "example", labels["app.kubernetes.io/instance"], o.Name)
			}
			for name, pod := range i.podSpecs() {
				checkRestricted(t, name, pod.Spec)
			}
			messages := lint.AllWithKubeVersionAndSchemaValidation(chartDir, read(t, file), "ns", nil, false).Messages
			for _, m := range messages {
				require.Less(t, m.Severity, 2, m.Error())
			}
		})
	}
}

// checkRestricted is the Pod Security level restricted, and a root file system that cannot be written.
func checkRestricted(t *testing.T, name string, spec core.PodSpec) {
	t.Helper()
	require.False(t, spec.HostNetwork || spec.HostPID || spec.HostIPC, name)
	require.True(t, *spec.SecurityContext.RunAsNonRoot, name)
	require.NotZero(t, *spec.SecurityContext.RunAsUser, name)
	require.Equal(t, core.SeccompProfileTypeRuntimeDefault, spec.SecurityContext.SeccompProfile.Type, name)
	require.False(t, *spec.EnableServiceLinks, name)
	for _, c := range append(slices.Clone(spec.InitContainers), spec.Containers...) {
		if c.Name == "sidecar" {
			continue
		}
		require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, name)
		require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem, name)
		require.Equal(t, []core.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop, name)
	}
	for _, v := range spec.Volumes {
		require.Nil(t, v.HostPath, name)
	}
	tokens := spec.AutomountServiceAccountToken != nil && *spec.AutomountServiceAccountToken
	worker := strings.HasPrefix(name, "Deployment") && !strings.HasSuffix(name, "-scaler")
	status := strings.HasPrefix(name, "Pod") && spec.Containers[0].Args[0] == "status"
	require.Equal(t, (worker || status) && spec.ServiceAccountName != "default" && spec.ServiceAccountName != "", tokens,
		"%s: only who reads Leases talks to the API server", name)
}

// The program itself must take what every container is given: its file and its variables.
func TestContainersHaveAConfigurationThatOutlaneTakes(t *testing.T) {
	t.Parallel()
	for _, file := range examples(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			i := render(t, "example", read(t, file))
			for name, pod := range i.podSpecs() {
				for _, c := range append(slices.Clone(pod.Spec.InitContainers), pod.Spec.Containers...) {
					if c.Name == "sidecar" {
						continue
					}
					cfg := i.load(name, pod.Spec, c)
					require.NotEmpty(t, cfg.Database.URL, name)
					if !slices.Contains([]string{"up", "grants", "scaler"}, c.Name) {
						require.NotEmpty(t, cfg.NATS.URL, name)
					}
				}
			}
		})
	}
}

// load reads a container's configuration as the program in it would.
func (i install) load(name string, spec core.PodSpec, c core.Container) *config.Config {
	t := i.t
	t.Helper()
	dir := t.(*testing.T).TempDir()
	var environ []string
	for _, e := range c.Env {
		value := e.Value
		switch {
		case e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil:
			value = i.secret(e.ValueFrom.SecretKeyRef.Name, e.ValueFrom.SecretKeyRef.Key)
			if e.Name == "OUTLANE_DATABASE_URL" && value == somebodyElses {
				value = "postgres://somewhere/db"
			}
		case e.ValueFrom != nil && e.ValueFrom.FieldRef != nil:
			value = "from-the-pod"
		case strings.HasPrefix(value, "/etc/outlane/"):
			mounted := slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool {
				return m.MountPath == value || strings.HasPrefix(value, m.MountPath+"/")
			})
			require.True(t, mounted, "%s: %s names %s, which is not mounted", name, e.Name, value)
			local := filepath.Join(dir, strings.ReplaceAll(value, "/", "_"))
			text := "secret"
			if e.Name == "OUTLANE_CONFIG" {
				text = i.file(spec, c)
			}
			require.NoError(t, os.WriteFile(local, []byte(text), 0o600))
			value = local
		}
		environ = append(environ, e.Name+"="+value)
	}
	cfg, err := config.Load(environ, nil)
	require.NoError(t, err, name)
	return cfg
}

const somebodyElses = "not in this release"

func (i install) secret(name, key string) string {
	o, ok := i.find("Secret", name)
	if !ok {
		return somebodyElses
	}
	v, err := o.Typed()
	require.NoError(i.t, err)
	data, ok := v.(*core.Secret).Data[key]
	require.True(i.t, ok, "the Secret %s has no %s", name, key)
	return string(data)
}

// file is the configuration file that is mounted into a container.
func (i install) file(spec core.PodSpec, c core.Container) string {
	for _, v := range spec.Volumes {
		if v.Name == "config" && slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return m.Name == "config" }) {
			return typed[core.ConfigMap](i, "ConfigMap", v.ConfigMap.Name).Data["outlane.yaml"]
		}
	}
	require.Fail(i.t, "no configuration is mounted")
	return ""
}

func TestREADMEIsUpToDate(t *testing.T) {
	text, err := os.ReadFile(chartDir + "/values.yaml")
	require.NoError(t, err)
	want, err := README(text)
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(chartDir+"/README.md", want, 0o644))
	}
	have, err := os.ReadFile(chartDir + "/README.md")
	require.NoError(t, err)
	require.True(t, string(have) == string(want), "charts/outlane/README.md is not what values.yaml says: run make chart-docs")
}

// The schema knows every field of the configuration, with its range, but for what the chart sets itself.
func TestSchemaKnowsTheConfiguration(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(chartDir + "/values.schema.json")
	require.NoError(t, err)
	type node struct {
		Properties       map[string]json.RawMessage
		Minimum, Maximum *json.Number
		Enum             []string
		Ref              string `json:"$ref"`
	}
	parse := func(raw json.RawMessage) (n node) {
		require.NoError(t, json.Unmarshal(raw, &n))
		return n
	}
	root := parse(parse(text).Properties["config"])
	ours := regexp.MustCompile(`^(database\.url|nats\.(url|user|password|token|credsFile|nkeyFile|tls)|http\.|worker\.id|lease\.(namespace|pod|kubeconfig))`)
	known := map[string]bool{}
	for _, f := range config.Fields() {
		if ours.MatchString(f.Path) {
			continue
		}
		n := root
		for part := range strings.SplitSeq(f.Path, ".") {
			raw, ok := n.Properties[part]
			require.True(t, ok, "values.schema.json has no config.%s", f.Path)
			n = parse(raw)
		}
		known[f.Path] = true
		if f.OneOf != nil {
			require.Equal(t, f.OneOf, n.Enum, f.Path)
		}
		if f.Kind == config.KindNumber {
			require.Equal(t, [2]string{f.Min, f.Max}, [2]string{n.Minimum.String(), n.Maximum.String()}, f.Path)
		}
		if f.Kind == config.KindDuration {
			require.Equal(t, f.Min == "0s", n.Ref == "#/$defs/duration", f.Path)
		}
	}
	var count func(n node, prefix string)
	count = func(n node, prefix string) {
		for name, raw := range n.Properties {
			if child := parse(raw); child.Properties != nil {
				count(child, prefix+name+".")
			} else if prefix+name != "routes" && prefix+name != "streams" {
				require.True(t, known[prefix+name], "values.schema.json has config.%s%s, which is no field", prefix, name)
			}
		}
	}
	count(root, "")
}
