package outbox

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// DefaultSchema is the schema of the outbox table unless the option Schema says otherwise.
const DefaultSchema = "public"

// DefaultMaxBytes is the size limit of a message unless the option MaxBytes says otherwise: the NATS server's own default.
const DefaultMaxBytes = 1 << 20

// Outbox is an outbox table, and what is allowed into it.
type Outbox struct {
	table    pgx.Identifier
	insert   string
	maxBytes int
}

// Option changes an Outbox.
type Option func(*Outbox)

// Schema names the schema that the outbox was installed into. Empty: the session's search_path decides.
func Schema(name string) Option {
	return func(o *Outbox) {
		o.table = pgx.Identifier{"outbox_events"}
		if name != "" {
			o.table = pgx.Identifier{name, "outbox_events"}
		}
	}
}

// MaxBytes is the size limit of a message, headers and body, in bytes: the NATS server's max_payload. A limit under 1 switches the check off.
// About 4 kB of it are set aside for the headers that the worker adds.
func MaxBytes(n int) Option {
	return func(o *Outbox) { o.maxBytes = n }
}

// New returns an Outbox. It connects to nothing.
func New(opts ...Option) *Outbox {
	o := &Outbox{table: pgx.Identifier{DefaultSchema, "outbox_events"}, maxBytes: DefaultMaxBytes}
	for _, opt := range opts {
		opt(o)
	}
	o.insert = strings.ReplaceAll(insertEvents, "{table}", o.table.Sanitize())
	return o
}

var standard = New()

// insertEvents takes all events of a call as one JSON array: one statement, one parameter, any driver. Measured, it costs what a single-row
// INSERT does for one event, and what unnest over arrays does for a thousand. Postgres reads the array in order, so that is the order of
// the sequence numbers. A JSON null in the array is an SQL NULL, hence the field has_payload: a payload may be null itself.
const insertEvents = `INSERT INTO {table} (id, stream, topic, partition_key, payload, payload_bytes, content_type, headers, created_at)
SELECT id, stream, topic, partition_key, CASE WHEN has_payload THEN coalesce(payload, 'null') END, decode(payload_bytes, 'base64'),
       content_type, headers, coalesce(created_at, now())
FROM json_to_recordset($1::text::json) AS e (id text, stream text, topic text, partition_key text, has_payload boolean, payload jsonb,
       payload_bytes text, content_type text, headers jsonb, created_at timestamptz)`

// Enqueue adds the events to the outbox in the caller's transaction, in one statement. Without events it does nothing. Errors: a
// *ValidationError, after which the transaction is as it was; else what the database said, after which it must be rolled back.
func (o *Outbox) Enqueue(ctx context.Context, tx pgx.Tx, events ...Event) error {
	doc, err := o.document(events)
	if err != nil || doc == "" {
		return err
	}
	if _, err := tx.Exec(ctx, o.insert, doc); err != nil {
		return fmt.Errorf("insert %d events into the outbox: %w", len(events), err)
	}
	return nil
}

// Execer is what EnqueueSQL needs of a database/sql transaction: a *sql.Tx, or a *sql.Conn on which BEGIN was executed.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// EnqueueSQL is Enqueue for database/sql, with any driver for Postgres. It refuses a *sql.DB with ErrNoTransaction.
func (o *Outbox) EnqueueSQL(ctx context.Context, tx Execer, events ...Event) error {
	if _, ok := tx.(*sql.DB); ok {
		return fmt.Errorf("insert events through a *sql.DB: %w", ErrNoTransaction)
	}
	doc, err := o.document(events)
	if err != nil || doc == "" {
		return err
	}
	if _, err := tx.ExecContext(ctx, o.insert, doc); err != nil {
		return fmt.Errorf("insert %d events into the outbox: %w", len(events), err)
	}
	return nil
}

// Enqueue adds the events to the outbox of the default schema. See Outbox.Enqueue.
func Enqueue(ctx context.Context, tx pgx.Tx, events ...Event) error {
	return standard.Enqueue(ctx, tx, events...)
}

// EnqueueSQL adds the events to the outbox of the default schema. See Outbox.EnqueueSQL.
func EnqueueSQL(ctx context.Context, tx Execer, events ...Event) error {
	return standard.EnqueueSQL(ctx, tx, events...)
}

func newID() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("make an event id: %w", err)
	}
	return id.String(), nil
}

// document validates the events and writes them as insertEvents wants them. It is empty without events.
func (o *Outbox) document(events []Event) (string, error) {
	if len(events) == 0 {
		return "", nil
	}
	doc := []byte{'['}
	for i, e := range events {
		r, err := o.prepare(i, e)
		if err != nil {
			return "", err
		}
		if i > 0 {
			doc = append(doc, ',')
		}
		doc = r.append(doc)
	}
	return string(append(doc, ']')), nil
}

func (r record) append(doc []byte) []byte {
	doc = append(doc, `{"id":`...)
	doc = appendText(doc, r.ID)
	doc = append(doc, `,"topic":`...)
	doc = appendText(doc, r.Topic)
	for _, field := range []struct{ name, value string }{
		{`,"stream":`, r.Stream}, {`,"partition_key":`, r.Key}, {`,"content_type":`, r.ContentType},
	} {
		if field.value != "" {
			doc = append(doc, field.name...)
			doc = appendText(doc, field.value)
		}
	}
	if r.payload != nil {
		doc = append(doc, `,"has_payload":true,"payload":`...)
		doc = append(doc, r.payload...)
	}
	if r.Bytes != nil {
		doc = append(doc, `,"payload_bytes":"`...)
		doc = base64.StdEncoding.AppendEncode(doc, r.Bytes)
		doc = append(doc, '"')
	}
	if r.headers != nil {
		doc = append(doc, `,"headers":`...)
		doc = append(doc, r.headers...)
	}
	if !r.CreatedAt.IsZero() {
		doc = append(doc, `,"created_at":"`...)
		doc = r.CreatedAt.UTC().AppendFormat(doc, time.RFC3339Nano)
		doc = append(doc, '"')
	}
	return append(doc, '}')
}

// appendText appends a valid UTF-8 text as a JSON string.
func appendText(doc []byte, s string) []byte {
	plain := true
	for i := range len(s) {
		if s[i] < ' ' || s[i] == '"' || s[i] == '\\' {
			plain = false
			break
		}
	}
	if !plain {
		text, _ := json.Marshal(s) // a string can always be marshalled
		return append(doc, text...)
	}
	doc = append(doc, '"')
	doc = append(doc, s...)
	return append(doc, '"')
}
