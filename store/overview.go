package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Overview is the pool as the database has it, for people to read.
type Overview struct {
	Now        time.Time // by the database's clock
	Database   string
	LastSeq    int64 // the last number that the sequence gave
	Horizon    int64 // as last saved by a worker
	Members    []MemberInfo
	Partitions []PartitionInfo // by number
}

// MemberInfo is a member with a record in the Postgres lease backend.
type MemberInfo struct {
	ID       string
	JoinedAt time.Time
	Duration time.Duration // how long it may be silent
	Silent   time.Duration // since its last renewal; never negative
	Leaving  bool
}

// PartitionInfo says who claimed a partition last. The owner may be gone since.
type PartitionInfo struct {
	Partition int
	Epoch     int64
	Owner     string    // empty if it was never claimed
	ClaimedAt time.Time // zero if it was never claimed
}

const (
	overviewSQL = `SELECT clock_timestamp(), current_database()::text, h.seq, (` + pollSequence + `) FROM {schema}.outlane_horizon h`

	overviewMembersSQL = `SELECT id, joined_at, extract(epoch FROM duration)::float8,
       greatest(extract(epoch FROM clock_timestamp() - renewed_at), 0)::float8, leaving
FROM {schema}.outlane_members ORDER BY id`

	overviewPartitionsSQL = `SELECT partition, epoch, coalesce(owner, ''), claimed_at FROM {schema}.outlane_partitions ORDER BY partition`
)

// Overview reads who is in the pool and who claimed what.
func (s *Store) Overview(ctx context.Context) (Overview, error) {
	var o Overview
	err := s.run(ctx, "read the pool's state",
		call{sql: overviewSQL, row: func(rows pgx.Rows) error {
			return rows.Scan(&o.Now, &o.Database, &o.Horizon, &o.LastSeq)
		}},
		call{sql: overviewMembersSQL, row: func(rows pgx.Rows) error {
			var m MemberInfo
			var duration, silent float64
			if err := rows.Scan(&m.ID, &m.JoinedAt, &duration, &silent, &m.Leaving); err != nil {
				return err
			}
			m.Duration, m.Silent = seconds(duration), seconds(silent)
			o.Members = append(o.Members, m)
			return nil
		}},
		call{sql: overviewPartitionsSQL, row: func(rows pgx.Rows) error {
			var p PartitionInfo
			var claimed *time.Time
			if err := rows.Scan(&p.Partition, &p.Epoch, &p.Owner, &claimed); err != nil {
				return err
			}
			if claimed != nil {
				p.ClaimedAt = *claimed
			}
			o.Partitions = append(o.Partitions, p)
			return nil
		}})
	return o, err
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
