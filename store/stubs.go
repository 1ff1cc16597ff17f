package store

import (
	"context"
	"errors"
)

var errStub = errors.ErrUnsupported

func (s *Store) Meta(ctx context.Context) (Meta, error)                       { return Meta{}, errStub }
func (s *Store) Poll(ctx context.Context) (Poll, error)                       { return Poll{}, errStub }
func (s *Store) Missing(ctx context.Context, from, to int64) ([]int64, error) { return nil, errStub }
func (s *Store) Streams(ctx context.Context) ([]string, error)                { return nil, errStub }
func (s *Store) MaxSeq(ctx context.Context) (int64, error)                    { return 0, errStub }
func (s *Store) Arrivals(ctx context.Context, from, to int64, gaps []int64, partitions []int) ([]Event, error) {
	return nil, errStub
}
func (s *Store) Fetch(ctx context.Context, lane Lane, after, upto int64, late []int64, limit, maxBytes int) (events []Event, more bool, err error) {
	return nil, false, errStub
}
func (s *Store) Mark(ctx context.Context, marks []Mark) (fenced []Lane, err error) {
	return nil, errStub
}
func (s *Store) Claim(ctx context.Context, owner string, partitions []int) ([]Claim, error) {
	return nil, errStub
}
func (s *Store) Epochs(ctx context.Context, partitions []int) (map[int]int64, error) {
	return nil, errStub
}
func (s *Store) SaveCursors(ctx context.Context, saves []CursorSave) (fenced []int, err error) {
	return nil, errStub
}
func (s *Store) Horizon(ctx context.Context) (int64, error)              { return 0, errStub }
func (s *Store) SaveHorizon(ctx context.Context, horizon int64) error    { return errStub }
func (s *Store) SequenceReset(ctx context.Context, last int64) error     { return errStub }
func (s *Store) DeadLetter(ctx context.Context, d DeadLetter) error      { return errStub }
func (s *Store) SetIdle(ctx context.Context, idle bool) error            { return errStub }
func (s *Store) Listen(ctx context.Context, wake func()) error           { return errStub }
func (s *Store) Lag(ctx context.Context, limit int) ([]LaneLag, error)   { return nil, errStub }
func (s *Store) Routes(ctx context.Context) ([]Route, error)             { return nil, errStub }
func (s *Store) ReplaceRoutes(ctx context.Context, routes []Route) error { return errStub }
func (s *Store) SaveLaneStates(ctx context.Context, states []LaneState) error {
	return errStub
}
func (s *Store) LaneStates(ctx context.Context) ([]LaneState, error) { return nil, errStub }
func (s *Store) Park(ctx context.Context, epoch int64, lane Lane, events []Event) error {
	return errStub
}
func (s *Store) Attempt(ctx context.Context, partition int, epoch int64, id string, attempts int, errText string) error {
	return errStub
}
func (s *Store) ListDeadLetters(ctx context.Context, f DeadLetterFilter) ([]DeadLetterEntry, error) {
	return nil, errStub
}
func (s *Store) RetryDeadLetter(ctx context.Context, id string) (released int64, err error) {
	return 0, errStub
}
func (s *Store) SkipDeadLetter(ctx context.Context, id string) (released int64, err error) {
	return 0, errStub
}
