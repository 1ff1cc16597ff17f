package publish_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/publish"
)

func TestPlanAndApply(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	js := natstest.JetStream(t, s.URL)
	b := connect(t, publish.Config{URL: s.URL})
	waitConnected(t, b)
	ctx := bounded(t)
	no := false
	specs := []publish.StreamSpec{
		{Name: "A", Subjects: []string{"a.>", "b"}, Replicas: 1, Storage: "file", DuplicateWindow: 3 * time.Minute},
		{Name: "B", Subjects: []string{"c"}, Storage: "memory", MaxAge: time.Hour, MaxBytes: 1 << 20, Retention: "interest", Discard: "new", AllowBatchPublish: &no},
	}
	changes, err := b.Plan(ctx, specs)
	require.NoError(t, err)
	want := []publish.Change{
		{Stream: "A", Action: publish.ActionCreate, Fields: []publish.FieldChange{
			{Field: "subjects", To: "a.> b"}, {Field: "replicas", To: "1"}, {Field: "storage", To: "file"},
			{Field: "duplicateWindow", To: "3m0s"}, {Field: "allowBatchPublish", To: "true"},
		}},
		{Stream: "B", Action: publish.ActionCreate, Fields: []publish.FieldChange{
			{Field: "subjects", To: "c"}, {Field: "storage", To: "memory"}, {Field: "maxAge", To: "1h0m0s"}, {Field: "maxBytes", To: "1048576"},
			{Field: "retention", To: "interest"}, {Field: "discard", To: "new"}, {Field: "allowBatchPublish", To: "false"},
		}},
	}
	require.Equal(t, want, changes)
	_, err = js.Stream(ctx, "A")
	require.ErrorIs(t, err, jetstream.ErrStreamNotFound, "a plan changes nothing")

	changes, err = b.Apply(ctx, specs, publish.ApplyOptions{})
	require.NoError(t, err)
	require.Equal(t, want, changes)
	config := func(name string) jetstream.StreamConfig {
		stream, err := js.Stream(ctx, name)
		require.NoError(t, err)
		return stream.CachedInfo().Config
	}
	a := config("A")
	require.Equal(t, []any{[]string{"a.>", "b"}, 3 * time.Minute, true, jetstream.FileStorage, jetstream.LimitsPolicy},
		[]any{a.Subjects, a.Duplicates, a.AllowBatchPublish, a.Storage, a.Retention})
	c := config("B")
	require.Equal(t, []any{time.Hour, int64(1 << 20), false, jetstream.MemoryStorage, jetstream.InterestPolicy, jetstream.DiscardNew},
		[]any{c.MaxAge, c.MaxBytes, c.AllowBatchPublish, c.Storage, c.Retention, c.Discard})

	changes, err = b.Apply(ctx, specs, publish.ApplyOptions{AllowUpdate: true})
	require.NoError(t, err)
	require.Equal(t, []publish.Change{{Stream: "A", Action: publish.ActionNone}, {Stream: "B", Action: publish.ActionNone}}, changes)
	require.Equal(t, a, config("A"))

	// What the configuration does not say stays as somebody else set it.
	a.Description, a.MaxMsgs, a.AllowDirect, a.Metadata["team"] = "by hand", 77, true, "x"
	_, err = js.UpdateStream(ctx, a)
	require.NoError(t, err)
	specs[0].Subjects = []string{"a.>", "b", "d"}
	specs[0].DuplicateWindow = time.Minute
	specs = append(specs, publish.StreamSpec{Name: "C", Subjects: []string{"e"}})
	changes, err = b.Apply(ctx, specs, publish.ApplyOptions{})
	var left *publish.UpdateNeededError
	require.ErrorAs(t, err, &left)
	require.ErrorContains(t, err, "A")
	differs := publish.Change{Stream: "A", Action: publish.ActionUpdate, Fields: []publish.FieldChange{
		{Field: "subjects", From: "a.> b", To: "a.> b d"}, {Field: "duplicateWindow", From: "3m0s", To: "1m0s"},
	}}
	require.Equal(t, []publish.Change{differs}, left.Changes)
	require.Len(t, changes, 3)
	require.Equal(t, 3*time.Minute, config("A").Duplicates, "never silently")
	require.Equal(t, []string{"e"}, config("C").Subjects, "the missing one was created")

	changes, err = b.Apply(ctx, specs, publish.ApplyOptions{AllowUpdate: true})
	require.NoError(t, err)
	require.Equal(t, differs, changes[0])
	now := config("A")
	require.Equal(t, []any{"by hand", int64(77), true, "x", time.Minute, []string{"a.>", "b", "d"}},
		[]any{now.Description, now.MaxMsgs, now.AllowDirect, now.Metadata["team"], now.Duplicates, now.Subjects})
}

// A setting that this program has never heard of survives an update.
func TestAnUpdateKeepsUnknownSettings(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	nc := natstest.Connect(t, s.URL)
	request := func(what string, body map[string]any) map[string]any {
		text, err := json.Marshal(body)
		require.NoError(t, err)
		m, err := nc.RequestWithContext(bounded(t), "$JS.API.STREAM."+what+".A", text)
		require.NoError(t, err)
		var answer map[string]any
		require.NoError(t, json.Unmarshal(m.Data, &answer))
		require.NotContains(t, answer, "error")
		return answer["config"].(map[string]any)
	}
	base := map[string]any{
		"name": "A", "subjects": []string{"a"}, "storage": "file", "retention": "limits", "discard": "old", "num_replicas": 1,
		"allow_msg_ttl": true, "subject_delete_marker_ttl": 5_000_000_000, "allow_rollup_hdrs": true, "deny_delete": true,
	}
	before := request("CREATE", base)
	b := connect(t, publish.Config{URL: s.URL})
	waitConnected(t, b)
	_, err := b.Apply(bounded(t), []publish.StreamSpec{{Name: "A", Subjects: []string{"a", "b"}}}, publish.ApplyOptions{AllowUpdate: true})
	require.NoError(t, err)
	after := request("INFO", nil)
	require.Equal(t, []any{"a", "b"}, after["subjects"])
	delete(before, "subjects")
	delete(after, "subjects")
	require.Equal(t, before, after)
}

func TestImpossibleChanges(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	js := natstest.JetStream(t, s.URL)
	b := connect(t, publish.Config{URL: s.URL})
	waitConnected(t, b)
	for i, c := range []struct {
		from, to publish.StreamSpec
		want     string
	}{
		{publish.StreamSpec{Storage: "file"}, publish.StreamSpec{Storage: "memory"}, "storage cannot change from file to memory"},
		{publish.StreamSpec{}, publish.StreamSpec{Retention: "workqueue"}, "retention cannot change from limits to workqueue"},
		{publish.StreamSpec{Retention: "workqueue"}, publish.StreamSpec{Retention: "interest"}, "retention cannot change from workqueue to interest"},
	} {
		name := string(rune('A' + i))
		c.from.Name, c.to.Name, c.from.Subjects, c.to.Subjects = name, name, []string{name}, []string{name, name + ".x"}
		_, err := b.Apply(bounded(t), []publish.StreamSpec{c.from}, publish.ApplyOptions{})
		require.NoError(t, err)
		missing := publish.StreamSpec{Name: "MISSING", Subjects: []string{"missing"}}
		changes, err := b.Apply(bounded(t), []publish.StreamSpec{missing, c.to}, publish.ApplyOptions{AllowUpdate: true})
		require.ErrorContains(t, err, name+": "+c.want)
		require.Equal(t, publish.ActionImpossible, changes[1].Action)
		_, err = js.Stream(bounded(t), "MISSING")
		require.ErrorIs(t, err, jetstream.ErrStreamNotFound, "nothing was done")
		// The server is of the same opinion.
		stream, err := js.Stream(bounded(t), name)
		require.NoError(t, err)
		config := stream.CachedInfo().Config
		config.Retention = map[string]jetstream.RetentionPolicy{"workqueue": jetstream.WorkQueuePolicy, "interest": jetstream.InterestPolicy}[c.to.Retention]
		if c.to.Storage == "memory" {
			config.Storage = jetstream.MemoryStorage
		}
		_, err = js.UpdateStream(bounded(t), config)
		require.ErrorContains(t, err, "can not change")
	}
	_, err := b.Apply(bounded(t), []publish.StreamSpec{{Name: "R", Subjects: []string{"r"}, Replicas: 3}}, publish.ApplyOptions{})
	require.ErrorContains(t, err, "create stream R", "one server cannot make three copies")
}

func TestSpecsThatCannotBe(t *testing.T) {
	t.Parallel()
	good := func(name, subject string) publish.StreamSpec {
		return publish.StreamSpec{Name: name, Subjects: []string{subject}}
	}
	with := func(change func(*publish.StreamSpec)) []publish.StreamSpec {
		s := good("A", "a")
		change(&s)
		return []publish.StreamSpec{s}
	}
	b := connect(t, publish.Config{URL: single()})
	waitConnected(t, b)
	for want, specs := range map[string][]publish.StreamSpec{
		"name":                    with(func(s *publish.StreamSpec) { s.Name = "a.b" }),
		"there are none":          with(func(s *publish.StreamSpec) { s.Subjects = nil }),
		"empty token":             with(func(s *publish.StreamSpec) { s.Subjects = []string{"a..b"} }),
		`"a.*" and "a.b" overlap`: with(func(s *publish.StreamSpec) { s.Subjects = []string{"a.*", "a.b"} }),
		"replicas":                with(func(s *publish.StreamSpec) { s.Replicas = 6 }),
		"storage":                 with(func(s *publish.StreamSpec) { s.Storage = "tape" }),
		"retention":               with(func(s *publish.StreamSpec) { s.Retention = "ever" }),
		"discard":                 with(func(s *publish.StreamSpec) { s.Discard = "all" }),
		"negative":                with(func(s *publish.StreamSpec) { s.MaxBytes = -1 }),
		"longer than maxAge":      with(func(s *publish.StreamSpec) { s.MaxAge, s.DuplicateWindow = time.Minute, time.Hour }),
		"twice":                   {good("A", "a"), good("A", "b")},
		`"A" and "B"`:             {good("A", "a.>"), good("B", "*.b")},
	} {
		_, err := b.Plan(bounded(t), specs)
		require.ErrorContains(t, err, want)
		_, err = b.Apply(bounded(t), specs, publish.ApplyOptions{})
		require.ErrorContains(t, err, want)
	}
	for _, pair := range []string{"a b", "a.b a.c", "a a.b", "a.* b.*", "a.> a", "*.a *.b"} {
		x, y, _ := strings.Cut(pair, " ")
		_, err := b.Plan(bounded(t), []publish.StreamSpec{good("X", x), good("Y", y)})
		require.NoError(t, err, pair)
	}
}
