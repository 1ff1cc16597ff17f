package publish

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// existing is a stream's configuration as the server gives it. It is changed as raw text, so that settings this program does not know stay.
type existing struct {
	known jetstream.StreamConfig
	raw   map[string]json.RawMessage
}

// Plan says what Apply would do, and changes nothing.
func (b *Broker) Plan(ctx context.Context, specs []StreamSpec) ([]Change, error) {
	changes, _, err := b.plan(ctx, specs)
	return changes, err
}

func (b *Broker) plan(ctx context.Context, specs []StreamSpec) ([]Change, []*existing, error) {
	if err := validateSpecs(specs); err != nil {
		return nil, nil, err
	}
	l, down := b.connected()
	if down != nil {
		return nil, nil, down
	}
	changes, streams := make([]Change, len(specs)), make([]*existing, len(specs))
	for i := range specs {
		spec := &specs[i]
		found, err := b.readStream(ctx, l, spec.Name)
		if err != nil {
			return nil, nil, fmt.Errorf("read stream %s: %w", spec.Name, err)
		}
		streams[i] = found
		changes[i] = compare(spec, found, l.batches)
	}
	return changes, streams, nil
}

// compare is the way from found, which is nil if there is no stream, to spec.
func compare(spec *StreamSpec, found *existing, batches bool) Change {
	change := Change{Stream: spec.Name, Action: ActionNone}
	if found == nil {
		change.Action = ActionCreate
	}
	for _, f := range fields {
		_, to := f.want(spec)
		if to == "" && found == nil && f.key == keyBatches && batches {
			to = strconv.FormatBool(true)
		}
		if to == "" {
			continue
		}
		d := FieldChange{Field: f.name, To: to}
		if found != nil {
			if d.From = f.have(&found.known); d.From == d.To {
				continue
			}
			d.Impossible = f.fixed != nil && f.fixed(d.From, d.To)
			if change.Action == ActionNone {
				change.Action = ActionUpdate
			}
			if d.Impossible {
				change.Action = ActionImpossible
			}
		}
		change.Fields = append(change.Fields, d)
	}
	return change
}

const keyBatches = "allow_batched"

// Apply creates the streams that are missing and, only if allowed, updates those that differ. It returns the plan it followed. It does
// nothing at all, and returns an error, if a spec is not valid or a change is impossible; an existing stream that differs while updates are
// not allowed is an *UpdateNeededError, after the missing ones were created.
func (b *Broker) Apply(ctx context.Context, specs []StreamSpec, opt ApplyOptions) ([]Change, error) {
	changes, streams, err := b.plan(ctx, specs)
	if err != nil {
		return nil, err
	}
	if err := impossible(changes); err != nil {
		return changes, err
	}
	l, down := b.connected()
	if down != nil {
		return changes, down
	}
	var left UpdateNeededError
	for i, change := range changes {
		switch {
		case change.Action == ActionCreate:
			err = b.request(ctx, l, "CREATE", change.Stream, newConfig(&specs[i], l.batches), nil)
		case change.Action == ActionUpdate && !opt.AllowUpdate:
			left.Changes = append(left.Changes, change)
		case change.Action == ActionUpdate:
			var config map[string]json.RawMessage
			if config, err = updatedConfig(&specs[i], streams[i], change); err == nil {
				err = b.request(ctx, l, "UPDATE", change.Stream, config, nil)
			}
		}
		if err != nil {
			return changes, fmt.Errorf("%s stream %s: %w", change.Action, change.Stream, err)
		}
	}
	if len(left.Changes) > 0 {
		return changes, &left
	}
	return changes, nil
}

func impossible(changes []Change) error {
	var all []string
	for _, change := range changes {
		for _, f := range change.Fields {
			if f.Impossible {
				all = append(all, fmt.Sprintf("%s: %s cannot change from %s to %s", change.Stream, f.Field, f.From, f.To))
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	return errors.New("an existing stream cannot be changed so: " + strings.Join(all, "; "))
}

// newConfig leaves what the spec does not say to the server.
func newConfig(spec *StreamSpec, batches bool) map[string]any {
	config := map[string]any{"name": spec.Name}
	if batches {
		config[keyBatches] = true
	}
	for _, f := range fields {
		if value, text := f.want(spec); text != "" {
			config[f.key] = value
		}
	}
	for key, value := range map[string]any{"retention": "limits", "storage": "file", "discard": "old"} {
		if _, ok := config[key]; !ok {
			config[key] = value // the server wants these
		}
	}
	return config
}

func updatedConfig(spec *StreamSpec, found *existing, change Change) (map[string]json.RawMessage, error) {
	config := found.raw
	for _, d := range change.Fields {
		for _, f := range fields {
			if f.name != d.Field {
				continue
			}
			value, _ := f.want(spec)
			text, err := json.Marshal(value)
			if err != nil {
				return nil, fmt.Errorf("write %s: %w", f.name, err)
			}
			config[f.key] = text
		}
	}
	return config, nil
}

// readStream is nil if there is no such stream.
func (b *Broker) readStream(ctx context.Context, l *link, name string) (*existing, error) {
	var info struct {
		Config json.RawMessage `json:"config"`
	}
	err := b.request(ctx, l, "INFO", name, nil, &info)
	var api *apiError
	if errors.As(err, &api) && api.ErrCode == int(jetstream.JSErrCodeStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := &existing{}
	if err := json.Unmarshal(info.Config, &found.known); err != nil {
		return nil, fmt.Errorf("understand its configuration: %w", err)
	}
	if err := json.Unmarshal(info.Config, &found.raw); err != nil {
		return nil, fmt.Errorf("understand its configuration: %w", err)
	}
	return found, nil
}

// request asks the JetStream API about one stream. The error of an answer is an *apiError.
func (b *Broker) request(ctx context.Context, l *link, what, stream string, body, into any) error {
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return fmt.Errorf("write the request: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, b.cfg.AckTimeout)
	defer cancel()
	m, err := l.nc.RequestWithContext(ctx, apiPrefix+"STREAM."+what+"."+stream, text)
	if err != nil {
		return classify(err)
	}
	var answer struct {
		Error *apiError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return fmt.Errorf("understand the answer: %w", err)
	}
	if answer.Error != nil {
		return answer.Error
	}
	if into != nil {
		if err := json.Unmarshal(m.Data, into); err != nil {
			return fmt.Errorf("understand the answer: %w", err)
		}
	}
	return nil
}
