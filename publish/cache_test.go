package publish

import (
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natsserver"
	"github.com/outlane/outlane/internal/natstest"
)

// age makes what a Broker knows of a stream older.
func age(b *Broker, stream string, by time.Duration) {
	e := b.cache.entry(stream)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.info.at = e.info.at.Add(-by)
}

func TestAStreamIsLookedAtAgainAfterAWhile(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	js := natstest.JetStream(t, s.URL)
	config := jetstream.StreamConfig{Name: "S", Subjects: []string{"a"}}
	_, err := js.CreateStream(t.Context(), config)
	require.NoError(t, err)
	b, err := Connect(Config{URL: s.URL})
	require.NoError(t, err)
	defer b.Close()
	require.NoError(t, b.WaitConnected(t.Context()))
	send := func() string {
		require.Nil(t, b.Publish(t.Context(), "S", []Message{{ID: "1", Topic: "a"}, {ID: "2", Topic: "a"}}).Err)
		return b.Mode("S")
	}
	require.Equal(t, ModeSync, send())
	config.AllowBatchPublish = true
	_, err = js.UpdateStream(t.Context(), config)
	require.NoError(t, err)
	require.Equal(t, ModeSync, send())
	age(b, "S", refreshAfter)
	require.Equal(t, ModeFast, send())
}

func TestQuestionsThatAreNotAllowed(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, func(o *natsserver.Options) {
		o.Configure = func(o *server.Options) {
			o.Users = []*server.User{
				{Username: "admin", Password: "admin-password"},
				{Username: "outlane", Password: "some-password", Permissions: &server.Permissions{
					Publish: &server.SubjectPermission{Deny: []string{"$JS.API.>"}},
				}},
			}
		}
	})
	js := natstest.JetStream(t, strings.Replace(s.URL, "//", "//admin:admin-password@", 1))
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"a"}})
	require.NoError(t, err)
	b, err := Connect(Config{URL: s.URL, Username: "outlane", Password: "some-password", AckTimeout: 300 * time.Millisecond})
	require.NoError(t, err)
	defer b.Close()
	require.NoError(t, b.WaitConnected(t.Context()))
	denied := func(err error) {
		t.Helper()
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, []any{Outage, ReasonPermission}, []any{e.Kind, e.Reason}, "%v", e)
	}
	denied(b.Publish(t.Context(), "S", []Message{{ID: "1", Topic: "a"}}).Err)
	denied(b.Preflight(t.Context(), "S", nil))
	_, err = b.StreamForTopic(t.Context(), "a")
	denied(err)
	_, err = b.LastSeq(t.Context(), "S")
	denied(err)

	// What is known is good enough while the question fails.
	e := b.cache.entry("S")
	e.mu.Lock()
	e.info = newStreamInfo(stream.CachedInfo().Config, time.Now().Add(-2*refreshAfter))
	e.mu.Unlock()
	require.Nil(t, b.Publish(t.Context(), "S", []Message{{ID: "1", Topic: "a"}}).Err)
}

func TestTopicsAreForgotten(t *testing.T) {
	t.Parallel()
	var c topicCache
	require.Empty(t, c.get("a"))
	c.put("a", "S")
	require.Equal(t, "S", c.get("a"))
	c.forget("a")
	require.Empty(t, c.get("a"))
	for i := range 3 * maxTopics {
		c.put(strings.Repeat("x", i%200)+string(rune(i)), "S")
		require.LessOrEqual(t, len(c.streams), maxTopics)
	}
	c.put("old", "S")
	c.streams["old"] = topicEntry{"S", time.Now().Add(-refreshAfter)}
	require.Empty(t, c.get("old"))
}

func TestDeniedSubjectsAreBounded(t *testing.T) {
	t.Parallel()
	b := &Broker{denied: make(map[string]time.Time)}
	for i := range 3 * maxDenied {
		require.True(t, b.noteDenied(&apiError{Description: `nats: Permissions Violation for Publish to "a` + string(rune(i)) + `"`}))
		require.LessOrEqual(t, len(b.denied), maxDenied)
	}
	require.False(t, b.noteDenied(errNoAnswer))
	before := time.Now().Add(-time.Second)
	same := &apiError{Description: `Permissions Violation for Publish to "b"`}
	require.True(t, b.noteDenied(same))
	require.True(t, b.wasDenied("b", before))
	b.denied["b"] = before.Add(-time.Second)
	require.True(t, b.noteDenied(same), "said before")
	require.False(t, b.wasDenied("b", before))
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"2.14.0": true, "2.15.3": true, "3.0.0": true, "2.14.0-RC.1": true, "2.13.9": false, "1.99.0": false, "": false, "x": false,
	} {
		require.Equal(t, want, versionAtLeast(version, 2, 14), version)
	}
}
