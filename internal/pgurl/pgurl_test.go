package pgurl_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/pgurl"
)

func TestErrorsSayWhatIsWrongAndNeverTheAddress(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://u:a@s3cr3t@h:5432/db":                 "%40",
		"postgres://u:12/s3cr3t@h/db":                     "%2F",
		"postgres://u:s3cr3t/x@h/db":                      "port",
		"postgres://u:%zzs3cr3t@h/db":                     "percent",
		"postgres://u:s3cr3t@h:port/db":                   "port",
		"postgres://u:s3cr3t@h/db?sslmode=wrong":          "sslmode",
		`host=h password='it\'s s3cr3t' port=x`:           "port",
		"host=h password = s3cr3t port=x":                 "port",
		"postgres://u:s3cr3t@h/db?connect_timeout=s3cr3x": "connect_timeout",
	} {
		config, err := pgconn.ParseConfig(url)
		err = pgurl.Check(url, config, err)
		require.ErrorContains(t, err, want, url)
		require.NotContains(t, err.Error(), "s3cr3t", url)
		require.NotContains(t, err.Error(), "`", url)
	}
}

func TestAddressesThatAreGood(t *testing.T) {
	for _, url := range []string{
		"postgres://u:a%40b@h1:5432,h2:5433/db?application_name=me@home", "postgres://h/db", "host=h user=me@realm password='a@b' dbname=x@y",
	} {
		config, err := pgconn.ParseConfig(url)
		require.NoError(t, pgurl.Check(url, config, err), url)
	}
}
