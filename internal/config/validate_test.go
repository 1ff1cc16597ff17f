package config_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatSingleRangesDoNotSay(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"partitionKeyField: ''\n":                               {"partitionKeyField at outlane.yaml:1 is empty; name a field of the payload"},
		"worker: {batchBytes: 65MiB}\n":                         {"worker.batchBytes at outlane.yaml:1 is 65MiB, above worker.memory of 64MiB; lower it or raise the memory"},
		"worker: {id: 'a b'}\n":                                 {"worker.id at outlane.yaml:1 has a space, a control character or more than 200 bytes; use letters, digits, dots and dashes"},
		"database: {schema: ''}\n":                              {"database.schema at outlane.yaml:1 is empty; name a schema, such as public"},
		"database: {schema: pg_x}\n":                            {`database.schema at outlane.yaml:1 is "pg_x"; Postgres keeps names that begin with pg_ for itself`},
		"database: {schema: " + strings.Repeat("a", 64) + "}\n": {"database.schema at outlane.yaml:1 is longer than 63 bytes; Postgres would cut it"},
		"database: {url: localhost}\n":                          {"database.url at outlane.yaml:1 is no Postgres URL; write postgres://user@host:5432/database"},
		"nats: {url: 'nats://a,,b'}\n":                          {"nats.url at outlane.yaml:1 is no NATS URL; write nats://host:4222, and commas between several"},
		"nats: {url: 'http://a'}\n":                             {"nats.url at outlane.yaml:1 is no NATS URL; write nats://host:4222, and commas between several"},
		"nats: {inboxPrefix: 'a.*'}\n":                          {`nats.inboxPrefix at outlane.yaml:1 is "a.*"; want a subject without wildcards, such as _INBOX_outlane`},
		"http: {addr: ':http'}\n":                               {`http.addr at outlane.yaml:1 is ":http"; want host:port or :port`},
		"http: {addr: ':65536'}\n":                              {`http.addr at outlane.yaml:1 is ":65536"; want host:port or :port`},
		"http: {addr: ''}\n":                                    {`http.addr at outlane.yaml:1 is ""; want host:port or :port`},
		"nats: {user: a, credsFile: b}\n":                       {"nats.credsFile at outlane.yaml:1 is set, and nats.user too; keep one way to log in"},
		"nats: {password: a}\n":                                 {"nats.password at outlane.yaml:1 is set without nats.user; set both"},
		"nats: {tls: {key: a}}\n":                               {"nats.tls.key at outlane.yaml:1 is set without nats.tls.cert; set both"},
		"lease: {instance: ''}\n":                               {"lease.instance at outlane.yaml:1 is empty, has a control character or more than 200 bytes; use the release's name"},
		"lease: {backend: kubernetes, namespace: a_b}\n":        {`lease.namespace at outlane.yaml:1 is "a_b"; a namespace has small letters, digits and dashes`},
		"lease: {backend: kubernetes, podName: a}\n":            {"lease.podName at outlane.yaml:1 is set without lease.podUid; set both, from the downward API"},
		"lease: {backend: kubernetes, podUid: a}\n":             {"lease.podUid at outlane.yaml:1 is set without lease.podName; set both, from the downward API"},
		"lease: {kubeconfig: a}\n":                              {"lease.kubeconfig at outlane.yaml:1 is set, and lease.backend is postgres; set the backend to kubernetes, or leave it out"},
		"lease: {backend: etcd}\n":                              {`lease.backend at outlane.yaml:1 is "etcd"; want postgres or kubernetes`},
		"nats: {tls: {cert: a}}\n":                              {"nats.tls.cert at outlane.yaml:1 is set without nats.tls.key; set both"},
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, text, nil)
			require.Equal(t, want, complaints(t, err))
		})
	}
}

func TestRoutesAndStreams(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing in them": {
			"routes:\n- {}\nstreams:\n- {replicas: 3}\n",
			[]string{
				"routes[0] at outlane.yaml:2 has no topics; add it", "routes[0] at outlane.yaml:2 has no stream; add it",
				"streams[0] at outlane.yaml:4 has no name; add it", "streams[0] at outlane.yaml:4 has no subjects; add it",
			},
		},
		"empty lists and names": {
			"routes:\n- {topics: [], stream: ''}\nstreams:\n- {name: a.b, subjects: []}\n",
			[]string{
				`routes[0].stream at outlane.yaml:2 is ""; a stream's name has no space, dot, *, >, / or \`,
				"routes[0].topics at outlane.yaml:2 is empty; name at least one",
				`streams[0].name at outlane.yaml:4 is "a.b"; a stream's name has no space, dot, *, >, / or \`,
				"streams[0].subjects at outlane.yaml:4 is empty; name at least one",
			},
		},
		"patterns": {
			"routes:\n- {topics: ['a..b'], stream: A}\n- {topics: ['>.a'], stream: A}\n- {topics: ['pay*'], stream: A}\n- {topics: ['a b'], stream: A}\n- {topics: [''], stream: A}\n",
			[]string{
				`routes[0].topics at outlane.yaml:2 has "a..b", which has an empty part between dots; remove it`,
				`routes[1].topics at outlane.yaml:3 has ">.a", which has > before its end; it can only be the last part`,
				`routes[2].topics at outlane.yaml:4 has "pay*", which has a wildcard inside "pay*"; * and > stand for whole parts between dots`,
				`routes[3].topics at outlane.yaml:5 has "a b", which has a space; remove it`,
				`routes[4].topics at outlane.yaml:6 has "", which is empty; want a pattern such as payout.>`,
			},
		},
		"one problem for each field": {
			"routes:\n- {topics: ['a..b', '>.a'], stream: A}\n",
			[]string{`routes[0].topics at outlane.yaml:2 has "a..b", which has an empty part between dots; remove it`},
		},
		"a route that never counts": {
			"routes:\n- {topics: ['a.*.c', 'b.>'], stream: A}\n- {topics: ['b.c'], stream: B}\n",
			[]string{`routes[1].topics at outlane.yaml:3 has "b.c", which never counts: "b.>" in routes[0] comes first; move it up or remove it`},
		},
		"two orders for a stream": {
			"routes:\n- {topics: [a], stream: A, order: sequence}\n- {topics: [b], stream: B}\n- {topics: [c], stream: A}\n- {topics: [d], stream: A, order: commit}\n",
			[]string{
				"routes[2].order is commit, but routes[0] to A has sequence; a stream has one order",
				"routes[3].order at outlane.yaml:5 is commit, but routes[0] to A has sequence; a stream has one order",
			},
		},
		"a route to a stream without its topic": {
			"routes:\n- {topics: ['a.>'], stream: A}\nstreams:\n- {name: A, subjects: [b.>, c]}\n",
			[]string{`routes[0].topics at outlane.yaml:2 has "a.>", but A stores only b.>, c; add it to the stream's subjects`},
		},
		"streams that overlap": {
			"streams:\n- {name: A, subjects: ['a.*']}\n- {name: B, subjects: ['*.b']}\n- {name: A, subjects: [c]}\n",
			[]string{
				`streams[1].subjects at outlane.yaml:3 has "*.b", which overlaps "a.*" of streams[0]; a subject can be in one stream only`,
				"streams[2].name at outlane.yaml:4 is A, as that of streams[0]; keep one",
			},
		},
		"a duplicate window that a resend outlasts": {
			"lease: {duration: 20s}\nstreams:\n- {name: A, subjects: [a], duplicateWindow: 89s}\n- {name: B, subjects: [b], duplicateWindow: 90s}\n",
			[]string{"streams[0].duplicateWindow at outlane.yaml:3 is 1m29s; want at least 1m30s, which is lease.duration, 60s and twice nats.ackTimeout together"},
		},
		"numbers that do not go together": {
			"streams:\n- {name: A, subjects: [a], replicas: 2, maxAge: 1m, duplicateWindow: 2m}\n",
			[]string{
				"streams[0].replicas at outlane.yaml:2 is 2; want 1, 3 or 5",
				"streams[0].duplicateWindow at outlane.yaml:2 is 2m, above maxAge of 1m; lower it",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, c.text, nil)
			require.Equal(t, c.want, complaints(t, err))
		})
	}
}

func TestRoutesThatAreFine(t *testing.T) {
	t.Parallel()
	_, err := load(t, `
routes:
  - {topics: [a.b.c], stream: A}
  - {topics: ["a.*.c"], stream: A}
  - {topics: ["a.>"], stream: A}
  - {topics: ["a"], stream: A}
  - {topics: [">"], stream: ELSEWHERE}
streams:
  - {name: A, subjects: [a, "a.*", "a.*.>"]}
  - {name: B, subjects: ["b.*", "b.*.c", b]}
`, nil)
	require.NoError(t, err)
}
