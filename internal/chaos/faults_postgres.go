package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outlane/outlane/internal/postgres"
)

// lockPatience is how long a statement of an operator waits for its lock, as a careful one would have it.
const lockPatience = "SET lock_timeout = '2s'"

func (r *run) stopPostgres(d *doing, mode postgres.Mode) error {
	r.box.Postgres.Stop(mode)
	d.last()
	r.heal(d.ctx, "start Postgres again", r.box.Postgres.Start)
	return nil
}

func (r *run) restartPostgres(d *doing) error { return r.stopPostgres(d, postgres.Fast) }
func (r *run) crashPostgres(d *doing) error   { return r.stopPostgres(d, postgres.Immediate) }
func (r *run) killPostgres(d *doing) error    { return r.stopPostgres(d, postgres.Kill) }

func (r *run) freezePostgres(d *doing) error {
	r.box.Postgres.Freeze()
	d.last()
	r.box.Postgres.Thaw()
	return nil
}

// exec runs a statement of an operator.
func (r *run) exec(ctx context.Context, sql string, args ...any) (int64, error) {
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(limited, r.box.DatabaseURL)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(limited) }()
	if _, err := conn.Exec(limited, lockPatience); err != nil {
		return 0, err
	}
	tag, err := conn.Exec(limited, sql, args...)
	return tag.RowsAffected(), err
}

func (r *run) terminateBackends(d *doing) error {
	sql := `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`
	if d.Target == "workers" {
		sql += ` AND application_name LIKE 'outlane%'`
	}
	end := time.Now().Add(d.For)
	for {
		n, err := r.exec(d.ctx, sql)
		if err != nil {
			return err
		}
		d.say("%d of them", n)
		if time.Now().After(end) || d.ctx.Err() != nil {
			return nil
		}
		rest(d.ctx, 700*time.Millisecond)
	}
}

// inTransaction keeps an operator's transaction open for as long as the fault lasts, after its first statement. The server may end it before.
func (r *run) inTransaction(d *doing, options pgx.TxOptions, sql string, args ...any) error {
	limited, cancel := context.WithTimeout(d.ctx, 10*time.Second+d.For)
	defer cancel()
	conn, err := pgx.Connect(limited, r.box.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(limited) }()
	if _, err := conn.Exec(limited, lockPatience); err != nil {
		return err
	}
	tx, err := conn.BeginTx(limited, options)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(limited) }()
	if _, err := tx.Exec(limited, sql, args...); err != nil {
		return err
	}
	d.last()
	return nil
}

func (r *run) lockTable(d *doing) error {
	return r.inTransaction(d, pgx.TxOptions{}, "LOCK TABLE "+d.Target+" IN ACCESS EXCLUSIVE MODE")
}

// lockRows locks rows that are about to be marked, or the rows of some partitions.
func (r *run) lockRows(d *doing) error {
	sql := `SELECT FROM outbox_events WHERE seq > (SELECT last_value - 200 FROM outbox_events_seq) AND NOT processed ORDER BY seq LIMIT 20 FOR UPDATE`
	if d.Target == "outlane_partitions" {
		sql = `SELECT FROM outlane_partitions WHERE partition % 2 = 0 FOR UPDATE`
	}
	return r.inTransaction(d, pgx.TxOptions{}, sql)
}

func (r *run) addColumn(d *doing) error {
	name := fmt.Sprintf("chaos_%d", d.N)
	_, err := r.exec(d.ctx, fmt.Sprintf("ALTER TABLE outbox_events ADD COLUMN %s text DEFAULT 'x'", name))
	d.last()
	r.heal(d.ctx, "drop the column", func(ctx context.Context) error {
		_, err := r.exec(ctx, "ALTER TABLE outbox_events DROP COLUMN IF EXISTS "+name)
		return err
	})
	return err
}

const refusal = `CREATE OR REPLACE FUNCTION chaos_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'marks are refused'; END $$;
	CREATE OR REPLACE TRIGGER chaos_refuse BEFORE UPDATE OF processed ON outbox_events FOR EACH ROW EXECUTE FUNCTION chaos_refuse()`

func (r *run) refuseMarks(d *doing) error {
	_, err := r.exec(d.ctx, refusal)
	d.last()
	r.heal(d.ctx, "allow marks again", func(ctx context.Context) error {
		_, err := r.exec(ctx, "DROP TRIGGER IF EXISTS chaos_refuse ON outbox_events")
		return err
	})
	return err
}

func (r *run) raiseEpochs(d *doing) error {
	_, err := r.exec(d.ctx, "UPDATE outlane_partitions SET epoch = epoch + 1 WHERE partition % 3 = $1", d.N%3)
	return err
}

// editLeases gives a third of the partitions to somebody, by hand.
func (r *run) editLeases(d *doing) error {
	holder := map[string]string{
		"to a member":         "(SELECT coalesce(min(id), '') FROM (SELECT id FROM outlane_members ORDER BY md5(id || $1) LIMIT 1) m)",
		"to somebody unknown": "'somebody-' || $1",
		"to nobody":           "left($1, 0)",
	}[d.Target]
	n, err := r.exec(d.ctx, "UPDATE outlane_leases SET holder = "+holder+" WHERE partition % 3 = $2", fmt.Sprint(d.N), d.N%3)
	d.say("%d leases", n)
	return err
}

func (r *run) deleteMember(d *doing) error {
	n, err := r.exec(d.ctx, "DELETE FROM outlane_members WHERE id = (SELECT id FROM outlane_members ORDER BY md5(id || $1) LIMIT 1)", fmt.Sprint(d.N))
	d.say("%d members", n)
	return err
}

// elsewhere keeps a transaction open that has nothing to do with the outbox.
func (r *run) elsewhere(d *doing) error {
	if d.Target == "reads" {
		return r.inTransaction(d, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, "SELECT FROM outbox_events LIMIT 1")
	}
	return r.inTransaction(d, pgx.TxOptions{}, "SELECT pg_current_xact_id()")
}
