package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/store"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	env := []string{"OUTLANE_DATABASE_URL=" + pgtest.Database(t), `OUTLANE_DATABASE_SCHEMA=Out "box"`}

	r := outlane(t, env, "migrate", "status")
	require.Equal(t, 1, r.code, "everything is pending")
	require.Contains(t, r.out, "pending")
	r = outlane(t, env, "status")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.complaint(t), "run outlane migrate up")

	r = outlane(t, env, "migrate", "up", "--partitions", "16", "--partition-key-field=account")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "applied 00001_outbox")
	require.Contains(t, r.out, "16 partitions by account")

	r = outlane(t, append(env, "OUTLANE_PARTITIONS=8"), "migrate", "up")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.complaint(t), "partitions: the database was set up with 16, not 8; leave partitions out (it came from env OUTLANE_PARTITIONS)")
	r = outlane(t, env, "migrate", "up", "--partition-key-field=team_id")
	require.Equal(t, 2, r.code)
	require.Contains(t, r.complaint(t), "leave partitionKeyField out (it came from flag --partition-key-field)")

	r = outlane(t, env, "migrate", "up", "-o", "json")
	require.Zero(t, r.code, r.err)
	var up struct {
		Applied    []any
		Version    int64
		Partitions int
		Routes     int
		KeyField   string `json:"partition_key_field"`
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &up))
	require.Empty(t, up.Applied)
	require.Equal(t, 16, up.Partitions)
	require.Equal(t, "account", up.KeyField)

	r = outlane(t, env, "migrate", "status", "-o", "json")
	require.Zero(t, r.code, r.err)
	r = outlane(t, env, "migrate", "version", "-o", "json")
	require.JSONEq(t, fmt.Sprintf(`{"version": %d, "newest": %d}`, up.Version, up.Version), r.out)

	r = outlane(t, env, "migrate", "down", "--yes")
	require.Zero(t, r.code, r.err)
	require.Equal(t, 1, outlane(t, env, "migrate", "status").code)
}

func TestMigrateGrants(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t, 4)
	env := []string{"OUTLANE_DATABASE_URL=" + url}
	role, roleURL := pgtest.Role(t, url)
	r := outlane(t, env, "migrate", "grants", "--producer", role)
	require.Zero(t, r.code, r.err)
	pgtest.Exec(t, roleURL, "INSERT INTO outbox_events (id, stream, topic, payload) VALUES ('e', 'S', 't', '{}')")

	r = outlane(t, env, "migrate", "grants", "--worker", "nobody-has-this-name")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.complaint(t), "nobody-has-this-name")
}

func TestMigrateUpStoresRoutes(t *testing.T) {
	t.Parallel()
	url := pgtest.Migrated(t, 4)
	env := []string{"OUTLANE_DATABASE_URL=" + url, writeConfig(t, "routes:\n- {topics: ['a.>', b], stream: A}\n- {topics: ['>'], stream: REST}\n")}
	r := outlane(t, env, "migrate", "up")
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, "3 topic patterns routed")
	pgtest.Exec(t, url, "INSERT INTO outbox_events (topic, payload) VALUES ('a.x', '{}'), ('c', '{}')")
	var streams []string
	require.NoError(t, pgtest.Connect(t, url).QueryRow(context.Background(), "SELECT array_agg(stream ORDER BY seq) FROM outbox_events").Scan(&streams))
	require.Equal(t, []string{"A", "REST"}, streams)

	r = outlane(t, env[:1], "migrate", "up")
	require.Contains(t, r.out, "3 topic patterns routed", "a configuration without routes says nothing about them")
	r = outlane(t, []string{env[0], writeConfig(t, "routes: []\n")}, "migrate", "up")
	require.Contains(t, r.out, "0 topic patterns routed")
}

// outbox is a database with events of one lane, of which the test has claimed the partition.
type outbox struct {
	env   []string
	url   string
	store *store.Store
	claim store.Claim
	lane  store.Lane
}

// newOutbox makes a database with one partition and n events, e0 to e(n-1), of the key k.
func newOutbox(t *testing.T, n int) outbox {
	t.Helper()
	url := pgtest.Migrated(t, 1)
	pgtest.Exec(t, url, fmt.Sprintf(`INSERT INTO outbox_events (id, stream, topic, payload, created_at)
		SELECT 'e' || i, 'PAY', 'pay.out', '{"team_id": "k"}', now() - interval '1 hour' FROM generate_series(0, %d) i`, n-1))
	s, err := store.Open(store.Config{URL: url})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	claims, err := s.Claim(context.Background(), "me", []int{0})
	require.NoError(t, err)
	return outbox{env: []string{"OUTLANE_DATABASE_URL=" + url}, url: url, store: s, claim: claims[0], lane: store.Lane{Stream: "PAY"}}
}

// kill makes a dead letter of the first event that is fetched after seq after, and returns it.
func (o outbox) kill(t *testing.T, after int64, block bool) store.Event {
	t.Helper()
	events, _, err := o.store.Fetch(context.Background(), o.lane, after, 1<<40, nil, 1, 1<<20)
	require.NoError(t, err)
	require.NotEmpty(t, events)
	require.NoError(t, o.store.DeadLetter(context.Background(), store.DeadLetter{
		Event: events[0], Epoch: o.claim.Epoch, Reason: "too_large", Error: "message is too large\nby far", Attempts: 5, Block: block,
	}))
	return events[0]
}

func TestDeadLetterCommands(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, 5)
	first := o.kill(t, 0, true)
	second := o.kill(t, first.Seq, false)
	third := o.kill(t, second.Seq, false)

	r := outlane(t, o.env, "dlq", "list")
	require.Zero(t, r.code, r.err)
	require.Regexp(t, `(?m)^e0 +PAY/0 +pay.out +k +.* 5 +0 +blocks its key +too_large +message is too large by far$`, r.out)

	var list struct {
		DeadLetters []deadLetterView `json:"dead_letters"`
		More        bool
	}
	r = outlane(t, o.env, "dlq", "list", "-o", "json", "--limit=2")
	require.NoError(t, json.Unmarshal([]byte(r.out), &list))
	require.True(t, list.More)
	require.Len(t, list.DeadLetters, 2)
	require.Equal(t, "e0", list.DeadLetters[0].ID)
	require.True(t, list.DeadLetters[0].Blocks)

	for _, args := range [][]string{{"--stream=OTHER"}, {"--topic=other"}, {"--key=other"}, {"e9"}} {
		r = outlane(t, o.env, append([]string{"dlq", "list"}, args...)...)
		require.Equal(t, "no dead letters\n", r.out, args)
	}

	r = outlane(t, o.env, "dlq", "retry", "--all")
	require.Equal(t, 2, r.code)
	require.Equal(t, "outlane: 3 dead letters would be retried; give --yes to do it", r.complaint(t))

	r = outlane(t, o.env, "dlq", "retry", "e0", "e9")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.out, "e9: no such dead letter")
	require.Contains(t, r.out, "1 dead letters retried")
	r = outlane(t, o.env, "dlq", "skip", "e0", "-o", "json")
	require.Equal(t, 1, r.code)
	require.Contains(t, r.out, store.ErrResolved.Error())

	r = outlane(t, o.env, "dlq", "skip", "--key=k", "--yes", "-o", "json")
	require.Zero(t, r.code, r.err)
	require.JSONEq(t, `{"skipped": [{"id": "`+second.ID+`", "released": 0}, {"id": "`+third.ID+`", "released": 0}]}`, r.out)
	require.Equal(t, "no dead letters\n", outlane(t, o.env, "dlq", "list").out)
	require.Contains(t, outlane(t, o.env, "dlq", "list", "--resolved").out, "skipped")
}

func TestStatus(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, 4)
	o.kill(t, o.kill(t, 0, true).Seq, false)

	look := func() (r report) {
		t.Helper()
		out := outlane(t, o.env, "status", "-o", "json")
		require.Zero(t, out.code, out.err)
		require.NoError(t, json.Unmarshal([]byte(out.out), &r))
		return r
	}
	r := look()
	require.Empty(t, r.Members)
	require.Equal(t, []int{0}, r.Partitions.Unowned)
	require.Equal(t, "no_owner", r.Stuck[0].Reason)
	require.Equal(t, "dead_letter", r.Stuck[1].Reason)
	require.Len(t, r.Stuck, 2, "a dead letter that blocks nothing is not stuck")
	require.Len(t, r.Lanes, 1)
	require.EqualValues(t, 2, r.Lanes[0].Waiting)
	require.EqualValues(t, 2, r.Lanes[0].DeadLetters)
	require.GreaterOrEqual(t, r.Lanes[0].OldestSeconds, 3600.0)

	pgtest.Exec(t, o.url, "INSERT INTO outlane_members (id, duration) VALUES ('me', '1 hour'), ('gone', '0 s')")
	stuck := store.LaneState{Lane: o.lane, Member: "me", Epoch: o.claim.Epoch, Reason: "stream_missing", Detail: "no stream PAY", Since: time.Now().Add(-time.Minute)}
	require.NoError(t, o.store.SaveLaneStates(context.Background(), []store.LaneState{stuck}))
	r = look()
	require.Empty(t, r.Partitions.Unowned)
	require.Equal(t, "stream_missing", r.Stuck[0].Reason)
	require.Equal(t, "me", r.Stuck[0].Owner)
	require.Equal(t, "PAY/0", r.Stuck[0].Name)
	require.WithinDuration(t, stuck.Since, *r.Stuck[0].Since, time.Second)
	require.Equal(t, 1, r.Streams[0].StuckLanes)

	text := outlane(t, o.env, "status")
	require.Zero(t, text.code, text.err)
	require.Regexp(t, `(?m)^me +alive +1 +\d`, text.out)
	require.Regexp(t, `(?m)^gone +silent +0 +\d`, text.out)
	require.Regexp(t, `(?m)^PAY +2 +1h0m +1 +1 +2 +0$`, text.out)
	require.Regexp(t, `(?m)^PAY/0 +me +2 +1h0m +2 +0$`, text.out)
	require.Regexp(t, `(?m)^lane PAY/0 +\S+ \(1m\d+s\) +stream_missing +no stream PAY$`, text.out)

	pgtest.Exec(t, o.url, "UPDATE outlane_members SET renewed_at = now() - interval '2 hours' WHERE id = 'me'")
	r = look()
	require.Equal(t, "no_owner", r.Stuck[0].Reason)
	require.Equal(t, "key", r.Stuck[1].What, "what a silent owner said no longer counts")
	pgtest.Exec(t, o.url, "UPDATE outlane_members SET renewed_at = now() WHERE id = 'me'")

	// A new claim makes what was said before it stale, also for the same owner.
	_, err := o.store.Claim(context.Background(), "me", []int{0})
	require.NoError(t, err)
	for _, s := range look().Stuck {
		require.NotEqual(t, "lane", s.What)
	}

	pgtest.Exec(t, o.url, "ALTER SEQUENCE outbox_events_seq CACHE 20")
	r = look()
	require.Equal(t, "sequence_cache", r.Stuck[len(r.Stuck)-1].Reason)
	require.Contains(t, r.Stuck[len(r.Stuck)-1].Detail, "CACHE 1")
}

func TestStatusWatch(t *testing.T) {
	t.Parallel()
	o := newOutbox(t, 1)
	p := start(t, o.env, "status", "--watch", "--every=10ms", "-o", "json")
	require.Eventually(t, func() bool { return len(p.lines()) > 2 }, ceiling, 10*time.Millisecond)
	require.Zero(t, p.stop(t, os.Interrupt))
	var r report
	require.NoError(t, json.Unmarshal([]byte(p.lines()[1]), &r))
	require.Equal(t, 1, r.Partitions.Count)

	p = start(t, []string{"OUTLANE_DATABASE_URL=postgres://u:hunter2@127.0.0.1:1/d"}, "status", "--watch", "--every=10ms")
	require.Eventually(t, func() bool { return strings.Count(strings.Join(p.lines(), "\n"), "connection refused") > 1 }, ceiling, 10*time.Millisecond,
		"a look that fails is followed by others")
	require.Zero(t, p.stop(t, os.Interrupt))
	require.NotContains(t, strings.Join(p.lines(), "\n"), "hunter2")
}
