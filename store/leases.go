package store

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
)

// The statements of the Postgres lease backend. They take and return plain types, so that package lease need not know this one.

const (
	// poolChannel is where changes of members and leases are notified. They are rare; renewals are not notified.
	poolChannel = `'outlane_pool_' || left(md5('{literal}'), 16)`

	poolChannelName = `SELECT ` + poolChannel

	notifyPool = `pg_notify(` + poolChannel + `, '')`

	// renewal tells apart not only the renewals of a record, but also records that followed one another under one id.
	renewal = `(extract(epoch FROM m.joined_at)::text || '/' || m.renewals::text)`

	// A count that somebody set to its end begins again instead of failing for ever.
	oneMoreRenewal    = `CASE WHEN m.renewals < 9223372036854775807 THEN m.renewals + 1 ELSE 0 END`
	oneMoreTransition = `CASE WHEN l.transitions < 9223372036854775807 THEN l.transitions + 1 ELSE 0 END`

	joinPool = `WITH joined AS (
		INSERT INTO {schema}.outlane_members AS m (id, duration, leaving, weights) VALUES ($1, $2::bigint * interval '1 microsecond', $3, $4)
		ON CONFLICT (id) DO UPDATE SET duration = excluded.duration, leaving = excluded.leaving, weights = excluded.weights,
			renewals = ` + oneMoreRenewal + `, renewed_at = now()
		RETURNING m.id)
		SELECT ` + notifyPool + ` FROM joined`

	renewMember = `WITH renewed AS (
		UPDATE {schema}.outlane_members m
		SET duration = $2::bigint * interval '1 microsecond', leaving = $3, weights = $4, renewals = ` + oneMoreRenewal + `, renewed_at = now()
		WHERE m.id = $1 RETURNING m.leaving)
		SELECT CASE WHEN r.leaving THEN ` + notifyPool + ` IS NULL ELSE true END FROM renewed r`

	leavePool = `WITH gone AS (DELETE FROM {schema}.outlane_members m WHERE m.id = $1 RETURNING m.id)
		SELECT ` + notifyPool + ` FROM gone`

	// buryMember returns a row if the record is gone, by this statement or before.
	buryMember = `WITH gone AS (DELETE FROM {schema}.outlane_members m WHERE m.id = $1 AND ` + renewal + ` = $2 RETURNING m.id)
		SELECT ` + notifyPool + ` WHERE EXISTS (SELECT FROM gone)
			OR NOT EXISTS (SELECT FROM {schema}.outlane_members m WHERE m.id = $1)`

	// swapLeases locks the leases in the order in which they are given, so that two of these at once cannot deadlock.
	swapLeases = `WITH wanted AS MATERIALIZED (
		SELECT * FROM unnest($1::int[], $2::text[], $3::text[], $4::text[]) AS w(partition, holder, version, next)),
	locked AS MATERIALIZED (
		SELECT l.partition, w.next FROM wanted w
		CROSS JOIN LATERAL (SELECT l.partition FROM {schema}.outlane_leases l
			WHERE l.partition = w.partition AND l.holder = w.holder AND l.transitions::text = w.version FOR UPDATE) l
		WHERE w.version <> ''),
	changed AS (
		UPDATE {schema}.outlane_leases l SET holder = k.next, transitions = ` + oneMoreTransition + `, acquired_at = now()
		FROM locked k WHERE l.partition = k.partition RETURNING l.partition),
	created AS (
		INSERT INTO {schema}.outlane_leases AS l (partition, holder, transitions, acquired_at)
		SELECT w.partition, w.next, 1, now() FROM wanted w WHERE w.version = ''
		ON CONFLICT (partition) DO NOTHING RETURNING l.partition)
	SELECT r.partition, ` + notifyPool + ` IS NULL FROM (SELECT partition FROM changed UNION ALL SELECT partition FROM created) r`

	// readPool is one snapshot of all members, a digest of all leases, and the leases themselves if the digest is not $1. A pool at rest
	// therefore sends no leases, however often it is read.
	readPool = `WITH l AS MATERIALIZED (SELECT partition, holder, transitions FROM {schema}.outlane_leases),
	d AS MATERIALIZED (SELECT count(*)::text || '/' || coalesce(bit_xor(hashtextextended(l.partition::text || ' ' || l.holder, l.transitions)), 0)::text AS digest FROM l)
	SELECT 'digest', 0, d.digest, '', 0::float8, false, '' FROM d
	UNION ALL
	SELECT 'member', 0, m.id, ` + renewal + `, extract(epoch FROM m.duration)::float8, m.leaving, m.weights FROM {schema}.outlane_members m
	UNION ALL
	SELECT 'lease', l.partition, l.holder, l.transitions::text, 0, false, '' FROM l WHERE (SELECT digest FROM d) <> $1`
)

// JoinPool makes a member's record, or renews it.
func (s *Store) JoinPool(ctx context.Context, id string, duration time.Duration, leaving bool, weights string) error {
	return s.run(ctx, "join the pool", call{sql: joinPool, args: []any{id, duration.Microseconds(), leaving, weights}})
}

// RenewMember renews a member's record. It says whether there is one.
func (s *Store) RenewMember(ctx context.Context, id string, duration time.Duration, leaving bool, weights string) (found bool, err error) {
	err = s.run(ctx, "renew a member", call{sql: renewMember, args: []any{id, duration.Microseconds(), leaving, weights}, row: func(pgx.Rows) error {
		found = true
		return nil
	}})
	return found && err == nil, err
}

// LeavePool removes a member's record, if there is one.
func (s *Store) LeavePool(ctx context.Context, id string) error {
	return s.run(ctx, "leave the pool", call{sql: leavePool, args: []any{id}})
}

// BuryMember removes a member's record if it was not renewed since it was read with that renewal. It says whether the record is gone.
func (s *Store) BuryMember(ctx context.Context, id, renewal string) (gone bool, err error) {
	err = s.run(ctx, "remove a dead member", call{sql: buryMember, args: []any{id, renewal}, row: func(pgx.Rows) error {
		gone = true
		return nil
	}})
	return gone && err == nil, err
}

// SwapLeases gives the lease of partitions[i] to next[i], on condition that it has the holder and the version with which it was read, or,
// if the version is "", that there is none. It is one statement; each lease is changed or not on its own. It returns the partitions of
// those that were changed. The partitions must be in ascending order, so that two calls at once cannot deadlock.
func (s *Store) SwapLeases(ctx context.Context, partitions []int, holders, versions, next []string) (done []int, err error) {
	err = s.run(ctx, "change leases", call{sql: swapLeases, args: []any{partitions, holders, versions, next}, row: func(r pgx.Rows) error {
		var p int
		if err := r.Scan(&p, nil); err != nil {
			return err
		}
		done = append(done, p)
		return nil
	}})
	if err != nil {
		return nil, err
	}
	return done, nil
}

// ReadPool reads the members, and the leases unless their digest is known, the one returned before. What member and lease were told is void
// if it returns an error. A duration that is out of range is 0.
func (s *Store) ReadPool(ctx context.Context, known string, member func(id string, duration time.Duration, leaving bool, weights, renewal string),
	lease func(partition int, holder, version string)) (digest string, err error) {
	err = s.run(ctx, "read the pool", call{sql: readPool, args: []any{known}, row: func(r pgx.Rows) error {
		var kind, name, version, weights string
		var partition int
		var seconds float64
		var leaving bool
		if err := r.Scan(&kind, &partition, &name, &version, &seconds, &leaving, &weights); err != nil {
			return err
		}
		switch kind {
		case "digest":
			digest = name
		case "member":
			member(name, duration(seconds), leaving, weights, version)
		case "lease":
			lease(partition, name, version)
		}
		return nil
	}})
	return digest, err
}

func duration(seconds float64) time.Duration {
	d := seconds * float64(time.Second)
	if math.IsNaN(d) || math.Abs(d) > math.MaxInt64/2 {
		return 0
	}
	return time.Duration(d)
}

// ListenPool calls wake after changes of members and leases, renewals left out, in the way of Listen.
func (s *Store) ListenPool(ctx context.Context, wake func()) error {
	return s.listenOn(ctx, wake, s.text(poolChannelName))
}
