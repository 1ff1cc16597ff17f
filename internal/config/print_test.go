package config_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/config"
)

const everything = `
partitions: 16
worker: {id: "7"}
database: {url: "postgres://app:hunter2@db/app"}
nats: {url: "nats://u:hunter3@n1:4222,nats://tokhunter4@n2:4222", user: u, password: hunter5}
routes:
  - {topics: ["payout.>", "a.*"], stream: PAY, onDeadLetter: block}
streams:
  - {name: PAY, subjects: ["payout.>", "a.*"], duplicateWindow: 2m, allowBatchPublish: false, maxBytes: 1GiB}
`

func TestPrintouts(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, everything, []string{"OUTLANE_LEASE_DURATION=20s"}, "--log-level=debug")
	require.NoError(t, err)

	var text, yml, jsn bytes.Buffer
	require.NoError(t, cfg.WriteText(&text))
	require.NoError(t, cfg.WriteYAML(&yml))
	require.NoError(t, cfg.WriteJSON(&jsn))
	for _, out := range []string{text.String(), yml.String(), jsn.String()} {
		require.NotContains(t, out, "hunter")
		require.Contains(t, out, "postgres://app:***@db/app")
		require.Contains(t, out, "env OUTLANE_LEASE_DURATION")
		require.Contains(t, out, "flag --log-level")
		require.Contains(t, out, filepath.Base(cfg.File())+":3")
	}

	require.Regexp(t, `(?m)^worker\.id +7 +\S+outlane\.yaml:3$`, text.String())
	require.Regexp(t, `(?m)^worker\.batchEvents +250 +default$`, text.String())
	require.Regexp(t, `(?m)^nats\.password +\*\*\* +\S+:5$`, text.String())
	require.Regexp(t, `(?m)^nats\.token +- +default$`, text.String())
	require.Regexp(t, `(?m)^routes\[0\]\.topics +payout\.>, a\.\* +\S+:7$`, text.String())

	var out struct {
		Values  map[string]any
		Origins map[string]string
	}
	require.NoError(t, json.Unmarshal(jsn.Bytes(), &out))
	require.InDelta(t, 16, out.Values["partitions"], 0)
	require.Equal(t, "7", out.Values["worker"].(map[string]any)["id"])
	require.Equal(t, "default", out.Origins["routes[0].maxAttempts"])

	again, err := load(t, yml.String(), nil)
	require.NoError(t, err, yml.String())
	require.Equal(t, cfg.Worker, again.Worker)
	require.Equal(t, cfg.Routes, again.Routes)
	require.Equal(t, cfg.Streams, again.Streams)
	require.Equal(t, cfg.Lease, again.Lease)
	require.Equal(t, cfg.Log, again.Log)
}

func TestSecretsToHide(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, everything, nil)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"hunter2", "hunter3", "hunter5"}, cfg.Secrets())

	cfg, err = load(t, "", []string{"OUTLANE_DATABASE_URL=postgres://postgres:postgres@h/postgres"})
	require.NoError(t, err)
	require.Empty(t, cfg.Secrets(), "the password is everywhere in plain sight")
}

var update = flag.Bool("update", false, "write the generated documentation")

func TestDocumentationIsUpToDate(t *testing.T) {
	const path = "../../docs/configuration.md"
	want := config.Markdown()
	if *update {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, want == string(have), "docs/configuration.md is not what the code says: run go generate ./internal/config")
	for _, f := range config.Fields() {
		require.NotEmpty(t, f.Help, f.Path)
		require.Contains(t, want, "`"+f.Env+"`")
	}
}

func TestHelpTextNamesEveryFlag(t *testing.T) {
	t.Parallel()
	text := config.HelpText()
	for _, f := range config.Fields() {
		require.True(t, strings.Contains(text, "--"+f.Flag+" ") && strings.Contains(text, f.Env), f.Path)
	}
}
