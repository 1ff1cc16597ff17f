package charttest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	rbac "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/outlane/outlane/internal/config"
)

func TestWorkers(t *testing.T) {
	t.Parallel()
	i := render(t, "shop", with(t, ""))
	d := typed[apps.Deployment](i, "Deployment", "shop-outlane")
	require.EqualValues(t, 2, *d.Spec.Replicas)
	pod := d.Spec.Template.Spec
	require.EqualValues(t, 35, *pod.TerminationGracePeriodSeconds, "the drain of 25 seconds and 10 more")
	require.EqualValues(t, 1, pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds, "so that a container that has just started hears SIGTERM")
	require.Equal(t, "ghcr.io/outlane/outlane:0.1.0", pod.Containers[0].Image)
	require.Equal(t, d.Spec.Selector.MatchLabels, subset(d.Spec.Template.Labels, d.Spec.Selector.MatchLabels))
	require.Len(t, pod.TopologySpreadConstraints, 2)
	require.Equal(t, d.Spec.Selector.MatchLabels, pod.TopologySpreadConstraints[0].LabelSelector.MatchLabels)
	cfg := i.load("worker", pod, pod.Containers[0])
	require.Equal(t, "kubernetes", cfg.Lease.Backend)
	require.Equal(t, "shop-outlane", cfg.Lease.Instance)
	require.Equal(t, "from-the-pod", cfg.Lease.PodUID)
	for _, kind := range []string{"ScaledObject", "PodMonitor", "PrometheusRule", "NetworkPolicy", "TriggerAuthentication"} {
		_, ok := i.find(kind, "")
		require.False(t, ok, kind)
	}
	for drain, want := range map[string]int64{"1m30s": 100, "500ms": 11, "0s": 10, "1h": 3610} {
		i := render(t, "shop", with(t, "config: {worker: {drainTimeout: "+drain+"}}"))
		require.Equal(t, want, *typed[apps.Deployment](i, "Deployment", "").Spec.Template.Spec.TerminationGracePeriodSeconds, drain)
	}
}

func subset(of, like map[string]string) map[string]string {
	part := map[string]string{}
	for key := range like {
		part[key] = of[key]
	}
	return part
}

func TestRights(t *testing.T) {
	t.Parallel()
	i := render(t, "shop", with(t, ""))
	role := typed[rbac.Role](i, "Role", "shop-outlane")
	require.Equal(t, []rbac.PolicyRule{{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
		Verbs: []string{"get", "list", "watch", "create", "update", "delete"}}}, role.Rules)
	binding := typed[rbac.RoleBinding](i, "RoleBinding", "shop-outlane")
	require.Equal(t, typed[apps.Deployment](i, "Deployment", "").Spec.Template.Spec.ServiceAccountName, binding.Subjects[0].Name)

	i = render(t, "shop", read(t, chartDir+"/ci/postgres-leases.yaml"))
	for _, kind := range []string{"Role", "RoleBinding", "ServiceAccount"} {
		_, ok := i.find(kind, "")
		require.False(t, ok, kind)
	}
}

func TestMigrationRunsFirstAndUnderItsOwnName(t *testing.T) {
	t.Parallel()
	i := render(t, "shop", read(t, chartDir+"/ci/production.yaml"))
	job, _ := i.find("Job", "shop-outlane-migrate")
	require.Equal(t, "pre-install,pre-upgrade", job.Hook)
	pod := typed[batch.Job](i, "Job", "").Spec.Template.Spec
	var steps []string
	for _, c := range append(pod.InitContainers, pod.Containers...) {
		steps = append(steps, strings.Join(c.Args, " "))
		require.Contains(t, c.Env[0].Value, "shop_owner@", "the owner's credentials")
	}
	require.Equal(t, []string{"migrate up", "migrate grants --producer shop_app --worker outlane_worker --scaler outlane_scaler", "streams apply"}, steps)
	worker := typed[apps.Deployment](i, "Deployment", "").Spec.Template.Spec.Containers[0]
	require.Contains(t, worker.Env[0].Value, "outlane_worker@")

	i = render(t, "shop", with(t, ""))
	pod = typed[batch.Job](i, "Job", "").Spec.Template.Spec
	require.Empty(t, pod.InitContainers)
	require.Equal(t, []string{"migrate", "up"}, pod.Containers[0].Args)
	used := pod.Containers[0].Env[0].ValueFrom.SecretKeyRef.Name
	secret, ok := i.find("Secret", used)
	require.True(t, ok && secret.Hook != "", "what the Job needs is there before the release is")
	config, ok := i.find("ConfigMap", pod.Volumes[0].ConfigMap.Name)
	require.True(t, ok && config.Hook != "")

	_, ok = render(t, "shop", with(t, "migrations: {enabled: false}")).find("Job", "")
	require.False(t, ok)
}

// Whatever is in a password arrives as it is.
func TestPasswordsMayHaveAnySymbol(t *testing.T) {
	t.Parallel()
	values := read(t, chartDir+"/ci/passwords.yaml")
	i := render(t, "shop", values)
	password := values["database"].(map[string]any)["password"].(string)
	require.Equal(t, password, i.secret("shop-outlane", "database-password"))
	require.Equal(t, password, i.secret("shop-outlane-migrate", "database-password"))
	require.Equal(t, values["nats"].(map[string]any)["password"], i.secret("shop-outlane", "nats-password"))
	c := typed[apps.Deployment](i, "Deployment", "").Spec.Template.Spec.Containers[0]
	require.Equal(t, "postgres://o%27ut%40lane@postgres:5432/sh%20op", c.Env[0].Value)
	require.Equal(t, "PGPASSWORD", c.Env[1].Name)
	for _, o := range i.objects {
		require.NotContains(t, o.Text, "p@ss", "%s %s", o.Kind, o.Name)
	}
}

func TestNamesStayShortAndApart(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a-long-name-", 4) + "one" // Helm allows 53
	names := map[string]string{}
	for _, release := range []string{long, long[:50] + "two", "outlane", "a", "b"} {
		values := read(t, chartDir+"/ci/production.yaml")
		values["autoscaling"].(map[string]any)["trigger"] = "external"
		i := render(t, release, values)
		for _, o := range i.objects {
			require.LessOrEqual(t, len(o.Name), 63, o.Kind)
			key := o.Kind + "/" + o.Name
			require.Empty(t, names[key], "%s belongs to %s too", key, release)
			names[key] = release
		}
		pod := typed[apps.Deployment](i, "Deployment", "").Spec.Template
		require.LessOrEqual(t, len(pod.Labels["app.kubernetes.io/instance"]), 63)
	}
	one, two := render(t, "a", with(t, "")), render(t, "b", with(t, ""))
	instance := func(i install) string {
		pod := typed[apps.Deployment](i, "Deployment", "").Spec.Template.Spec
		return i.load("worker", pod, pod.Containers[0]).Lease.Instance
	}
	require.NotEqual(t, instance(one), instance(two), "their Leases are apart")
	selector := func(i install) map[string]string { return typed[core.Service](i, "Service", "").Spec.Selector }
	require.NotEqual(t, selector(one), selector(two))
	require.Equal(t, "outlane", typed[apps.Deployment](render(t, "outlane", with(t, "")), "Deployment", "").Name)
	require.Equal(t, "mine", typed[apps.Deployment](render(t, "x", with(t, "fullnameOverride: mine")), "Deployment", "").Name)
}

func TestAutoscaling(t *testing.T) {
	t.Parallel()
	i := render(t, "shop", read(t, chartDir+"/ci/production.yaml"))
	require.Nil(t, typed[apps.Deployment](i, "Deployment", "").Spec.Replicas, "an upgrade leaves the number to KEDA")
	o, _ := i.find("ScaledObject", "shop-outlane")
	require.EqualValues(t, 2, at(t, o, "spec", "minReplicaCount"))
	require.EqualValues(t, 20, at(t, o, "spec", "maxReplicaCount"))
	require.Equal(t, "shop-outlane", at(t, o, "spec", "scaleTargetRef", "name"))
	require.EqualValues(t, 2, at(t, o, "spec", "fallback", "replicas"))
	trigger := at(t, o, "spec", "triggers", "0").(map[string]any)
	require.Equal(t, "postgresql", trigger["type"])
	metadata := trigger["metadata"].(map[string]any)
	require.Equal(t, `SELECT "outbox".outbox_workers_wanted(10000, 20)`, metadata["query"])
	require.Equal(t, "1", metadata["targetQueryValue"])
	require.Equal(t, "outlane_scaler", metadata["userName"])
	require.Equal(t, "verify-full", metadata["sslmode"])
	auth, _ := i.find("TriggerAuthentication", "shop-outlane")
	ref := at(t, auth, "spec", "secretTargetRef", "0").(map[string]any)
	require.Equal(t, map[string]any{"parameter": "password", "name": "outlane-scaler", "key": "password"}, ref)

	i = render(t, "shop", read(t, chartDir+"/ci/keda-zero.yaml"))
	o, _ = i.find("ScaledObject", "")
	require.EqualValues(t, 0, at(t, o, "spec", "minReplicaCount"))
	require.Nil(t, at(t, o, "spec", "fallback"))
	auth, _ = i.find("TriggerAuthentication", "")
	ref = at(t, auth, "spec", "secretTargetRef", "0").(map[string]any)
	require.Equal(t, "connection", ref["parameter"])
	require.NotEmpty(t, i.secret(ref["name"].(string), ref["key"].(string)))
}

func TestExternalScaler(t *testing.T) {
	t.Parallel()
	i := render(t, "shop", read(t, chartDir+"/ci/keda-external.yaml"))
	o, _ := i.find("ScaledObject", "")
	trigger := at(t, o, "spec", "triggers", "0").(map[string]any)
	require.Equal(t, "external-push", trigger["type"])
	require.Equal(t, map[string]any{"scalerAddress": "shop-outlane-scaler.ns.svc:9090", "target": "1000000", "most": "10"}, trigger["metadata"])
	require.EqualValues(t, 3, at(t, o, "spec", "fallback", "replicas"))
	d := typed[apps.Deployment](i, "Deployment", "shop-outlane-scaler")
	service := typed[core.Service](i, "Service", "shop-outlane-scaler")
	require.Equal(t, service.Spec.Selector, subset(d.Spec.Template.Labels, service.Spec.Selector))
	worker := typed[apps.Deployment](i, "Deployment", "shop-outlane")
	require.NotEqual(t, d.Spec.Selector.MatchLabels, worker.Spec.Selector.MatchLabels)
	policy := typed[networking.NetworkPolicy](i, "NetworkPolicy", "")
	require.Len(t, policy.Spec.Ingress, 2)
	_, ok := i.find("TriggerAuthentication", "")
	require.False(t, ok)
}

func TestPrometheusTriggerSelectsItsOwnPool(t *testing.T) {
	t.Parallel()
	i := render(t, "shop", read(t, chartDir+"/ci/keda-prometheus.yaml"))
	o, _ := i.find("ScaledObject", "")
	trigger := at(t, o, "spec", "triggers", "0").(map[string]any)
	query := trigger["metadata"].(map[string]any)["query"].(string)
	require.Equal(t, 2, strings.Count(query, `{namespace="ns",job="shop"}`), query)
	monitor, _ := i.find("ServiceMonitor", "")
	require.Equal(t, "app.kubernetes.io/instance", at(t, monitor, "spec", "jobLabel"))
}

func TestAlertsAndDashboard(t *testing.T) {
	t.Parallel()
	i := render(t, "shop", read(t, chartDir+"/ci/production.yaml"))
	o, _ := i.find("PrometheusRule", "")
	rules := at(t, o, "spec", "groups", "0", "rules").([]any)
	require.Greater(t, len(rules), 8)
	for _, rule := range rules {
		r := rule.(map[string]any)
		require.NotEqual(t, "OutlaneLagAge", r["alert"], "it was left out")
		require.Equal(t, "payments", r["labels"].(map[string]any)["team"])
		require.NotEmpty(t, r["labels"].(map[string]any)["severity"])
		require.NotContains(t, r["expr"], `job=~`)
		require.Contains(t, r["expr"], `{namespace="ns",job="shop"`)
	}
	dashboard := typed[core.ConfigMap](i, "ConfigMap", "shop-outlane-dashboard")
	require.Equal(t, "1", dashboard.Labels["grafana_dashboard"])
	require.Contains(t, dashboard.Data["outlane.json"], "outlane_lag_events")
}

func TestHelmTestSendsAnEvent(t *testing.T) {
	t.Parallel()
	i := render(t, "shop", read(t, chartDir+"/ci/production.yaml"))
	pod := typed[core.Pod](i, "Pod", "shop-outlane-test")
	require.Equal(t, []string{"send", "--wait=60s", "--topic=outlane.test"}, pod.Spec.Containers[0].Args)
	require.Contains(t, pod.Spec.Containers[0].Env[0].Value, "shop_app@")
	require.Equal(t, []string{"status"}, typed[core.Pod](render(t, "shop", with(t, "")), "Pod", "").Spec.Containers[0].Args)
}

func TestNotesSayWhatComesNext(t *testing.T) {
	t.Parallel()
	notes := render(t, "shop", with(t, "")).notes
	require.Contains(t, notes, "2 workers share 64 partitions")
	require.Contains(t, notes, "exec deploy/shop-outlane")
	notes = render(t, "shop", read(t, chartDir+"/ci/keda-zero.yaml")).notes
	require.Contains(t, notes, "KEDA keeps 0 to 10 workers")
	require.Contains(t, notes, "migrate grants --scaler")
	require.Contains(t, render(t, "shop", read(t, chartDir+"/ci/postgres-leases.yaml")).notes, "outlane migrate up")
}

func TestManifestsAreInAnOrderThatWorks(t *testing.T) {
	t.Parallel()
	i := render(t, "outlane", read(t, chartDir+"/ci/production.yaml"))
	var kinds []string
	for part := range strings.SplitSeq(string(Manifests(i.objects)), "---\n") {
		var o struct{ Kind string }
		require.NoError(t, yaml.Unmarshal([]byte(part), &o))
		if o.Kind != "" {
			kinds = append(kinds, o.Kind)
		}
	}
	place := map[string]int{}
	for n, kind := range kinds {
		place[kind] = n
	}
	require.Less(t, place["ConfigMap"], place["Job"])
	require.Less(t, place["Job"], place["Deployment"])
	require.NotContains(t, kinds, "Pod")
}

// config and chart agree on the number of partitions that the templates compare with.
func TestDefaultsAgree(t *testing.T) {
	t.Parallel()
	c := load(t)
	require.Equal(t, fmt.Sprint(64), fmt.Sprint(c.Values["config"].(map[string]any)["partitions"]))
	for _, f := range config.Fields() {
		if f.Path == "worker.drainTimeout" {
			require.Equal(t, "25s", f.Default, "templates/_names.tpl says so too")
		}
	}
}

// What is added for the worker is there for everybody who talks to the database: a certificate, a proxy.
func TestExtrasAreInEveryPod(t *testing.T) {
	t.Parallel()
	values := read(t, chartDir+"/ci/everything-else.yaml")
	values["autoscaling"] = map[string]any{"enabled": true, "trigger": "external"}
	i := render(t, "shop", values)
	specs := i.podSpecs()
	require.Len(t, specs, 4, "worker, migration, scaler, test")
	for name, pod := range specs {
		c := pod.Spec.Containers[0]
		require.Contains(t, c.VolumeMounts, core.VolumeMount{Name: "scratch", MountPath: "/scratch"}, name)
		require.Contains(t, c.Env, core.EnvVar{Name: "GOMEMLIMIT", Value: "200MiB"}, name)
		require.Len(t, c.EnvFrom, 1, name)
	}
	require.Equal(t, "payments", specs["Deployment shop-mover"].Labels["team"])
	require.NotContains(t, specs["Deployment shop-mover"].Labels, "helm.sh/chart", "a new chart alone makes no new pods")
}

func TestEachRoleHasItsOwnPassword(t *testing.T) {
	t.Parallel()
	i := render(t, "shop", with(t, `
database: {host: h, name: d, user: worker, password: w}
migrations: {database: {host: h, name: d, user: owner, password: o}}
autoscaling: {enabled: true, database: {host: h, name: d, user: scaler, password: s}}
test: {topic: a, database: {host: h, name: d, user: producer, password: p}}
`))
	for key, want := range map[string]string{
		"database-password": "w", "migrate-database-password": "o", "scaler-database-password": "s", "test-database-password": "p",
	} {
		require.Equal(t, want, i.secret("shop-outlane", key), key)
	}
	for name, want := range map[string]string{"Deployment shop-outlane": "w", "Job shop-outlane-migrate": "o", "Pod shop-outlane-test": "p"} {
		ref := i.podSpecs()[name].Spec.Containers[0].Env[1].ValueFrom.SecretKeyRef
		require.Equal(t, want, i.secret(ref.Name, ref.Key), name)
	}
	auth, _ := i.find("TriggerAuthentication", "")
	ref := at(t, auth, "spec", "secretTargetRef", "0").(map[string]any)
	require.Equal(t, "s", i.secret(ref["name"].(string), ref["key"].(string)))
}
