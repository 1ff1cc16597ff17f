package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMistakesExitWithTwoAndOneLine(t *testing.T) {
	t.Parallel()
	bad := writeConfig(t, "worker:\n  bachEvents: 5\n")
	for name, c := range map[string]struct {
		env  []string
		args []string
		want string
	}{
		"unknown command":         {nil, []string{"wroker"}, `unknown command "outlane wroker"; did you mean worker?`},
		"unknown subcommand":      {nil, []string{"migrate", "upp"}, `unknown command "outlane migrate upp"; did you mean up?`},
		"a command like no other": {nil, []string{"dlq", "zebra"}, `unknown command "outlane dlq zebra"; see outlane dlq --help`},
		"unknown flag":            {nil, []string{"worker", "--worker-bach-events=5"}, `unknown flag --worker-bach-events; did you mean --worker-batch-events?`},
		"a flag without value":    {nil, []string{"worker", "--schema"}, `flag needs an argument: --schema; see outlane worker --help`},
		"unknown format":          {nil, []string{"status", "-o", "xml"}, `invalid argument "xml" for "-o, --output" flag: want text or json; see outlane status --help`},
		"an argument too many":    {nil, []string{"worker", "now"}, `outlane worker takes no argument such as "now"; see outlane worker --help`},
		"no database":             {nil, []string{"status"}, `database.url is not set; give --database-url, OUTLANE_DATABASE_URL, or database.url in the configuration file, or a file that holds it as OUTLANE_DATABASE_URL_FILE`},
		"unknown variable":        {[]string{"OUTLANE_DATABSE_URL=x"}, []string{"status"}, `unknown variable OUTLANE_DATABSE_URL; did you mean OUTLANE_DATABASE_URL?`},
		"unknown field":           {[]string{bad}, []string{"config", "print"}, `unknown field "bachEvents" at ` + strings.TrimPrefix(bad, "OUTLANE_CONFIG=") + `:2; did you mean batchEvents?`},
		"bad database address":    {[]string{"OUTLANE_DATABASE_URL=postgres://u:hunter2@h:port/d"}, []string{"status"}, ``},
		"down without yes":        {[]string{"OUTLANE_DATABASE_URL=postgres://h/d"}, []string{"migrate", "down"}, `migrate down removes outbox_events and all other tables of Outlane from schema public, with everything in them; give --yes to do it`},
		"grants to nobody":        {[]string{"OUTLANE_DATABASE_URL=postgres://h/d"}, []string{"migrate", "grants"}, `no role was named; give --producer, --worker or --scaler`},
		"send without topic":      {nil, []string{"send"}, `no topic was given; give --topic`},
		"send no JSON":            {nil, []string{"send", "--topic=a", "--payload={"}, `--payload is no JSON text`},
		"no streams":              {[]string{"OUTLANE_NATS_URL=nats://h"}, []string{"streams", "plan"}, `no streams are configured; list them under streams in the file that --config or OUTLANE_CONFIG names`},
		"nothing to retry":        {[]string{"OUTLANE_DATABASE_URL=postgres://h/d"}, []string{"dlq", "retry"}, `nothing was chosen; give ids, or --stream, --topic, --key or --all`},
		"two ways to choose":      {[]string{"OUTLANE_DATABASE_URL=postgres://h/d"}, []string{"dlq", "skip", "a", "--all"}, `ids and --stream, --topic, --key or --all were given; choose one of the two`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := outlane(t, c.env, c.args...)
			require.Equal(t, 2, r.code, r.err)
			require.Empty(t, r.out)
			require.NotContains(t, r.err, "hunter2")
			if c.want != "" {
				require.Equal(t, "outlane: "+c.want, r.complaint(t))
			}
		})
	}
}

func TestSeveralMistakesHaveALineEach(t *testing.T) {
	t.Parallel()
	r := outlane(t, []string{writeConfig(t, "bachEvents: 5\nlease: {duration: 10}\n")}, "worker", "--http-addr=x")
	require.Equal(t, 2, r.code)
	lines := strings.Split(strings.TrimSpace(r.err), "\n")
	require.Len(t, lines, 3)
	for _, line := range lines {
		require.True(t, strings.HasPrefix(line, "outlane: "), line)
	}
}

func TestHelpIsNoMistake(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"--help"}, {"help"}, {"migrate"}, {"worker", "--help"}, {"help", "settings"}} {
		r := outlane(t, nil, args...)
		require.Zero(t, r.code, args)
		require.NotEmpty(t, r.out, args)
		require.Empty(t, r.err, args)
	}
	require.Contains(t, outlane(t, nil, "help", "settings").out, "OUTLANE_WORKER_BATCH_EVENTS")
	require.NotContains(t, outlane(t, nil, "worker", "--help").out, "--worker-batch-events", "rare flags would drown the others")
}

func TestVersion(t *testing.T) {
	t.Parallel()
	require.Regexp(t, `^outlane \S+ `, outlane(t, nil, "version").out)
	require.Equal(t, outlane(t, nil, "version").out, outlane(t, nil, "--version").out)
	var v map[string]string
	require.NoError(t, json.Unmarshal([]byte(outlane(t, nil, "version", "-o", "json").out), &v))
	require.Contains(t, v, "version")
}

func TestConfigPrint(t *testing.T) {
	t.Parallel()
	env := []string{
		writeConfig(t, "worker: {batchEvents: 7}\n"), "OUTLANE_DATABASE_URL=postgres://app:hunter2@h/d", "OUTLANE_SERVICE_HOST=10.0.0.1",
	}
	r := outlane(t, env, "config", "print", "--log-level=debug")
	require.Zero(t, r.code, r.err)
	require.NotContains(t, r.out, "hunter2")
	require.Regexp(t, `(?m)^worker.batchEvents +7 +\S+/outlane.yaml:1$`, r.out)
	require.Regexp(t, `(?m)^database.url +postgres://app:\*\*\*@h/d +env OUTLANE_DATABASE_URL$`, r.out)
	require.Regexp(t, `(?m)^log.level +debug +flag --log-level$`, r.out)
	require.Regexp(t, `(?m)^lease.duration +10s +default$`, r.out)
	for _, format := range []string{"json", "yaml"} {
		r := outlane(t, env, "config", "print", "-o", format)
		require.Zero(t, r.code, r.err)
		require.Contains(t, r.out, "env OUTLANE_DATABASE_URL")
		require.NotContains(t, r.out, "hunter2")
	}
}

func TestAServerThatDoesNotAnswerIsNoMistake(t *testing.T) {
	t.Parallel()
	env := []string{"OUTLANE_DATABASE_URL=postgres://app:hunter2@127.0.0.1:1/d"}
	for _, args := range [][]string{{"status"}, {"dlq", "list"}, {"dlq", "retry", "x"}, {"migrate", "up"}, {"migrate", "version"}, {"migrate", "status"}} {
		r := outlane(t, env, args...)
		require.Equal(t, 1, r.code, r.err)
		require.Empty(t, r.out)
		require.Contains(t, r.complaint(t), "connection refused")
		require.NotContains(t, r.err, "hunter2")
	}
}
