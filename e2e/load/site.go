package load

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outlane/outlane/store"
)

// Partitions is how many partitions the chart makes unless it is told otherwise.
const Partitions = 64

const (
	poolSize        = 48
	duplicateWindow = "1h"
	closeTimeout    = 30 * time.Second
)

// kinds are what a site has a stream for, each.
var kinds = []string{"orders", "ledger"}

// Site is a database and streams of one scenario.
type Site struct {
	// DatabaseURL and NATSURL are good here and in pods.
	DatabaseURL, NATSURL string
	// Streams is for config.streams of the chart.
	Streams []map[string]any
	// Topic is one that a stream of the site has, for events that are not of this package.
	Topic string
	DB    *pgxpool.Pool

	servers  *Servers
	name     string
	database string
	conn     *nats.Conn
	js       jetstream.JetStream
	ledger   *ledger
	watch    watch
}

// Site makes a site. What there was by its name is gone.
func (s *Servers) Site(ctx context.Context, name string) (_ *Site, err error) {
	x := &Site{
		NATSURL: s.natsURL, Topic: topic(name, kinds[0], "test"), servers: s, name: name, database: "outlane_e2e_" + name, ledger: newLedger(),
	}
	defer func() {
		if err != nil {
			x.Close()
		}
	}()
	if x.DatabaseURL, err = s.urlOf(x.database); err != nil {
		return nil, err
	}
	if x.conn, err = s.connect(); err != nil {
		return nil, err
	}
	if x.js, err = jetstream.New(x.conn); err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	for _, kind := range kinds {
		x.Streams = append(x.Streams, map[string]any{
			"name": x.stream(kind), "subjects": []string{topic(name, kind, ">")}, "storage": "file", "replicas": s.replicas, "duplicateWindow": duplicateWindow,
		})
	}
	if err := x.remove(ctx); err != nil {
		return nil, err
	}
	if err := s.exec(ctx, "CREATE DATABASE "+x.database); err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(x.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("read the database's address: %w", err)
	}
	cfg.MaxConns = poolSize
	if x.DB, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("connect to Postgres: %w", err)
	}
	return x, nil
}

func topic(site, kind, rest string) string { return "e2e." + site + "." + kind + "." + rest }

func (x *Site) stream(kind string) string { return strings.ToUpper("e2e_" + x.name + "_" + kind) }

// remove takes away the database and the streams.
func (x *Site) remove(ctx context.Context) error {
	for _, kind := range kinds {
		if err := x.js.DeleteStream(ctx, x.stream(kind)); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("remove stream %s: %w", x.stream(kind), err)
		}
	}
	return x.servers.exec(ctx, "DROP DATABASE IF EXISTS "+x.database+" WITH (FORCE)")
}

func (x *Site) openStore() (*store.Store, error) {
	return store.Open(store.Config{URL: x.DatabaseURL, MaxConns: 4, ApplicationName: "outlane e2e"})
}

// unsettled is what the pool has still to do.
const unsettled = `SELECT count(*) FROM outbox_events e WHERE NOT processed
	AND NOT EXISTS (SELECT FROM outbox_dead_letters d WHERE d.event_id = e.id AND coalesce(d.resolution, '') <> 'retried')
	AND NOT EXISTS (SELECT FROM outbox_parked_events p WHERE p.event_id = e.id AND p.released_at IS NULL)`

// Waiting is how many events the pool has still to do something about.
func (x *Site) Waiting(ctx context.Context) (n int, err error) {
	if err := x.DB.QueryRow(ctx, unsettled).Scan(&n); err != nil {
		return 0, fmt.Errorf("count what waits: %w", err)
	}
	return n, nil
}

// Wanted is how many workers the waiting events are worth, at this many events for each, as an autoscaler is told.
func (x *Site) Wanted(ctx context.Context, target int) (n int, err error) {
	if err := x.DB.QueryRow(ctx, "SELECT outbox_workers_wanted($1)", target).Scan(&n); err != nil {
		return 0, fmt.Errorf("ask for the number of workers: %w", err)
	}
	return n, nil
}

// Settle returns when nothing waits any more.
func (x *Site) Settle(ctx context.Context) error {
	return await(ctx, "everything is settled", func() error {
		n, err := x.Waiting(ctx)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d events wait", n)
		}
		return err
	})
}

// Await returns when every event that was committed up to a time has been seen in its stream.
func (x *Site) Await(ctx context.Context, until time.Time) error {
	return await(ctx, "all that was committed is stored", func() error {
		if n := x.ledger.unseen(until); n > 0 {
			return errors.Join(fmt.Errorf("%d events are not", n), x.watch.failure())
		}
		return nil
	})
}

// Longest is the longest time from commit to stored of all events that were committed within a time. For one that is not stored yet it is as
// long as it has been waiting.
func (x *Site) Longest(from, to time.Time) time.Duration {
	return x.ledger.longest(from, to, time.Now())
}

// Committed is how many events were committed so far.
func (x *Site) Committed() int { return x.ledger.count(committed) }

// Close takes the site away.
func (x *Site) Close() {
	x.watch.stop()
	if x.DB != nil {
		x.DB.Close()
	}
	if x.conn != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = x.remove(ctx) // the next Site of the name tries again
		x.conn.Close()
	}
}
