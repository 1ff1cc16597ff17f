package pgtest

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/postgres"
	"github.com/outlane/outlane/migrations"
)

var templates = struct {
	sync.Mutex
	names map[int]string
}{names: map[int]string{}}

// Migrated is Database with Outlane's newest schema in the schema "public", set up for that many partitions and the default key field. It
// copies a database that was migrated once, which is much faster than to migrate each.
func Migrated(t testing.TB, partitions int) string {
	t.Helper()
	return create(t, template(t, partitions))
}

func template(t testing.TB, partitions int) string {
	t.Helper()
	server := Shared(t)
	templates.Lock()
	defer templates.Unlock()
	if name, ok := templates.names[partitions]; ok {
		return name
	}
	name := fmt.Sprintf("migrated_%d", partitions)
	require.NoError(t, migrate(server, name, partitions))
	templates.names[partitions] = name
	return name
}

func migrate(server *postgres.Server, name string, partitions int) error {
	ctx, cancel := context.WithTimeout(context.Background(), Ceiling)
	defer cancel()
	if err := exec(ctx, server.URL("postgres"), "CREATE DATABASE "+name); err != nil {
		return err
	}
	if _, err := migrations.Up(ctx, server.URL(name), "public", migrations.Options{Partitions: partitions}); err != nil {
		return err
	}
	// A database that somebody is connected to cannot be copied.
	return exec(ctx, server.URL("postgres"), "ALTER DATABASE "+name+" WITH ALLOW_CONNECTIONS false")
}
