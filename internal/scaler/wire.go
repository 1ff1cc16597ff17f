package scaler

import (
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of KEDA's externalscaler.proto and of gRPC's health check, as far as they are used, written by hand: they are few and small.
// Unknown fields are passed over, as protocol buffers want it.

// objectRef says which ScaledObject asks, with what its trigger's metadata says.
type objectRef struct {
	Name, Namespace string
	Metadata        map[string]string
}

type isActive struct{ Result bool }

type metricSpec struct{ Specs []metricTarget }

type metricTarget struct {
	Name   string
	Target float64
}

type metricsRequest struct {
	Ref  objectRef
	Name string
}

type metricsResponse struct {
	Name  string
	Value float64
}

type healthRequest struct{}

type healthResponse struct{}

// serving is what healthResponse says.
const serving = 1

// field is a field of a message: a number or bytes.
type field struct {
	number protowire.Number
	value  uint64
	bytes  []byte
}

var errWire = errors.New("not a message")

func parse(data []byte) ([]field, error) {
	var fields []field
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil, errWire
		}
		data = data[n:]
		f := field{number: number}
		switch kind {
		case protowire.VarintType:
			f.value, n = protowire.ConsumeVarint(data)
		case protowire.Fixed64Type:
			f.value, n = protowire.ConsumeFixed64(data)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(data)
		default:
			n = protowire.ConsumeFieldValue(number, kind, data)
		}
		if n < 0 {
			return nil, errWire
		}
		data = data[n:]
		fields = append(fields, f)
	}
	return fields, nil
}

func (r *objectRef) decode(fields []field) error {
	r.Metadata = map[string]string{}
	for _, f := range fields {
		switch f.number {
		case 1:
			r.Name = string(f.bytes)
		case 2:
			r.Namespace = string(f.bytes)
		case 3:
			entry, err := parse(f.bytes)
			if err != nil {
				return err
			}
			var key, value string
			for _, e := range entry {
				switch e.number {
				case 1:
					key = string(e.bytes)
				case 2:
					value = string(e.bytes)
				}
			}
			r.Metadata[key] = value
		}
	}
	return nil
}

func (r *metricsRequest) decode(fields []field) error {
	for _, f := range fields {
		switch f.number {
		case 1:
			inner, err := parse(f.bytes)
			if err != nil {
				return err
			}
			if err := r.Ref.decode(inner); err != nil {
				return err
			}
		case 2:
			r.Name = string(f.bytes)
		}
	}
	return nil
}

func (*healthRequest) decode([]field) error { return nil }

func (m *isActive) encode() []byte {
	if !m.Result {
		return nil
	}
	return protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
}

func (m *metricSpec) encode() []byte {
	var out []byte
	for _, s := range m.Specs {
		out = protowire.AppendTag(out, 1, protowire.BytesType)
		out = protowire.AppendBytes(out, metric(s.Name, s.Target))
	}
	return out
}

func (m *metricsResponse) encode() []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), metric(m.Name, m.Value))
}

// metric is a MetricSpec or a MetricValue: a name, a whole number for old KEDAs, and the number.
func metric(name string, value float64) []byte {
	out := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), name)
	out = protowire.AppendVarint(protowire.AppendTag(out, 2, protowire.VarintType), uint64(int64(value)))
	return protowire.AppendFixed64(protowire.AppendTag(out, 3, protowire.Fixed64Type), math.Float64bits(value))
}

func (*healthResponse) encode() []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), serving)
}

// codec takes our messages instead of generated ones. On the wire it is protocol buffers.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) ([]byte, error) {
	m, ok := v.(interface{ encode() []byte })
	if !ok {
		return nil, fmt.Errorf("encode %T: %w", v, errWire)
	}
	return m.encode(), nil
}

func (codec) Unmarshal(data []byte, v any) error {
	m, ok := v.(interface{ decode([]field) error })
	if !ok {
		return fmt.Errorf("decode %T: %w", v, errWire)
	}
	fields, err := parse(data)
	if err != nil {
		return err
	}
	return m.decode(fields)
}
