package publish_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natsserver"
	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/publish"
)

// states collects what OnState says.
type states struct {
	mu  sync.Mutex
	all []string
}

func (s *states) add(connected bool, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, fmt.Sprintf("%v %s", connected, reason))
}

func (s *states) get() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.all...)
}

// logBuffer is a log that many goroutines may write to.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func TestConnectingGoesOnForEver(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	s.Stop()
	var told states
	var log logBuffer
	b := connect(t, publish.Config{URL: s.URL, OnState: told.add, Logger: log.logger()})
	connected, reason := b.Connected()
	require.False(t, connected)
	require.NotEmpty(t, reason)
	require.Eventually(t, func() bool { return len(told.get()) == 1 }, ceiling, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
	defer cancel()
	err := b.WaitConnected(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "connection refused")

	res := b.Publish(t.Context(), "S", []publish.Message{{ID: "1", Topic: "a"}})
	requireErr(t, res.Err, publish.Outage, publish.ReasonNotConnected, false)
	require.ErrorContains(t, res.Err, "connection refused")
	_, err = b.StreamForTopic(t.Context(), "a")
	requireOutageErr(t, err, publish.ReasonNotConnected)
	requireOutageErr(t, b.Preflight(t.Context(), "S", nil), publish.ReasonNotConnected)
	_, err = b.JetStream()
	requireOutageErr(t, err, publish.ReasonNotConnected)
	_, err = b.Plan(t.Context(), nil)
	requireOutageErr(t, err, publish.ReasonNotConnected)

	for range 2 {
		s.Restart(t)
		waitConnected(t, b)
		connected, reason = b.Connected()
		require.True(t, connected)
		require.Empty(t, reason)
		_, err = b.JetStream()
		require.NoError(t, err)
		s.Stop()
		require.Eventually(t, func() bool { ok, _ := b.Connected(); return !ok }, ceiling, time.Millisecond)
	}
	b.Close()
	b.Close()
	require.ErrorContains(t, b.WaitConnected(t.Context()), "closed")
	requireErr(t, b.Publish(t.Context(), "S", []publish.Message{{ID: "1", Topic: "a"}}).Err, publish.Outage, publish.ReasonNotConnected, false)

	got := told.get()
	require.Equal(t, "false connection refused", got[0])
	require.Equal(t, "false the broker is closed", got[len(got)-1])
	ups := 0
	for i, state := range got {
		if state == "true " {
			ups++
		}
		require.False(t, i > 0 && state == got[i-1], "told twice: %v", got)
	}
	require.Equal(t, 2, ups)
	require.LessOrEqual(t, strings.Count(log.String(), "\n"), len(got), "changes are logged, not attempts:\n%s", log.String())
}

func requireOutageErr(t *testing.T, err error, reason string) {
	t.Helper()
	var e *publish.Error
	require.ErrorAs(t, err, &e)
	requireErr(t, e, publish.Outage, reason, false)
}

func TestClosingEndsCalls(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, v variant) {
		p := newProxy(t, single())
		e := newEnvAt(t, v, single(), publish.Config{URL: p.url, AckTimeout: ceiling})
		e.publish(e.messages(1, 2))
		p.Silence(true)
		done := make(chan publish.Result)
		go func() { done <- e.Publish(t.Context(), e.stream, e.messages(3, 10)) }()
		require.Eventually(t, func() bool { return len(e.stored()) > 2 }, ceiling, time.Millisecond)
		e.Close()
		requireErr(t, (<-done).Err, publish.Outage, publish.ReasonNotConnected, false)
	})
}

func TestAConfigurationThatCannotWork(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	missing := filepath.Join(dir, "missing")
	for name, c := range map[string]struct {
		cfg  publish.Config
		want string
	}{
		"no address":     {publish.Config{URL: " "}, "empty"},
		"malformed":      {publish.Config{URL: "nats://user:hidden-secret@host:port:7"}, "malformed"},
		"no host":        {publish.Config{URL: "nats://"}, "malformed"},
		"other scheme":   {publish.Config{URL: "http://user:hidden-secret@host"}, "scheme"},
		"one of two bad": {publish.Config{URL: "nats://a:1,nats://user:hidden secret@b c"}, "malformed"},
		"two ways":       {publish.Config{URL: "a", Username: "u", Token: "hidden-secret"}, "only one"},
		"cert alone":     {publish.Config{URL: "a", TLSCertFile: "x"}, "need each other"},
		"no creds":       {publish.Config{URL: "a", CredsFile: missing}, missing},
		"no nkey":        {publish.Config{URL: "a", NKeyFile: missing}, missing},
		"bad nkey":       {publish.Config{URL: "a", NKeyFile: file("nkey", "SUhidden-secret")}, "no usable seed"},
		"no token":       {publish.Config{URL: "a", TokenFile: missing}, missing},
		"no password":    {publish.Config{URL: "a", Username: "u", PasswordFile: missing}, missing},
		"bad inbox":      {publish.Config{URL: "a", InboxPrefix: "a..b"}, "inbox prefix"},
	} {
		_, err := publish.Connect(c.cfg)
		require.ErrorContains(t, err, c.want, name)
		require.NotContains(t, err.Error(), "hidden", name)
	}
	for name, cfg := range map[string]publish.Config{
		"no authorities":  {URL: "a", TLSCAFile: missing},
		"bad authorities": {URL: "a", TLSCAFile: file("ca", "nothing")},
		"no certificate":  {URL: "a", TLSCertFile: missing, TLSKeyFile: missing},
	} {
		b := connect(t, cfg)
		require.Eventually(t, func() bool { _, reason := b.Connected(); return strings.Contains(reason, "TLS") }, ceiling, time.Millisecond, name)
	}
}

// auth is a way to identify oneself by a file that is replaced.
type auth struct {
	name   string
	config func(file string) publish.Config
	// fresh makes the contents of the file, and the server that takes it.
	fresh func(t *testing.T, n int) (text string, accept func(*server.Options))
}

var auths = []auth{
	{
		name:   "password",
		config: func(f string) publish.Config { return publish.Config{Username: "outlane", PasswordFile: f} },
		fresh: func(_ *testing.T, n int) (string, func(*server.Options)) {
			password := fmt.Sprintf("pass-word-%d", n)
			return password + "\n", func(o *server.Options) { o.Username, o.Password = "outlane", password }
		},
	}, {
		name:   "token",
		config: func(f string) publish.Config { return publish.Config{TokenFile: f} },
		fresh: func(_ *testing.T, n int) (string, func(*server.Options)) {
			token := fmt.Sprintf("to-ken-%d", n)
			return token, func(o *server.Options) { o.Authorization = token }
		},
	}, {
		name:   "nkey",
		config: func(f string) publish.Config { return publish.Config{NKeyFile: f} },
		fresh: func(t *testing.T, _ int) (string, func(*server.Options)) {
			pair, err := nkeys.CreateUser()
			require.NoError(t, err)
			seed, err := pair.Seed()
			require.NoError(t, err)
			public, err := pair.PublicKey()
			require.NoError(t, err)
			return string(seed), func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} }
		},
	},
}

func TestRotatedCredentialsArePickedUp(t *testing.T) {
	t.Parallel()
	for _, a := range auths {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "secret")
			text, accept := a.fresh(t, 1)
			secrets := []string{strings.TrimSpace(text)}
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			s := natstest.Start(t, func(o *natsserver.Options) { o.Configure = accept })
			var log logBuffer
			var told states
			cfg := a.config(file)
			cfg.URL, cfg.Logger, cfg.OnState = s.URL, log.logger(), told.add
			b := connect(t, cfg)
			waitConnected(t, b)

			text, accept = a.fresh(t, 2)
			secrets = append(secrets, strings.TrimSpace(text))
			require.NoError(t, s.Reload(accept)) // the server throws us out
			require.Eventually(t, func() bool {
				ok, reason := b.Connected()
				return !ok && strings.Contains(strings.ToLower(reason), "auth")
			}, ceiling, time.Millisecond)
			require.Eventually(t, func() bool { return s.NATS().NumClients() == 0 }, ceiling, time.Millisecond)
			require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
			waitConnected(t, b)
			for _, text := range append(told.get(), log.String()) {
				for _, secret := range secrets {
					require.NotContains(t, text, secret)
				}
			}
			require.Equal(t, slices.Compact(told.get()), told.get(), "attempts that fail for the same reason are not told")
		})
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	accept := func(o *server.Options) { o.Username, o.Password = "outlane", "another-one" }
	s := natstest.Start(t, func(o *natsserver.Options) { o.Configure = accept })
	host := strings.TrimPrefix(s.URL, "nats://")
	for _, cfg := range []publish.Config{
		{URL: "nats://outlane:hidden-secret@" + host},
		{URL: "nats://outlane:hidden-secret@127.0.0.1:1,nats://outlane:hidden-secret@" + host},
		{URL: "nats://hidden-secret@" + host},
		{URL: host, Username: "outlane", Password: "hidden-secret"},
		{URL: host, Token: "hidden-secret"},
	} {
		var log logBuffer
		var told states
		cfg.Logger, cfg.OnState = log.logger(), told.add
		b := connect(t, cfg)
		require.Eventually(t, func() bool {
			_, reason := b.Connected()
			return strings.Contains(strings.ToLower(reason), "authorization")
		}, ceiling, time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		err := b.WaitConnected(ctx)
		cancel()
		res := b.Publish(t.Context(), "S", []publish.Message{{ID: "1", Topic: "a"}})
		for _, text := range append(told.get(), log.String(), err.Error(), res.Err.Error()) {
			require.NotContains(t, text, "hidden-secret")
		}
		require.Contains(t, log.String(), "uthorization")
	}
}

func TestAnInboxPrefix(t *testing.T) {
	t.Parallel()
	accept := func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "admin", Password: "admin-password"},
			{Username: "outlane", Password: "some-password", Permissions: &server.Permissions{
				Subscribe: &server.SubjectPermission{Allow: []string{"answers.outlane.>"}},
			}},
		}
	}
	connect(t, publish.Config{URL: "a", InboxPrefix: "_INBOX.team"}).Close()
	s := natstest.Start(t, func(o *natsserver.Options) { o.Configure = accept })
	admin := strings.Replace(s.URL, "nats://", "nats://admin:admin-password@", 1)
	cfg := publish.Config{URL: s.URL, Username: "outlane", Password: "some-password", InboxPrefix: "answers.outlane"}
	for _, v := range variants[:2] {
		e := newEnvAt(t, v, admin, cfg)
		e.publish(e.messages(1, 10))
		require.Equal(t, data(e.messages(1, 10)), e.stored())
	}
}

func TestAServerWithoutJetStream(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t, func(o *natsserver.Options) { o.Configure = func(o *server.Options) { o.JetStream = false } })
	b := connect(t, publish.Config{URL: s.URL})
	waitConnected(t, b)
	res := b.Publish(t.Context(), "S", []publish.Message{{ID: "1", Topic: "a"}})
	requireErr(t, res.Err, publish.Outage, publish.ReasonNoJetStream, false)
}

func TestStreamForTopic(t *testing.T) {
	t.Parallel()
	s := natstest.Start(t)
	e := newEnvAt(t, variants[0], s.URL, publish.Config{})
	waitConnected(t, e.Broker)
	got, err := e.StreamForTopic(bounded(t), e.prefix+".x.y")
	require.NoError(t, err)
	require.Equal(t, e.stream, got)
	_, err = e.StreamForTopic(bounded(t), "elsewhere")
	requireOutageErr(t, err, publish.ReasonStreamMissing)
	_, err = e.StreamForTopic(bounded(t), "a..b")
	var refused *publish.Error
	require.ErrorAs(t, err, &refused)
	requireErr(t, refused, publish.Refused, publish.ReasonBadSubject, true)

	// The topic moves: the stream that refuses it is forgotten at once.
	msg := e.messages(1, 1)
	msg[0].Topic = e.prefix + ".x.y"
	e.publish(msg)
	e.change(func(c *jetstream.StreamConfig) { c.Subjects = []string{e.prefix + ".a"} })
	other := jetstream.StreamConfig{Name: "OTHER", Subjects: []string{e.prefix + ".x.>"}}
	e.create(other)
	msg[0].ID = "again"
	res := e.Publish(bounded(t), e.stream, msg)
	requireErr(t, res.Err, publish.Refused, publish.ReasonWrongStream, false)
	got, err = e.StreamForTopic(bounded(t), e.prefix+".x.y")
	require.NoError(t, err)
	require.Equal(t, "OTHER", got)

	s.Stop()
	require.Eventually(t, func() bool { ok, _ := e.Connected(); return !ok }, ceiling, time.Millisecond)
	got, err = e.StreamForTopic(bounded(t), e.prefix+".x.y")
	require.NoError(t, err, "what is known needs no server")
	require.Equal(t, "OTHER", got)
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	e := newEnvAt(t, variants[0], single(), publish.Config{MinDuplicateWindow: time.Minute})
	waitConnected(t, e.Broker)
	n := 0
	check := func(change func(*jetstream.StreamConfig), topics ...string) *publish.PreflightError {
		n++
		c := jetstream.StreamConfig{Name: fmt.Sprintf("%s-%d", e.stream, n), Subjects: []string{fmt.Sprintf("%s-%d.>", e.prefix, n)}}
		change(&c)
		sealed := c.Sealed
		c.Sealed = false
		e.create(c)
		if sealed {
			c.Sealed = true
			e.create(c)
		}
		for i, topic := range topics {
			topics[i] = strings.Replace(topic, "%", fmt.Sprintf("%s-%d", e.prefix, n), 1)
		}
		err := e.Preflight(bounded(t), c.Name, topics)
		if err == nil {
			return nil
		}
		var p *publish.PreflightError
		require.ErrorAs(t, err, &p)
		require.Equal(t, c.Name, p.Stream)
		for _, part := range []string{p.Stream, p.Problem, p.Mend} {
			require.NotEmpty(t, part)
			require.ErrorContains(t, err, part)
		}
		return p
	}
	nothing := func(*jetstream.StreamConfig) {}
	require.Nil(t, check(nothing))
	require.Nil(t, check(nothing, "%.>", "%.a.*", "%.b"))
	require.Equal(t, publish.ReasonWrongStream, check(nothing, "%.a", "elsewhere.a").Reason)
	require.Contains(t, check(nothing, "%.a", "elsewhere.a").Problem, `"elsewhere.a"`)
	require.Equal(t, publish.ReasonWrongStream, check(nothing, ">").Reason)
	require.Equal(t, publish.ReasonSealed, check(func(c *jetstream.StreamConfig) { c.Sealed = true }).Reason)
	require.Equal(t, publish.ReasonNoAck, check(func(c *jetstream.StreamConfig) { c.NoAck = true }).Reason)
	require.Equal(t, publish.ReasonRejected, check(func(c *jetstream.StreamConfig) { c.AllowMsgCounter = true }).Reason)
	require.Equal(t, publish.ReasonMirror, check(func(c *jetstream.StreamConfig) {
		c.Subjects, c.Mirror = nil, &jetstream.StreamSource{Name: e.stream}
	}).Reason)
	short := check(func(c *jetstream.StreamConfig) { c.Duplicates = 30 * time.Second })
	require.Equal(t, publish.ReasonDuplicateWindow, short.Reason)
	require.Contains(t, short.Problem, "30s")
	require.Contains(t, short.Mend, "1m0s")

	var p *publish.PreflightError
	require.ErrorAs(t, e.Preflight(bounded(t), "NOT-THERE", nil), &p)
	require.Equal(t, publish.ReasonStreamMissing, p.Reason)
	require.Contains(t, p.Mend, "outlane streams apply")
	require.ErrorAs(t, e.Preflight(bounded(t), "not.a.name", nil), &p)
	require.Equal(t, publish.ReasonBadStream, p.Reason)
}

func TestClosingIsNoLossOfTheConnection(t *testing.T) {
	t.Parallel()
	var told states
	b := connect(t, publish.Config{URL: single(), OnState: told.add})
	waitConnected(t, b)
	b.Close()
	require.Equal(t, []string{"true ", "false the broker is closed"}, told.get())
}
