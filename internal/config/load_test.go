package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/config"
	"github.com/outlane/outlane/partition"
)

// load writes text, if any, to a file called outlane.yaml and loads it with the given environment and arguments. FILE stands for its path.
func load(t *testing.T, text string, env []string, args ...string) (*config.Config, error) {
	t.Helper()
	if text != "" {
		file := filepath.Join(t.TempDir(), "outlane.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		env = append([]string{"OUTLANE_CONFIG=" + file}, env...)
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.AddFlags(flags)
	require.NoError(t, flags.Parse(args))
	return config.Load(env, flags)
}

// complaints are the problems' texts, with the file's folder cut off.
func complaints(t *testing.T, err error) []string {
	t.Helper()
	var all *config.Error
	require.ErrorAs(t, err, &all)
	var texts []string
	for _, line := range strings.Split(all.Error(), "\n") {
		for _, word := range strings.Fields(line) {
			if at := strings.Index(word, "/outlane.yaml"); at >= 0 {
				line = strings.ReplaceAll(line, word[:at+1], "")
			}
		}
		texts = append(texts, line)
	}
	return texts
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, "", nil)
	require.NoError(t, err)
	require.Equal(t, "team_id", cfg.PartitionKeyField)
	require.Equal(t, 250, cfg.Worker.BatchEvents)
	require.Equal(t, config.ByteSize(4<<20), cfg.Worker.BatchBytes)
	require.Equal(t, config.ByteSize(64<<20), cfg.Worker.Memory)
	require.Equal(t, 3*time.Millisecond, cfg.Worker.PollInterval)
	require.Equal(t, 25*time.Second, cfg.Worker.DrainTimeout)
	require.Equal(t, "postgres", cfg.Lease.Backend)
	require.Equal(t, "public", cfg.Database.Schema)
	require.Equal(t, ":8080", cfg.HTTP.Addr)
	require.Equal(t, "default", cfg.Origin("worker.batchEvents").String())
	require.Empty(t, cfg.Routes)
	require.Empty(t, cfg.File())
}

func TestEmptyFileSaysNothing(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"\n", "# only a comment\n", "---\n", "worker:\nroutes:\n"} {
		cfg, err := load(t, text, nil)
		require.NoError(t, err, text)
		require.Equal(t, 250, cfg.Worker.BatchEvents)
	}
}

func TestExample(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, config.Example, nil)
	require.NoError(t, err)
	require.Equal(t, []config.Route{
		{Topics: []string{"payout.>"}, Stream: "STREAM_PAYOUT", OnDeadLetter: "block", MaxAttempts: 5, Order: "commit"},
		{Topics: []string{"agent.run.>"}, Stream: "STREAM_AGENT_RUN", OnDeadLetter: "skip", Order: "commit"},
	}, cfg.Routes)
	require.Equal(t, []config.Stream{
		{Name: "STREAM_PAYOUT", Subjects: []string{"payout.>"}, Replicas: 3, Storage: "file", DuplicateWindow: 2 * time.Minute},
	}, cfg.Streams)
	require.Equal(t, 5, cfg.Origin("routes[0].stream").Line)
}

func TestEveryFieldComesFromEverySourceByStrength(t *testing.T) {
	t.Parallel()
	for _, f := range config.Fields() {
		if strings.HasSuffix(f.Path, "File") && f.Path != "nats.credsFile" && f.Path != "nats.nkeyFile" {
			continue // the files of secrets have a test of their own
		}
		values := sampleValues(f)
		t.Run(f.Path, func(t *testing.T) {
			t.Parallel()
			text := nest(f.Path, yamlValue(f, values[0]))
			companions := companionsOf(f.Path)
			cfg, err := load(t, text, companions)
			require.NoError(t, err)
			require.Equal(t, values[0], shown(t, cfg, f.Path))
			require.Equal(t, config.FromFile, cfg.Origin(f.Path).Kind)

			env := append([]string{f.Env + "=" + values[1]}, companions...)
			cfg, err = load(t, text, env)
			require.NoError(t, err)
			require.Equal(t, values[1], shown(t, cfg, f.Path))
			require.Equal(t, "env "+f.Env, cfg.Origin(f.Path).String())

			for _, flag := range []string{f.Flag, f.Short} {
				if flag == "" {
					continue
				}
				cfg, err = load(t, text, env, "--"+flag+"="+values[2])
				require.NoError(t, err)
				require.Equal(t, values[2], shown(t, cfg, f.Path))
				require.Equal(t, "flag --"+flag, cfg.Origin(f.Path).String())
			}

			cfg, err = load(t, text, append([]string{f.Env + "="}, companions...))
			require.NoError(t, err, "a variable that is empty is not set")
			require.Equal(t, values[0], shown(t, cfg, f.Path))
		})
	}
}

func TestFixedNames(t *testing.T) {
	t.Parallel()
	byPath := map[string]config.Field{}
	for _, f := range config.Fields() {
		byPath[f.Path] = f
	}
	for path, want := range map[string][2]string{
		"database.url":              {"OUTLANE_DATABASE_URL", "database-url"},
		"database.urlFile":          {"OUTLANE_DATABASE_URL_FILE", "database-url-file"},
		"nats.url":                  {"OUTLANE_NATS_URL", "nats-url"},
		"nats.tls.ca":               {"OUTLANE_NATS_TLS_CA", "nats-tls-ca"},
		"http.addr":                 {"OUTLANE_HTTP_ADDR", "http-addr"},
		"worker.id":                 {"OUTLANE_WORKER_ID", "worker-id"},
		"worker.batchEvents":        {"OUTLANE_WORKER_BATCH_EVENTS", "worker-batch-events"},
		"partitions":                {"OUTLANE_PARTITIONS", "partitions"},
		"partitionKeyField":         {"OUTLANE_PARTITION_KEY_FIELD", "partition-key-field"},
		"database.maxConnections":   {"OUTLANE_DATABASE_MAX_CONNECTIONS", "database-max-connections"},
		"nats.nkeyFile":             {"OUTLANE_NATS_NKEY_FILE", "nats-nkey-file"},
		"database.statementTimeout": {"OUTLANE_DATABASE_STATEMENT_TIMEOUT", "database-statement-timeout"},
	} {
		require.Equal(t, want, [2]string{byPath[path].Env, byPath[path].Flag}, path)
	}
	require.Equal(t, "schema", byPath["database.schema"].Short)
	require.Equal(t, strconv.Itoa(partition.MaxPartitions), byPath["partitions"].Max)
	require.Contains(t, byPath["partitions"].Help, strconv.Itoa(partition.DefaultPartitions)+" if 0")
}

func TestConfigFlagIsStrongerThanItsVariable(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "other.yaml")
	require.NoError(t, os.WriteFile(file, []byte("worker: {id: from-flag}\n"), 0o600))
	cfg, err := load(t, "worker: {id: from-env}\n", nil, "--config", file)
	require.NoError(t, err)
	require.Equal(t, "from-flag", cfg.Worker.ID)
	require.Equal(t, file, cfg.File())
}

func TestMissingFile(t *testing.T) {
	t.Parallel()
	_, err := config.Load([]string{"OUTLANE_CONFIG=/nowhere/outlane.yaml"}, nil)
	require.ErrorContains(t, err, "/nowhere/outlane.yaml")
	require.ErrorContains(t, err, "OUTLANE_CONFIG names it")
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	t.Run("a mistyped variable", func(t *testing.T) {
		t.Parallel()
		_, err := load(t, "", []string{"OUTLANE_DATABSE_URL=postgres://u:s3cret@h/d", "OUTLANE_ZZZZZZZZZZZZZ=1", "OTHER_DATABSE_URL=x"})
		require.Equal(t, []string{
			"unknown variable OUTLANE_DATABSE_URL; did you mean OUTLANE_DATABASE_URL?",
			"unknown variable OUTLANE_ZZZZZZZZZZZZZ; unset it, or see outlane help settings",
		}, complaints(t, err))
	})
	t.Run("what Kubernetes sets for services", func(t *testing.T) {
		t.Parallel()
		_, err := load(t, "", []string{
			"OUTLANE_SERVICE_HOST=10.0.0.1", "OUTLANE_SERVICE_PORT=8080", "OUTLANE_SERVICE_PORT_HTTP_METRICS=8080",
			"OUTLANE_PORT=tcp://10.0.0.1:8080", "OUTLANE_PORT_8080_TCP=tcp://10.0.0.1:8080", "OUTLANE_PORT_8080_TCP_PROTO=tcp",
			"OUTLANE_PORT_8080_TCP_PORT=8080", "OUTLANE_PORT_8080_TCP_ADDR=10.0.0.1", "OUTLANE_WORKER_SERVICE_HOST=10.0.0.1",
			"OUTLANE_NATS_PORT_4222_TCP_ADDR=10.0.0.1", "OUTLANE_NATS_PORT=tcp://10.0.0.1:4222",
		})
		require.NoError(t, err)
	})
	t.Run("a port that no service set", func(t *testing.T) {
		t.Parallel()
		_, err := load(t, "", []string{"OUTLANE_PORT=8080"})
		require.Len(t, complaints(t, err), 1)
	})
}

func TestFlagWithoutValueIsTrue(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, "", nil, "--worker-poll-only")
	require.NoError(t, err)
	require.True(t, cfg.Worker.PollOnly)
	_, err = load(t, "worker: {pollOnly: 'yes'}\n", nil)
	require.Equal(t, []string{"worker.pollOnly at outlane.yaml:1 is a text; want true or false, without quotes"}, complaints(t, err))
}

func TestTwoFormsOfAFlag(t *testing.T) {
	t.Parallel()
	_, err := load(t, "", nil, "--schema=a", "--database-schema=b")
	require.Equal(t, []string{"--database-schema and --schema are the same; give one"}, complaints(t, err))
}

func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("postgres://app:from-file@h/d\n"), 0o600))
	empty := filepath.Join(dir, "empty")
	require.NoError(t, os.WriteFile(empty, []byte("\n"), 0o600))

	t.Run("read, without the line end", func(t *testing.T) {
		t.Parallel()
		cfg, err := load(t, "", []string{"OUTLANE_DATABASE_URL_FILE=" + secret})
		require.NoError(t, err)
		require.Equal(t, "postgres://app:from-file@h/d", cfg.Database.URL)
		require.Equal(t, "file "+secret, cfg.Origin("database.url").String())
		require.NoError(t, cfg.Need("database.url"))
	})
	t.Run("a stronger place wins in either form", func(t *testing.T) {
		t.Parallel()
		cfg, err := load(t, "database: {url: 'postgres://file/d'}\n", []string{"OUTLANE_DATABASE_URL_FILE=" + secret})
		require.NoError(t, err)
		require.Equal(t, "postgres://app:from-file@h/d", cfg.Database.URL)

		cfg, err = load(t, "", []string{"OUTLANE_DATABASE_URL_FILE=" + secret}, "--database-url=postgres://flag/d")
		require.NoError(t, err)
		require.Equal(t, "postgres://flag/d", cfg.Database.URL)
		require.Empty(t, cfg.Database.URLFile)
	})
	for name, c := range map[string]struct {
		text, want string
		env        []string
	}{
		"both in the environment": {
			env:  []string{"OUTLANE_NATS_TOKEN=tok", "OUTLANE_NATS_TOKEN_FILE=" + secret},
			want: "nats.token from OUTLANE_NATS_TOKEN and nats.tokenFile from OUTLANE_NATS_TOKEN_FILE are both set; keep one",
		},
		"both in the file": {
			text: "nats:\n  user: u\n  password: pw\n  passwordFile: " + secret + "\n",
			want: "nats.password at outlane.yaml:3 and nats.passwordFile at outlane.yaml:4 are both set; keep one",
		},
		"missing": {
			env:  []string{"OUTLANE_DATABASE_URL_FILE=/nowhere/url"},
			want: "database.urlFile from OUTLANE_DATABASE_URL_FILE cannot be read: open /nowhere/url: no such file or directory",
		},
		"empty": {
			env:  []string{"OUTLANE_DATABASE_URL_FILE=" + empty},
			want: "database.urlFile from OUTLANE_DATABASE_URL_FILE names an empty file: " + empty,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := load(t, c.text, c.env)
			require.Equal(t, []string{c.want}, complaints(t, err))
		})
	}
}

func TestNeed(t *testing.T) {
	t.Parallel()
	cfg, err := load(t, "", nil)
	require.NoError(t, err)
	err = cfg.Need("database.url", "nats.url", "worker.batchEvents")
	require.Equal(t, []string{
		"database.url is not set; give --database-url, OUTLANE_DATABASE_URL, or database.url in the configuration file, or a file that holds it as OUTLANE_DATABASE_URL_FILE",
		"nats.url is not set; give --nats-url, OUTLANE_NATS_URL, or nats.url in the configuration file, or a file that holds it as OUTLANE_NATS_URL_FILE",
	}, complaints(t, err))
}

func TestNoErrorShowsASecret(t *testing.T) {
	t.Parallel()
	const secret = "hunter2secret"
	for _, text := range []string{
		"database: {url: 'mysql://u:" + secret + "@h/d'}\n",
		"database: {url: [" + secret + "]}\n",
		"database: {url: {" + secret + ": 1}}\n",
		"nats: {url: 'http://u:" + secret + "@h'}\n",
		"nats: {password: " + secret + "}\n",
		"nats: {token: [" + secret + "], user: a}\n",
		"nats: {user: a, token: " + secret + "}\n",
		"nats: {token: \"" + secret + "\\0\"}\n",
	} {
		_, err := load(t, text, nil)
		require.Error(t, err, text)
		require.NotContains(t, err.Error(), secret, text)
	}
	_, err := load(t, "", []string{"OUTLANE_DATABASE_URL=" + secret})
	require.Error(t, err)
	require.NotContains(t, err.Error(), secret)
	require.False(t, errors.Is(err, os.ErrNotExist))
}
