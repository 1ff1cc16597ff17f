package publish

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// StreamSpec is what the configuration says about a stream. A zero field, or a nil one, says nothing: the server's default when the stream is
// created, and no difference when it exists.
type StreamSpec struct {
	Name              string
	Subjects          []string
	Replicas          int    // 1 to 5
	Storage           string // "file" or "memory"
	DuplicateWindow   time.Duration
	MaxAge            time.Duration
	MaxBytes          int64
	Retention         string // "limits", "interest" or "workqueue"
	Discard           string // "new" or "old"
	AllowBatchPublish *bool  // nil: when the stream is created, true where the server can
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

// field is one setting of a stream: how it is written in the configuration, and to the server.
type field struct {
	name, key string
	want      func(*StreamSpec) (value any, text string) // the text is empty if the spec says nothing
	have      func(*jetstream.StreamConfig) string
	fixed     func(from, to string) bool // whether the server refuses this change; nil: it never does
}

var fields = []field{
	{
		name: "subjects", key: "subjects",
		want: func(s *StreamSpec) (any, string) { return s.Subjects, list(s.Subjects) },
		have: func(c *jetstream.StreamConfig) string { return list(c.Subjects) },
	}, {
		name: "replicas", key: "num_replicas",
		want: func(s *StreamSpec) (any, string) { return s.Replicas, number(int64(s.Replicas)) },
		have: func(c *jetstream.StreamConfig) string { return number(int64(c.Replicas)) },
	}, {
		name: "storage", key: "storage",
		want:  func(s *StreamSpec) (any, string) { return s.Storage, s.Storage },
		have:  func(c *jetstream.StreamConfig) string { return strings.ToLower(c.Storage.String()) },
		fixed: func(_, _ string) bool { return true },
	}, {
		name: "duplicateWindow", key: "duplicate_window",
		want: func(s *StreamSpec) (any, string) { return s.DuplicateWindow, span(s.DuplicateWindow) },
		have: func(c *jetstream.StreamConfig) string { return span(c.Duplicates) },
	}, {
		name: "maxAge", key: "max_age",
		want: func(s *StreamSpec) (any, string) { return s.MaxAge, span(s.MaxAge) },
		have: func(c *jetstream.StreamConfig) string { return span(c.MaxAge) },
	}, {
		name: "maxBytes", key: "max_bytes",
		want: func(s *StreamSpec) (any, string) { return s.MaxBytes, number(s.MaxBytes) },
		have: func(c *jetstream.StreamConfig) string { return number(max(c.MaxBytes, 0)) },
	}, {
		name: "retention", key: "retention",
		want:  func(s *StreamSpec) (any, string) { return s.Retention, s.Retention },
		have:  func(c *jetstream.StreamConfig) string { return retention(c.Retention) },
		fixed: func(from, to string) bool { return from == retentionWorkQueue || to == retentionWorkQueue },
	}, {
		name: "discard", key: "discard",
		want: func(s *StreamSpec) (any, string) { return s.Discard, s.Discard },
		have: func(c *jetstream.StreamConfig) string {
			if c.Discard == jetstream.DiscardNew {
				return "new"
			}
			return "old"
		},
	}, {
		name: "allowBatchPublish", key: "allow_batched",
		want: func(s *StreamSpec) (any, string) {
			if s.AllowBatchPublish == nil {
				return nil, ""
			}
			return *s.AllowBatchPublish, strconv.FormatBool(*s.AllowBatchPublish)
		},
		have: func(c *jetstream.StreamConfig) string { return strconv.FormatBool(c.AllowBatchPublish) },
	},
}

const retentionWorkQueue = "workqueue"

func retention(r jetstream.RetentionPolicy) string {
	switch r {
	case jetstream.InterestPolicy:
		return "interest"
	case jetstream.WorkQueuePolicy:
		return retentionWorkQueue
	}
	return "limits"
}

func list(subjects []string) string {
	sorted := slices.Clone(subjects)
	slices.Sort(sorted)
	return strings.Join(slices.Compact(sorted), " ")
}

// number and span are empty for zero, which says nothing.
func number(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func span(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// Validate says what is wrong with the spec, whatever the server may be.
func (s *StreamSpec) Validate() error {
	if err := ValidateStreamName(s.Name); err != nil {
		return fmt.Errorf("name: %w", err)
	}
	if len(s.Subjects) == 0 {
		return errors.New("subjects: there are none")
	}
	for i, subject := range s.Subjects {
		if err := ValidatePattern(subject); err != nil {
			return fmt.Errorf("subjects: %w", err)
		}
		for _, other := range s.Subjects[:i] {
			if overlap(subject, other) {
				return fmt.Errorf("subjects: %s and %s overlap", quote(other), quote(subject))
			}
		}
	}
	switch {
	case s.Replicas < 0 || s.Replicas > 5:
		return fmt.Errorf("replicas: %d is not from 1 to 5", s.Replicas)
	case !slices.Contains([]string{"", "file", "memory"}, s.Storage):
		return fmt.Errorf("storage: %s is not file or memory", quote(s.Storage))
	case !slices.Contains([]string{"", "limits", "interest", retentionWorkQueue}, s.Retention):
		return fmt.Errorf("retention: %s is not limits, interest or workqueue", quote(s.Retention))
	case !slices.Contains([]string{"", "old", "new"}, s.Discard):
		return fmt.Errorf("discard: %s is not old or new", quote(s.Discard))
	case s.DuplicateWindow < 0, s.MaxAge < 0, s.MaxBytes < 0:
		return errors.New("duplicateWindow, maxAge and maxBytes cannot be negative")
	case s.MaxAge > 0 && s.DuplicateWindow > s.MaxAge:
		return fmt.Errorf("duplicateWindow: %s is longer than maxAge %s", s.DuplicateWindow, s.MaxAge)
	}
	return nil
}

// overlap says whether a topic can be both.
func overlap(a, b string) bool {
	for {
		tokenA, restA, moreA := strings.Cut(a, ".")
		tokenB, restB, moreB := strings.Cut(b, ".")
		switch {
		case tokenA == ">" || tokenB == ">":
			return true
		case tokenA != "*" && tokenB != "*" && tokenA != tokenB, moreA != moreB:
			return false
		case !moreA:
			return true
		}
		a, b = restA, restB
	}
}

// validateSpecs also looks at the specs together.
func validateSpecs(specs []StreamSpec) error {
	for i := range specs {
		if err := specs[i].Validate(); err != nil {
			return fmt.Errorf("stream %s: %w", quote(specs[i].Name), err)
		}
		for j := range specs[:i] {
			if specs[j].Name == specs[i].Name {
				return fmt.Errorf("stream %s: it is there twice", quote(specs[i].Name))
			}
			for _, a := range specs[j].Subjects {
				for _, b := range specs[i].Subjects {
					if overlap(a, b) {
						return fmt.Errorf("streams %s and %s: their subjects %s and %s overlap",
							quote(specs[j].Name), quote(specs[i].Name), quote(a), quote(b))
					}
				}
			}
		}
	}
	return nil
}
