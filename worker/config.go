package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/outlane/outlane/lease"
	"github.com/outlane/outlane/partition"
	"github.com/outlane/outlane/publish"
	"github.com/outlane/outlane/store"
)

// Database is what the worker asks of Postgres. *store.Store is one.
type Database interface {
	Meta(ctx context.Context) (store.Meta, error)
	Reset()
	Poll(ctx context.Context) (store.Poll, error)
	PollArrivals(ctx context.Context, from, to int64, gaps []int64, partitions []int) (p store.Poll, rows []store.Event, complete bool, err error)
	Arrivals(ctx context.Context, from, to int64, gaps []int64, partitions []int) ([]store.Event, error)
	Missing(ctx context.Context, from, to int64) ([]int64, error)
	Fetch(ctx context.Context, lane store.Lane, after, upto int64, late []int64, limit, maxBytes int) ([]store.Event, bool, error)
	Mark(ctx context.Context, marks []store.Mark) ([]store.Lane, error)
	Claim(ctx context.Context, owner string, partitions []int) ([]store.Claim, error)
	Epochs(ctx context.Context, partitions []int) (map[int]int64, error)
	SaveCursors(ctx context.Context, saves []store.CursorSave) ([]int, error)
	Horizon(ctx context.Context) (int64, error)
	SaveHorizon(ctx context.Context, horizon int64) error
	SequenceReset(ctx context.Context, last int64) error
	Streams(ctx context.Context) ([]string, error)
	DeadLetter(ctx context.Context, d store.DeadLetter) error
	Park(ctx context.Context, epoch int64, lane store.Lane, events []store.Event) error
	Attempt(ctx context.Context, partition int, epoch int64, id string, attempts int, errText string) error
	SetIdle(ctx context.Context, idle bool) error
	Listen(ctx context.Context, wake func()) error
	Lag(ctx context.Context, limit int) ([]store.LaneLag, error)
	Routes(ctx context.Context) ([]store.Route, error)
	ReplaceRoutes(ctx context.Context, routes []store.Route) error
	SaveLaneStates(ctx context.Context, states []store.LaneState) error
}

// Broker is what the worker asks of NATS. *publish.Broker is one.
type Broker interface {
	Publish(ctx context.Context, stream string, msgs []publish.Message) publish.Result
	StreamForTopic(ctx context.Context, topic string) (string, error)
	Preflight(ctx context.Context, stream string, topics []string) error
	LastSeq(ctx context.Context, stream string) (uint64, error)
	Connected() (bool, string)
	Mode(stream string) string
}

// Order is what a lane waits for before it sends an event.
type Order string

const (
	// OrderCommit sends events as they become visible.
	OrderCommit Order = "commit"
	// OrderSequence waits until no lower seq can appear: for the oldest open write transaction of the cluster.
	OrderSequence Order = "sequence"
)

// Route says how events of some topics are treated.
type Route struct {
	Topics      []string // topic patterns; NATS wildcards allowed
	Stream      string   // the stream that events without one get; the order below holds for this stream
	Block       bool     // after a dead letter, later events of its key wait for a person; else they go on
	MaxAttempts int      // 0: Config.MaxAttempts
	Order       Order    // OrderCommit if empty
}

// Config is a worker's configuration. Zero values mean the defaults given.
type Config struct {
	ID          string // of the worker, for people; its member identity is made from it
	Partitions  int    // 0: what the database says; else Run fails when the database disagrees
	KeyField    string // the payload's field that has the partition key; "": what the database says; else Run fails when the database disagrees
	Routes      []Route
	MaxAttempts int // tries an event gets that its stream refuses; 5

	BatchEvents  int           // most events in one publish, one fetch; 250
	BatchBytes   int64         // most payload bytes in one publish, one fetch (one event may exceed it); 4 MiB
	Memory       int64         // most payload bytes held at once; 64 MiB
	PollInterval time.Duration // between two looks at the sequence while events flow; 3 ms
	IdleAfter    time.Duration // how long the sequence stands still before the worker sleeps on LISTEN; 1 s
	SlowPoll     time.Duration // between two looks while it sleeps; 1 s, 200 ms without notifications
	PollOnly     bool          // never ask inserts to notify: a transaction that notifies cannot be prepared (two-phase commit)
	Publishers   int           // publishes under way at once, a stream; 8
	Fetchers     int           // fetches under way at once; 4
	Markers      int           // mark statements under way at once; 2

	LeaseDuration time.Duration // of this worker's member lease; 10 s
	Weights       bool          // partitions are shared out by how much work they are, if all workers have this on
	DrainTimeout  time.Duration // how long a stop waits for what is in flight; 25 s
	LagInterval   time.Duration // between two measurements of the lag; 5 s

	// SpareProcessor says that GOMAXPROCS is one more than there is to use. The worker holds that one while events flow, which saves a fifth of its CPU time
	// at low rates.
	SpareProcessor bool

	Database Database
	Broker   Broker
	Leases   lease.Backend
	Metrics  *Metrics     // nil: none
	Logger   *slog.Logger // nil: slog.Default()
}

func (c Config) withDefaults() (Config, error) {
	set(&c.MaxAttempts, 5)
	set(&c.BatchEvents, 250)
	set(&c.BatchBytes, 4<<20)
	set(&c.Memory, 64<<20)
	set(&c.PollInterval, 3*time.Millisecond)
	set(&c.IdleAfter, time.Second)
	set(&c.Publishers, 8)
	set(&c.Fetchers, 4)
	set(&c.Markers, 2)
	set(&c.LeaseDuration, 10*time.Second)
	set(&c.DrainTimeout, 25*time.Second)
	set(&c.LagInterval, 5*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Metrics == nil {
		c.Metrics = NewMetrics()
	}
	switch {
	case c.Database == nil, c.Broker == nil, c.Leases == nil:
		return c, fmt.Errorf("configure worker: database, broker and leases are needed")
	case c.ID == "":
		return c, fmt.Errorf("configure worker: the worker has no id")
	case c.Partitions < 0 || c.Partitions > partition.MaxPartitions:
		return c, fmt.Errorf("configure worker: partitions is %d; it must be between 1 and %d", c.Partitions, partition.MaxPartitions)
	}
	orders := make(map[string]Order)
	for _, r := range c.Routes {
		o := r.Order
		if o == "" {
			o = OrderCommit
		}
		if o != OrderCommit && o != OrderSequence {
			return c, fmt.Errorf("configure worker: route to %s has order %q; it must be commit or sequence", r.Stream, r.Order)
		}
		if have, ok := orders[r.Stream]; ok && have != o {
			return c, fmt.Errorf("configure worker: routes to %s have both orders; a stream has one", r.Stream)
		}
		orders[r.Stream] = o
	}
	return c, nil
}

func set[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}
