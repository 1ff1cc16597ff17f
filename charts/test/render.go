// Package charttest renders the chart as Helm does, by Helm's own engine and without a cluster, checks what comes out, and generates the
// chart's README. It is a module of its own, so that nobody who builds Outlane needs Helm.
package charttest

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// KubeVersion is what templates are told.
const KubeVersion = "v1.33.0"

// Release is what Helm knows beside the values.
type Release struct {
	Name      string
	Namespace string
	Upgrade   bool
}

// Object is one rendered object.
type Object struct {
	Kind string
	Name string
	Text string         // as rendered
	Raw  map[string]any // as read
	Hook string         // helm.sh/hook, or empty
	File string
}

// Load reads the chart from a folder.
func Load(dir string) (*chart.Chart, error) { return loader.LoadDir(dir) }

// Render returns the chart's objects for values, and its notes. An error names what is wrong with the values.
func Render(c *chart.Chart, release Release, values map[string]any) ([]Object, string, error) {
	version, err := chartutil.ParseKubeVersion(KubeVersion)
	if err != nil {
		return nil, "", err
	}
	caps := chartutil.DefaultCapabilities.Copy()
	caps.KubeVersion = *version
	options := chartutil.ReleaseOptions{
		Name: release.Name, Namespace: release.Namespace, Revision: 1, IsInstall: !release.Upgrade, IsUpgrade: release.Upgrade,
	}
	all, err := chartutil.ToRenderValues(c, values, options, caps)
	if err != nil {
		return nil, "", err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, "", err
	}
	var objects []Object
	var notes string
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		switch {
		case path.Base(name) == "NOTES.txt":
			notes = files[name]
		case strings.HasSuffix(name, ".yaml"):
			found, err := split(name, files[name])
			if err != nil {
				return nil, "", err
			}
			objects = append(objects, found...)
		}
	}
	return objects, notes, nil
}

func split(name, text string) ([]Object, error) {
	var objects []Object
	for part := range strings.SplitSeq("\n"+text, "\n---") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		var raw map[string]any
		if err := yaml.UnmarshalStrict([]byte(part), &raw); err != nil {
			return nil, fmt.Errorf("%s is not YAML: %w\n%s", name, err, part)
		}
		meta, _ := raw["metadata"].(map[string]any)
		annotations, _ := meta["annotations"].(map[string]any)
		o := Object{Text: strings.TrimSpace(part) + "\n", Raw: raw, File: name}
		o.Kind, _ = raw["kind"].(string)
		o.Name, _ = meta["name"].(string)
		o.Hook, _ = annotations["helm.sh/hook"].(string)
		objects = append(objects, o)
	}
	return objects, nil
}

// kinds are the objects of Kubernetes itself, whose fields are checked strictly.
var kinds = map[string]func() any{
	"ConfigMap":           func() any { return &core.ConfigMap{} },
	"Secret":              func() any { return &core.Secret{} },
	"Service":             func() any { return &core.Service{} },
	"ServiceAccount":      func() any { return &core.ServiceAccount{} },
	"Pod":                 func() any { return &core.Pod{} },
	"Deployment":          func() any { return &apps.Deployment{} },
	"Job":                 func() any { return &batch.Job{} },
	"Role":                func() any { return &rbac.Role{} },
	"RoleBinding":         func() any { return &rbac.RoleBinding{} },
	"PodDisruptionBudget": func() any { return &policy.PodDisruptionBudget{} },
	"NetworkPolicy":       func() any { return &networking.NetworkPolicy{} },
}

// Typed reads the object into Kubernetes' own type; a field that the type does not have is an error. It is nil for custom resources.
func (o Object) Typed() (any, error) {
	make, ok := kinds[o.Kind]
	if !ok {
		return nil, nil
	}
	typed := make()
	if err := yaml.UnmarshalStrict([]byte(o.Text), typed); err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", o.Kind, o.Name, err, o.Text)
	}
	return typed, nil
}

// Manifests are the objects as one file that kubectl applies, in an order that works: what pods need before the pods, the Job that migrates
// before the workers. Tests are left out.
func Manifests(objects []Object) []byte {
	order := []string{"ServiceAccount", "Role", "RoleBinding", "Secret", "ConfigMap", "NetworkPolicy", "Service", "PodDisruptionBudget", "Job"}
	rank := func(o Object) int {
		if i := slices.Index(order, o.Kind); i >= 0 {
			return i
		}
		return len(order)
	}
	sorted := slices.DeleteFunc(slices.Clone(objects), func(o Object) bool { return o.Hook == "test" })
	slices.SortStableFunc(sorted, func(a, b Object) int { return rank(a) - rank(b) })
	var out bytes.Buffer
	for _, o := range sorted {
		out.WriteString("---\n" + o.Text)
	}
	return out.Bytes()
}
