package redact_test

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/redact"
)

func TestURL(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                   "",
		"postgres://host/db":                 "postgres://host/db",
		"postgres://app@host/db":             "postgres://app@host/db",
		"postgres://app:s3cret@host:5432/db": "postgres://app:***@host:5432/db",
		"postgres://app:s3/c@r:et@h1,h2/db":  "postgres://app:***@h1,h2/db",
		"postgres://app@host/db?password=s3cret&sslmode=require": "postgres://app@host/db?password=***&sslmode=require",
		"host=h password='s3 cr\\'et' dbname=d":                  "host=h password=*** dbname=d",
		"host=h password = s3cret dbname=d":                      "host=h password = *** dbname=d",
		"host=h sslpassword=s3cret":                              "host=h sslpassword=***",
		"nats://u:s3cret@a:4222,nats://u:s3cret@b:4222":          "nats://u:***@a:4222,nats://u:***@b:4222",
		"nats://s3cret@a:4222":                                   "nats://***@a:4222",
		"s3cret@a:4222":                                          "***@a:4222",
		"u:s3cret@a:4222":                                        "u:***@a:4222",
		"a:4222,b:4222":                                          "a:4222,b:4222",
		"nats://a:4222?token=s3cret":                             "nats://a:4222?token=***",
	} {
		require.Equal(t, want, redact.URL(in), in)
	}
}

func TestTextMasksEveryURLInASentence(t *testing.T) {
	t.Parallel()
	require.Equal(t,
		`parse "postgres://a:***@h/d": then dial nats://u:***@h2 and <tls://***@h3>`,
		redact.Text(`parse "postgres://a:one@h/d": then dial nats://u:two@h2 and <tls://three@h3>`))
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"p%40ss", "p@ss"}, redact.Secrets("postgres://app:p%40ss@host/db"))
	require.Equal(t, []string{"one", "two"}, redact.Secrets("nats://u:one@a,nats://u:two@b"))
	require.Equal(t, []string{"se cret"}, redact.Secrets("host=h password='se cret'"))
	require.Empty(t, redact.Secrets("postgres://app@host/db"))
}

func TestRedactorCleansLogs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	r := redact.New("tok", "hunter2", "hunter22")
	log := slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{ReplaceAttr: r.Attr}))
	log.Info("said hunter22", "text", "x hunter2 y", "err", errors.New("no nats://u:pw@h"), "n", 7, slog.Group("g", "deep", "hunter2"))
	require.NotContains(t, out.String(), "hunter")
	require.NotContains(t, out.String(), "pw")
	require.Contains(t, out.String(), `"msg":"said ***"`)
	require.Contains(t, out.String(), `"n":7`)
	require.Equal(t, "token", r.Text("token"))
}
