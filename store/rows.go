package store

import "github.com/jackc/pgx/v5/pgtype"

// A page of events is read into a few large pieces of memory, not into a dozen small ones a row: a worker that drains a backlog reads a hundred
// thousand rows in two seconds, and would spend a fifth of its time on collecting what is left of them.

// names keeps one copy of each text that many rows have.
type names map[string]string

// text takes a column of type text.
type text struct {
	is     string
	valid  bool  // false: the column is NULL
	shared names // nil: only the row before is compared
}

// ScanBytes implements pgtype.BytesScanner.
func (t *text) ScanBytes(v []byte) error {
	if t.valid = v != nil; t.shared == nil {
		if string(v) != t.is {
			t.is = string(v)
		}
		return nil
	}
	is, known := t.shared[string(v)]
	if !known {
		is = string(v)
		t.shared[is] = is
	}
	t.is = is
	return nil
}

// The size of a piece begins at chunkMin and doubles up to chunkMax.
const (
	chunkMin = 4 << 10
	chunkMax = 64 << 10
)

// chunks gives out memory for the rows of one page. They are kept and let go together.
type chunks struct {
	rest []byte
	size int
}

func (c *chunks) copy(v []byte) []byte {
	if c.rest == nil || cap(c.rest)-len(c.rest) < len(v) {
		c.size = min(max(2*c.size, chunkMin), chunkMax)
		c.rest = make([]byte, 0, max(c.size, len(v)))
	}
	n := len(c.rest)
	c.rest = append(c.rest, v...)
	return c.rest[n:len(c.rest):len(c.rest)]
}

// blob takes a column of type text or bytea as it is; nil if it is NULL.
type blob struct {
	is   []byte
	from *chunks // nil: each is a piece of its own
}

// ScanBytes implements pgtype.BytesScanner.
func (b *blob) ScanBytes(v []byte) error {
	switch {
	case v == nil:
		b.is = nil
	case b.from == nil:
		b.is = append(make([]byte, 0, len(v)), v...)
	default:
		b.is = b.from.copy(v)
	}
	return nil
}

// body takes a row's columns that may be NULL, for one row after another.
type body struct {
	contentType text
	createdAt   pgtype.Timestamptz
	payload     blob
	bytes       blob
	headers     blob
}

func newBody(shared names, from *chunks) *body {
	return &body{contentType: text{shared: shared}, payload: blob{from: from}, bytes: blob{from: from}, headers: blob{from: from}}
}

// fill gives e what the row has.
func (b *body) fill(e *Event) {
	b.fillLarge(e)
	e.ContentType = b.contentType.is
	if b.createdAt.Valid {
		e.CreatedAt = b.createdAt.Time.UTC()
	}
}

// fillLarge gives e what may be large.
func (b *body) fillLarge(e *Event) {
	e.Payload, e.Headers = b.payload.is, b.headers.is
	if b.bytes.is != nil {
		e.Payload, e.Binary = b.bytes.is, true
	}
}
