package docsnippets_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/docsnippets"
	"github.com/outlane/outlane/internal/pgtest"
	"github.com/outlane/outlane/internal/postgres"
	"github.com/outlane/outlane/migrations"
)

// event is what the examples are expected to leave: stream, topic, key, body, content type, trace.
type event struct{ Stream, Topic, Key, Body, ContentType, Trace string }

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

var (
	generated = event{Stream: "STREAM_PAYOUT", Topic: "payout.generated", Key: "t_555", Body: `{"team_id": "t_555", "payout_id": "p_001"}`}
	raw       = event{Stream: "STREAM_PAYOUT", Topic: "payout.raw", Key: "t_555", Body: `\x089601`, ContentType: "application/x-protobuf"}
)

func with(e event, change func(*event)) event {
	change(&e)
	return e
}

func steps() (list []event) {
	list = append(list, with(generated, func(e *event) { e.Trace = traceparent }))
	for n := range 3 {
		list = append(list, event{Stream: "STREAM_PAYOUT", Topic: "payout.step", Key: "t_555",
			Body: `{"step": ` + strconv.Itoa(n) + `, "team_id": "t_555"}`})
	}
	return append(list, raw)
}

// runners say how the blocks of a language are run, all together, and what they leave.
var runners = map[string]struct {
	run  func(t *testing.T, url string, blocks []docsnippets.Block)
	want []event
}{
	"sql": {runSQL, []event{
		generated,
		generated,
		with(generated, func(e *event) { e.Body, e.Trace = `{"payout_id": "p_001"}`, traceparent }),
		{Stream: "STREAM_PAYOUT", Topic: "payout.settled", Key: "t_555", Body: `{"amount": 12.50, "team_id": "t_555", "payout_id": "p_001"}`},
		{Stream: "STREAM_PAYOUT", Topic: "payout.settled", Key: "t_555", Body: `{"amount": 7.25, "team_id": "t_555", "payout_id": "p_002"}`},
		{Stream: "STREAM_IMPORT", Topic: "import.row", Key: "t_1", Body: `{"n": 1, "team_id": "t_1"}`, Trace: "a"},
		{Stream: "STREAM_IMPORT", Topic: "import.row", Key: "t_2", Body: `{"n": 2, "team_id": "t_2"}`},
	}},
	"go": {runGo, []event{
		generated,
		{Stream: "STREAM_PAYOUT", Topic: "payout.settled", Key: "t_555", Body: `{"team_id": "t_555"}`},
		{Stream: "STREAM_AUDIT", Topic: "audit.payout", Key: "t_555", Trace: "4bf92f35"},
		{Stream: "STREAM_PAYOUT", Topic: "payout.clock", Key: "t_555", Body: `\x0801`, ContentType: "application/x-protobuf"},
		{Stream: "STREAM_IMPORT", Topic: "import.row", Key: "t_555", Body: `{"n": 0}`},
		{Stream: "STREAM_IMPORT", Topic: "import.row", Key: "t_555", Body: `{"n": 1}`},
	}},
	"python": {runPython, steps()},
	"js":     {runNode, steps()},
}

func TestProducersDocumentDoesWhatItSays(t *testing.T) {
	t.Parallel()
	blocks, err := docsnippets.Read("../../docs/producers.md")
	require.NoError(t, err)
	byLanguage := map[string][]docsnippets.Block{}
	for _, b := range blocks {
		require.Contains(t, runners, b.Language, "line %d: nothing runs this block", b.Line)
		byLanguage[b.Language] = append(byLanguage[b.Language], b)
	}
	for language, runner := range runners {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			require.NotEmpty(t, byLanguage[language])
			admin, producer := prepare(t)
			runner.run(t, producer, byLanguage[language])
			require.Equal(t, runner.want, events(t, admin))
			var state string
			require.NoError(t, pgtest.Connect(t, admin).QueryRow(context.Background(), "SELECT state FROM payouts WHERE id = 'p_001'").Scan(&state))
			require.NotEqual(t, "new", state)
		})
	}
}

// prepare returns a database with the table of the examples, as its superuser and as a producer that also may change that table.
func prepare(t *testing.T) (admin, producer string) {
	t.Helper()
	admin = pgtest.Migrated(t, 16)
	name, producer := pgtest.Role(t, admin)
	require.NoError(t, migrations.Grants(context.Background(), admin, "public", migrations.Roles{Producer: name}))
	pgtest.Exec(t, admin,
		"CREATE TABLE payouts (id text PRIMARY KEY, team_id text NOT NULL, amount numeric NOT NULL, state text NOT NULL)",
		"INSERT INTO payouts VALUES ('p_001', 't_555', 12.50, 'new'), ('p_002', 't_555', 7.25, 'new')",
		"GRANT SELECT, UPDATE ON payouts TO "+name)
	return admin, producer
}

func events(t *testing.T, admin string) []event {
	t.Helper()
	result, err := pgtest.Connect(t, admin).Query(context.Background(), `SELECT stream, topic, partition_key AS key,
		coalesce(payload::text, payload_bytes::text, '') AS body, coalesce(content_type, '') AS contenttype,
		coalesce(headers ->> 'traceparent', headers ->> 'trace_id', '') AS trace FROM outbox_events ORDER BY seq`)
	require.NoError(t, err)
	list, err := pgx.CollectRows(result, pgx.RowToStructByName[event])
	require.NoError(t, err)
	return list
}

func execute(t *testing.T, dir, url, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DATABASE_URL="+url)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s %v: %s", program, args, out)
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// runSQL gives all blocks to one psql.
func runSQL(t *testing.T, url string, blocks []docsnippets.Block) {
	bin, err := postgres.BinDir("")
	require.NoError(t, err)
	script := ""
	for _, b := range blocks {
		script += b.Code
	}
	dir := t.TempDir()
	execute(t, dir, url, filepath.Join(bin, "psql"), "--no-psqlrc", "--set", "ON_ERROR_STOP=1", "--file", write(t, dir, "all.sql", script), url)
}

// runGo makes each block a file of one program, whose main function is in testdata.
func runGo(t *testing.T, url string, blocks []docsnippets.Block) {
	dir := t.TempDir()
	main, err := os.ReadFile("testdata/main.go.txt")
	require.NoError(t, err)
	files := []string{"run", write(t, dir, "main.go", string(main))}
	for i, b := range blocks {
		files = append(files, write(t, dir, "block"+strconv.Itoa(i)+".go", "package main\n\n"+b.Code))
	}
	// In this folder, the imports are those of this module.
	execute(t, ".", url, "go", files...)
}

// runPython runs each block as a script, with the Python that Debian's package psycopg belongs to.
func runPython(t *testing.T, url string, blocks []docsnippets.Block) {
	dir := t.TempDir()
	for i, b := range blocks {
		execute(t, dir, url, "/usr/bin/python3", write(t, dir, strconv.Itoa(i)+".py", b.Code))
	}
}

// runNode runs each block as a module beside the packages that install.sh put into .cache.
func runNode(t *testing.T, url string, blocks []docsnippets.Block) {
	packages, err := filepath.Abs("../../.cache/node/node_modules")
	require.NoError(t, err)
	require.DirExists(t, packages, "internal/docsnippets/install.sh has not run; `make test` runs it")
	dir := t.TempDir()
	require.NoError(t, os.Symlink(packages, filepath.Join(dir, "node_modules")))
	for i, b := range blocks {
		execute(t, dir, url, "node", write(t, dir, strconv.Itoa(i)+".mjs", b.Code))
	}
}
