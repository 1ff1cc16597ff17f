package bench

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// idle is section f: what a pool costs that has nothing to do.
func idle(ctx context.Context, l *lab) (rows []Row, err error) {
	counted, err := l.countStatements(ctx)
	if err != nil {
		return nil, err
	}
	if counted {
		defer func() { err = errors.Join(err, l.restartPostgres(ctx, "RESET shared_preload_libraries")) }()
	}
	span := pick(l, time.Second, 10*time.Second, time.Minute)
	for _, partitions := range []int{64, 1024} {
		template, err := l.template(ctx, fmt.Sprintf("idle_%d", partitions), partitions, nil)
		if err != nil {
			return rows, err
		}
		for _, workers := range []int{1, 10} {
			name := fmt.Sprintf("%s partitions, %s", amount(partitions), number(workers, "worker"))
			l.say("%s", name)
			s, err := l.site(ctx, template, siteOptions{})
			if err != nil {
				return rows, err
			}
			s.lease = "10s" // its default: renewals are what an idle pool does
			if err := s.startWorkers(ctx, workers); err != nil {
				return rows, err
			}
			if err := s.asleep(ctx); err != nil {
				return rows, err
			}
			r, err := s.idleCost(ctx, span, counted)
			if err != nil {
				return rows, err
			}
			for i := range r {
				r[i].Name = name + ": " + r[i].Name
			}
			rows = append(rows, r...)
			if err := s.close(ctx); err != nil {
				return rows, err
			}
		}
	}
	return rows, nil
}

func (s *site) idleCost(ctx context.Context, span time.Duration, counted bool) ([]Row, error) {
	time.Sleep(span / 5) // what the last handover left to do
	statements, err := s.statements(ctx, counted)
	if err != nil {
		return nil, err
	}
	before, err := s.usage()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	time.Sleep(span)
	after, err := s.usage()
	if err != nil {
		return nil, err
	}
	seconds := time.Since(began).Seconds()
	later, err := s.statements(ctx, counted)
	if err != nil {
		return nil, err
	}
	used, n := after.since(before), float64(len(s.workers))
	what := "statements"
	if !counted {
		what = "transactions"
	}
	return []Row{
		row("processor of a worker", "% of a core", 100*used.worker/seconds/n).target("≤ 1"),
		row(what+" of a worker", "/s", (later-statements)/seconds/n).target("≤ 30"),
		row("processor of all workers, Postgres and NATS", "% of a core", 100*(used.worker+used.postgres+used.nats)/seconds).
			note("Postgres %s %%, NATS %s %%", figure(100*used.postgres/seconds), figure(100*used.nats/seconds)),
	}, nil
}

// countStatements has Postgres count statements from now on, if it can.
func (l *lab) countStatements(ctx context.Context) (can bool, err error) {
	if err := l.admin.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_available_extensions WHERE name = 'pg_stat_statements')").Scan(&can); err != nil || !can {
		return false, err
	}
	return true, l.restartPostgres(ctx, "SET shared_preload_libraries = 'pg_stat_statements'")
}

// statements is how many statements the site's database has executed, or, if it does not count them, transactions.
func (s *site) statements(ctx context.Context, counted bool) (n float64, err error) {
	if !counted {
		_, err = s.db.Exec(ctx, "SELECT pg_stat_clear_snapshot()")
		if err == nil {
			err = s.db.QueryRow(ctx, "SELECT xact_commit FROM pg_stat_database WHERE datname = $1", s.name).Scan(&n)
		}
		return n, err
	}
	if _, err := s.db.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements"); err != nil {
		return 0, fmt.Errorf("count statements: %w", err)
	}
	err = s.db.QueryRow(ctx, `SELECT coalesce(sum(calls), 0) FROM pg_stat_statements WHERE dbid = (SELECT oid FROM pg_database WHERE datname = $1)`, s.name).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count statements: %w", err)
	}
	return n, nil
}
