package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outlane/outlane/internal/city"
)

// stranger is the producer of everything that the plan inserts: it has many transactions at a time, so their order says nothing.
const stranger = 1 << 20

// strange is a city of the fault's own.
func (r *run) strange(d *doing) *city.City {
	o := r.load.city(uint64(d.N))
	o.RollBacks, o.Pauses = 0, 0
	return city.New(o)
}

// insert runs a transaction whose order relative to others is not known to the producer.
func (r *run) insert(d *doing, t city.Transaction, poisoned map[int]bool) ([]uuid.UUID, outcome, error) {
	ids := make([]uuid.UUID, len(t.Events))
	bad := map[uuid.UUID]bool{}
	for i := range ids {
		ids[i] = uuid.New()
		bad[ids[i]] = poisoned[i]
	}
	o, err := r.load.attempt(d.ctx, t, ids)
	r.load.ledger.note(stranger, o, ids, bad)
	return ids, o, err
}

func (r *run) longTransaction(d *doing) error {
	c := r.strange(d)
	t := c.Next()
	for range 3 {
		t.Events = append(t.Events, c.Next().Events...)
	}
	t.Pause, t.RollBack = d.For, d.Target == "rolls back"
	_, _, err := r.insert(d, t, nil)
	return err
}

func (r *run) burst(d *doing) error {
	c := r.strange(d)
	var t city.Transaction
	for want := 200 + int(d.N%3000); len(t.Events) < want; {
		t.Events = append(t.Events, c.Next().Events...)
	}
	_, _, err := r.insert(d, t, nil)
	d.say("%d", len(t.Events))
	return err
}

func (r *run) prepareTransaction(d *doing) error {
	t := r.strange(d).Next()
	ids := make([]uuid.UUID, len(t.Events))
	for i := range ids {
		ids[i] = uuid.New()
	}
	name := fmt.Sprintf("chaos-%d", d.N)
	o := rolledBack
	err := r.prepare(d.ctx, name, t, ids)
	d.last()
	end, word := rolledBack, "ROLLBACK"
	if err == nil && d.Target == "commits" {
		end, word = committed, "COMMIT"
	}
	// Whether it was prepared is in doubt after an error; then it is rolled back.
	r.heal(d.ctx, "end a prepared transaction", func(ctx context.Context) error {
		_, err := r.exec(ctx, word+" PREPARED '"+name+"'")
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == "42704" { // there is none any more
			err = nil
		}
		if err == nil {
			o = end
		}
		return err
	})
	r.load.ledger.note(stranger, o, ids, nil)
	return err
}

func (r *run) prepare(ctx context.Context, name string, t city.Transaction, ids []uuid.UUID) error {
	limited, cancel := context.WithTimeout(ctx, transactionTimeout)
	defer cancel()
	conn, err := pgx.Connect(limited, r.box.DatabaseURL)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(limited) }()
	tx, err := conn.Begin(limited)
	if err != nil {
		return err
	}
	if err := insertAll(limited, tx, t, ids, func(time.Duration) {}); err != nil {
		return err
	}
	_, err = conn.Exec(limited, "PREPARE TRANSACTION '"+name+"'")
	return err
}

// poisoned is an event that its stream cannot take.
type poisoned struct {
	stream string
	good   string // a topic with which it could
}

// poisons are the ways to spoil an event.
var poisons = []func(*city.Event){
	func(e *city.Event) { e.Headers = []byte(`{"Nats-Rollup": "all"}`) },
	func(e *city.Event) { e.Headers = []byte(`{"outlane-SEQ": "1"}`) },
	func(e *city.Event) { e.Headers = []byte(`["a", "list"]`) },
	func(e *city.Event) { e.Headers = []byte(`{"line": "a\r\nNats-Msg-Id: b"}`) },
	func(e *city.Event) { e.Topic += " with spaces" },
	func(e *city.Event) { e.Topic += ".*" },
	func(e *city.Event) { e.Topic = "nowhere.to.be.found" },
	func(e *city.Event) {
		e.Payload = []byte(strings.Replace(string(e.Payload), "{", `{"large": "`+strings.Repeat("x", 1<<20)+`", `, 1))
	},
}

// poison inserts a few events of one team, among them one that cannot be stored.
func (r *run) poison(d *doing) error {
	s := streamOf(d.Target)
	t := city.Transaction{}
	for i := range 5 {
		payload := fmt.Sprintf(`{"team_id": "team_%03d", "n": %d}`, d.N%200, i)
		t.Events = append(t.Events, city.Event{Stream: s.name, Topic: s.topic(), Payload: []byte(payload)})
	}
	bad := int(d.N/200) % len(t.Events)
	poisons[int(d.N/1000)%len(poisons)](&t.Events[bad])
	ids, o, err := r.insert(d, t, map[int]bool{bad: true})
	if o != rolledBack {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.spoilt[ids[bad].String()] = poisoned{stream: s.name, good: s.topic()}
	}
	return err
}

// decide decides about one of the open dead letters.
func (r *run) decide(d *doing) error {
	limited, cancel := context.WithTimeout(d.ctx, 5*time.Second)
	defer cancel()
	var id string
	err := r.box.DB.QueryRow(limited, `SELECT event_id FROM outbox_dead_letters WHERE resolved_at IS NULL ORDER BY md5(event_id || $1) LIMIT 1`,
		fmt.Sprint(d.N)).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return errors.New("there is no open dead letter")
	}
	if err != nil {
		return err
	}
	d.say("%s", id)
	return r.resolve(limited, id, d.Target)
}

func (r *run) resolve(ctx context.Context, id, how string) error {
	if how == "skipped" {
		_, err := r.store.SkipDeadLetter(ctx, id)
		return err
	}
	if how == "mended and retried" {
		r.mu.Lock()
		p, ok := r.spoilt[id]
		r.mu.Unlock()
		if !ok {
			return fmt.Errorf("mend %s: it was not poisoned", id)
		}
		_, err := r.box.DB.Exec(ctx, `UPDATE outbox_events SET topic = $2, headers = NULL, payload = payload - 'large' WHERE id = $1`, id, p.good)
		if err != nil {
			return err
		}
	}
	_, err := r.store.RetryDeadLetter(ctx, id)
	return err
}
