package charttest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// What is refused, and the name by which it is.
var refused = []struct{ values, name string }{
	{"replica: 3", "replica"},
	{"config: {wokrer: {}}", "wokrer"},
	{"config: {worker: {batchevents: 5}}", "batchevents"},
	{"config: {worker: {pollInterval: 30}}", "/config/worker/pollInterval"},
	{"config: {worker: {pollInterval: '30'}}", "/config/worker/pollInterval"},
	{"config: {worker: {pollInterval: 0s}}", "/config/worker/pollInterval"},
	{"config: {worker: {pollInterval: 0.0ms}}", "/config/worker/pollInterval"},
	{"config: {lease: {duration: 10 seconds}}", "/config/lease/duration"},
	{"config: {worker: {batchEvents: 1001}}", "/config/worker/batchEvents"},
	{"config: {worker: {batchEvents: 1.5}}", "/config/worker/batchEvents"},
	{"config: {worker: {memory: 64 megabytes}}", "/config/worker/memory"},
	{"config: {worker: {memory: '1e+06'}}", "/config/worker/memory"},
	{"config: {lease: {backend: etcd}}", "/config/lease/backend"},
	{"config: {lease: {podName: x}}", "podName"},
	{"config: {database: {url: x}}", "url"},
	{"config: {partitions: 5000}", "/config/partitions"},
	{"config: {routes: [{topics: [a]}]}", "stream"},
	{"config: {routes: [{topics: [a], stream: S, onDeadLetter: stop}]}", "onDeadLetter"},
	{"config: {streams: [{name: S, subjects: [a], replicas: three}]}", "replicas"},
	{"replicas: 65", "replicas is 65, above config.partitions of 64"},
	{"replicas: '2'", "/replicas"},
	{"replicas: -1", "/replicas"},
	{"replicas: 2.5", "/replicas"},
	{"autoscaling: {enabled: true, maxReplicas: 65}", "autoscaling.maxReplicas is 65, above config.partitions of 64"},
	{"autoscaling: {enabled: true, minReplicas: 5, maxReplicas: 4}", "autoscaling.minReplicas is 5"},
	{"autoscaling: {enabled: true, target: 0}", "/autoscaling/target"},
	{"autoscaling: {enabled: true, target: 1e3k}", "/autoscaling/target"},
	{"autoscaling: {enabled: true, trigger: cron}", "/autoscaling/trigger"},
	{"autoscaling: {enabled: true, trigger: prometheus}", "autoscaling.prometheus.serverAddress"},
	{"autoscaling: {enabled: true, minReplicas: 0, trigger: prometheus, prometheus: {serverAddress: 'http://p'}}", "autoscaling.minReplicas is 0"},
	{"autoscaling: {enabled: true, trigger: prometheus, prometheus: {serverAddress: 'http://p'}}", "podMonitor.enabled"},
	{"autoscaling: {enabled: true, prometheus: {serverAddress: p}}", "/autoscaling/prometheus/serverAddress"},
	{"database: {}", "database.url, database.urlSecret.name or database.host must be set"},
	{"database: {url: 'mysql://h/d'}", "/database/url"},
	{"database: {url: 'postgres://h/d', urlSecret: {name: s}}", "database.url and database.urlSecret are set"},
	{"database: {url: 'postgres://h/d', host: h}", "database.url and database.host are set"},
	{"database: {url: 'postgres://h/d', password: p}", "database.password is set, and database.url too"},
	{"database: {urlSecret: {name: s}, passwordSecret: {name: s}}", "database.passwordSecret is set, and database.urlSecret too"},
	{"database: {host: h}", "database.name"},
	{"database: {host: h, name: d, user: u, password: p, passwordSecret: {name: s}}", "database.password and database.passwordSecret are set"},
	{"database: {host: h, name: d, password: p}", "database.password is set without database.user"},
	{"database: {host: 'h/d', name: d}", "/database/host"},
	{"database: {host: h, name: d, port: 70000}", "/database/port"},
	{"database: {hots: h}", "hots"},
	{"migrations: {database: {host: h}}", "migrations.database.name"},
	{"migrations: {grants: {producers: a}}", "producers"},
	{"autoscaling: {database: {url: 'postgres://h/d', host: h}}", "autoscaling.database.url and autoscaling.database.host"},
	{"test: {database: {user: u}}", "test.database.url"},
	{"test: {topic: 'a.*'}", "/test/topic"},
	{"nats: {}", "nats.url or nats.urlSecret.name must be set"},
	{"nats: {url: 'http://n'}", "/nats/url"},
	{"nats: {url: 'nats://u:p@n:4222'}", "nats.url has a password in it"},
	{"nats: {url: 'nats://n', urlSecret: {name: s}}", "nats.url and nats.urlSecret are set"},
	{"nats: {url: 'nats://n', user: u, password: p, passwordSecret: {name: s}}", "nats.password and nats.passwordSecret are set"},
	{"nats: {url: 'nats://n', password: p}", "nats.password is set without nats.user"},
	{"nats: {url: 'nats://n', user: u, token: t}", "nats.token and nats.user are set; keep one way to log in"},
	{"nats: {url: 'nats://n', token: t, tokenSecret: {name: s}}", "nats.token and nats.tokenSecret are set"},
	{"nats: {url: 'nats://n', creds: c, nkeySecret: {name: s}}", "nats.creds and nats.nkey are set; keep one way to log in"},
	{"nats: {url: 'nats://n', tls: {ca: ca.crt}}", "nats.tls.secretName"},
	{"nats: {url: 'nats://n', tls: {secretName: s, cert: a}}", "nats.tls.cert and nats.tls.key must be set both"},
	{"terminationGracePeriodSeconds: 29", "terminationGracePeriodSeconds is 29, less than 5 seconds above config.worker.drainTimeout of 25s"},
	{"terminationGracePeriodSeconds: 30s", "/terminationGracePeriodSeconds"},
	{"image: {tag: a, digest: 'sha256:0000000000000000000000000000000000000000000000000000000000000000'}", "image.tag and image.digest are set"},
	{"image: {digest: abc}", "/image/digest"},
	{"image: {tag: 'a b'}", "/image/tag"},
	{"image: {pullPolicy: Sometimes}", "/image/pullPolicy"},
	{"podMonitor: {enabled: true}\nserviceMonitor: {enabled: true}", "podMonitor.enabled and serviceMonitor.enabled"},
	{"serviceMonitor: {enabled: true}\nservice: {enabled: false}", "serviceMonitor.enabled needs service.enabled"},
	{"rbac: {create: false}", "serviceAccount.name must name one"},
	{"podDisruptionBudget: {maxUnavailable: 0}", "/podDisruptionBudget/maxUnavailable"},
	{"resources: {limit: {memory: 1Gi}}", "limit"},
	{"extraEnv: {A: b}", "/extraEnv"},
	{"imagePullSecrets: [{name: a}]", "/imagePullSecrets"},
	{"fullnameOverride: Upper", "/fullnameOverride"},
	{"podLabels: {a: 1}", "/podLabels"},
	{"networkPolicy: {postgresPorts: [0]}", "/networkPolicy/postgresPorts"},
}

func TestWhatMakesNoSenseIsRefusedByName(t *testing.T) {
	t.Parallel()
	c := load(t)
	for _, r := range refused {
		t.Run(r.values, func(t *testing.T) {
			values := with(t, r.values)
			_, _, err := Render(c, Release{Name: "r", Namespace: "ns"}, values)
			require.Error(t, err)
			require.ErrorContains(t, err, r.name)
		})
	}
}

func TestLargeNumbersStayNumbers(t *testing.T) {
	t.Parallel()
	i := render(t, "shop", with(t, `
config: {worker: {batchBytes: 1000000, memory: 100000000}, streams: [{name: S, subjects: [a], maxBytes: 10000000000}]}
autoscaling: {enabled: true, target: 10000000, cooldownPeriod: 1000000}
`))
	for _, o := range i.objects {
		require.NotRegexp(t, `[0-9]e\+[0-9]`, o.Text)
	}
	o, _ := i.find("ConfigMap", "shop-outlane")
	var file struct{ Worker struct{ BatchBytes int } }
	require.NoError(t, yaml.Unmarshal([]byte(at(t, o, "data", "outlane.yaml").(string)), &file))
	require.Equal(t, 1000000, file.Worker.BatchBytes)
}
