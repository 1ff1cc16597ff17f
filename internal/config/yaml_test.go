package config_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/config"
)

func TestFileIsStrict(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"a mistyped field": {
			"partitionKeyField: a\nworker:\n  bachEvents: 5\n",
			[]string{`unknown field "bachEvents" at outlane.yaml:3; did you mean batchEvents?`},
		},
		"a field of another section": {
			"batchEvents: 5\n",
			[]string{`unknown field "batchEvents" at outlane.yaml:1; did you mean worker.batchEvents?`},
		},
		"a field like no other": {
			"lease:\n  zebra: 5\n",
			[]string{`unknown field "zebra" at outlane.yaml:2; known in lease: backend, duration, instance, kubeconfig, namespace, podName, podUid, weights`},
		},
		"a field of an item": {
			"routes:\n- topics: [a]\n  stream: A\n  onDeadleter: skip\n",
			[]string{`unknown field "onDeadleter" at outlane.yaml:4; did you mean onDeadLetter?`},
		},
		"a merge key": {
			"lease: &l {duration: 2s}\nworker:\n  <<: *l\n",
			[]string{`unknown field "<<" at outlane.yaml:3; merge keys are not supported, write the fields out`},
		},
		"a field twice": {
			"lease:\n  duration: 2s\n  duration: 3s\n",
			[]string{`field "lease.duration" at outlane.yaml:3 is given twice, first on line 2; keep one`},
		},
		"wrong types": {
			"partitions: '4'\npartitionKeyField: 7\nworker: [1]\nlease: 5s\ndatabase: {statementTimeout: 30, schema: {}}\n" +
				"routes: {topics: a}\nstreams:\n- 5\n- name: A\n  subjects: a\n- name: B\n  subjects: [b, 7]\n  allowBatchPublish: 'true'\n  maxBytes: 1.5\n",
			[]string{
				"partitions at outlane.yaml:1 is a text; want a whole number, without quotes",
				"partitionKeyField at outlane.yaml:2 is a number; want a text; write it in quotes",
				"worker at outlane.yaml:3 is a list; want fields, as in name: value",
				"lease at outlane.yaml:4 is a text; want fields, as in name: value",
				"database.statementTimeout at outlane.yaml:5 is a number; want a duration with a unit, such as 250ms, 10s or 2m",
				"database.schema at outlane.yaml:5 is a section with fields; want a text",
				"routes at outlane.yaml:6 is a section with fields; want a list, one item a line after a dash",
				"streams[0] at outlane.yaml:8 is a number; want fields, as in name: value",
				"streams[1].subjects at outlane.yaml:10 is a text; want a list, such as [payout.>]",
				"streams[2].subjects[1] at outlane.yaml:12 is a number; want a text, in quotes if it looks like something else",
				"streams[2].allowBatchPublish at outlane.yaml:13 is a text; want true or false, without quotes",
				"streams[2].maxBytes at outlane.yaml:14 is a number; want a size such as 4MiB, 500kB or 1048576",
			},
		},
		"the whole file of another type": {
			"- a\n",
			[]string{"the configuration at outlane.yaml:1 is a list; want fields, as in name: value"},
		},
		"out of range": {
			"worker: {batchEvents: 0, pollInterval: 0, memory: 1KiB, fetchers: 101}\nlease: {backend: etcd}\nlog: {level: wran}\n",
			[]string{
				"worker.batchEvents at outlane.yaml:1 is 0; want 1 to 1000",
				"worker.pollInterval at outlane.yaml:1 is 0; want 1ms to 1m",
				"worker.memory at outlane.yaml:1 is 1KiB; want 1MiB to 1TiB",
				"worker.fetchers at outlane.yaml:1 is 101; want 1 to 100",
				`lease.backend at outlane.yaml:2 is "etcd"; want postgres or kubernetes`,
				`log.level at outlane.yaml:3 is "wran"; want debug, info, warn or error; did you mean warn?`,
			},
		},
		"nonsense in values": {
			"worker: {batchBytes: 4 apples, pollInterval: soon, batchEvents: 0x10}\npartitions: 99999999999999999999\n",
			[]string{
				`worker.batchBytes at outlane.yaml:1 is "4 apples"; want a size such as 4MiB, 500kB or 1048576`,
				"worker.pollInterval at outlane.yaml:1 is soon; want a duration with a unit, such as 250ms, 10s or 2m",
				"worker.batchEvents at outlane.yaml:1 is 0x10; want a whole number",
				"partitions at outlane.yaml:2 is 99999999999999999999; want a whole number",
			},
		},
		"no YAML": {
			"worker: {id: a\nlease: }}\n",
			[]string{"no valid YAML at outlane.yaml:1: did not find expected ',' or '}'"},
		},
		"two documents": {
			"worker: {id: a}\n---\nworker: {id: b}\n",
			[]string{"a second document begins at outlane.yaml:2; keep one"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, c.text, nil)
			require.Equal(t, c.want, complaints(t, err))
		})
	}
}

func TestProblemsOfAllSourcesAreReportedTogether(t *testing.T) {
	t.Parallel()
	_, err := load(t, "worker: {bachEvents: 1}\n", []string{"OUTLANE_WORKER_FETCHERS=many"}, "--http-addr=8080")
	require.Equal(t, []string{
		`unknown field "bachEvents" at outlane.yaml:1; did you mean batchEvents?`,
		"worker.fetchers from OUTLANE_WORKER_FETCHERS is many; want a whole number",
		`http.addr from --http-addr is "8080"; want host:port or :port`,
	}, complaints(t, err))
}

func TestAliasesAndNulls(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, "lease: {duration: &d 3s, backend: ~}\nworker: {drainTimeout: *d, id: }\nroutes: [{topics: &s [a.>], stream: A}]\nstreams: [{name: A, subjects: *s}]\n", nil)
	require.NoError(t, err)
	require.Equal(t, 3*time.Second, cfg.Worker.DrainTimeout)
	require.Equal(t, "postgres", cfg.Lease.Backend)
	require.Equal(t, []string{"a.>"}, cfg.Streams[0].Subjects)
}

func TestByteSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "5": 5, "5B": 5, "1kB": 1000, "1KB": 1000, "4MiB": 4 << 20, "4 mib": 4 << 20, "1GB": 1e9, "2TiB": 2 << 40, "8191PiB": 8191 << 50,
	} {
		got, err := config.ParseByteSize(text)
		require.NoError(t, err, text)
		require.Equal(t, config.ByteSize(want), got, text)
		again, err := config.ParseByteSize(got.String())
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for _, text := range []string{"", "MiB", "-1", "1.5MiB", "4M", "4 Mi B", "8192PiB", "99999999999999999999", "1e3"} {
		_, err := config.ParseByteSize(text)
		require.Error(t, err, text)
	}
	require.Equal(t, "1536KiB", config.ByteSize(1536<<10).String())
	require.Equal(t, "1500kB", config.ByteSize(1500e3).String())
	require.Equal(t, "0B", config.ByteSize(0).String())
}
