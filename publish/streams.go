package publish

import (
	"context"
	"time"
)

// StreamSpec is what the configuration says about a stream. A zero field says nothing: the server's default when the stream is created,
// and no difference when it exists.
type StreamSpec struct {
	Name              string
	Subjects          []string
	Replicas          int    // 1, 3 or 5
	Storage           string // "file" or "memory"
	DuplicateWindow   time.Duration
	MaxAge            time.Duration
	MaxBytes          int64
	Retention         string // "limits", "interest" or "workqueue"
	Discard           string // "new" or "old"
	AllowBatchPublish *bool  // nil: true where the server can
}

// Action is what a Change does.
type Action string

// Actions of a Change.
const (
	ActionCreate     Action = "create"
	ActionUpdate     Action = "update"
	ActionNone       Action = "none"
	ActionImpossible Action = "impossible" // the server cannot change this on an existing stream
)

// Change is the way from a stream as it is to its StreamSpec.
type Change struct {
	Stream string
	Action Action
	Fields []FieldChange // empty for ActionNone
}

// FieldChange is one setting that differs.
type FieldChange struct {
	Field      string // the name in the configuration, such as duplicateWindow
	From, To   string // From is empty when the stream is created
	Impossible bool
}

// ApplyOptions are what Apply may do.
type ApplyOptions struct {
	AllowUpdate bool // change streams that exist; without it they are left alone
}

// Plan says what Apply would do, and changes nothing.
func (b *Broker) Plan(ctx context.Context, specs []StreamSpec) ([]Change, error) {
	return nil, errNotBuilt
}

// Apply creates the streams that are missing and, only if allowed, updates those that differ. It returns the plan it followed. It does
// nothing at all, and returns an error, if a spec is not valid or a change is impossible; an existing stream that differs while updates are
// not allowed is an *UpdateNeededError, after the missing ones were created.
func (b *Broker) Apply(ctx context.Context, specs []StreamSpec, opt ApplyOptions) ([]Change, error) {
	return nil, errNotBuilt
}

// UpdateNeededError lists streams that exist, differ from their spec, and were left alone.
type UpdateNeededError struct{ Changes []Change }

// Error names the streams.
func (e *UpdateNeededError) Error() string {
	text := "streams differ and were left as they are:"
	for _, c := range e.Changes {
		text += " " + c.Stream
	}
	return text
}
