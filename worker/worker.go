package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outlane/outlane/lease"
	"github.com/outlane/outlane/store"
)

// Worker is one member of the pool.
type Worker struct {
	cfg    Config
	log    *slog.Logger
	member string // unique to this start of the process
	routes *routeTable

	delivered []atomic.Uint64 // events by partition, since the start

	work    context.Context // ends when everything that was acknowledged is settled, after Run's own context
	running sync.WaitGroup  // publishes under way
	wake    chan struct{}   // a notification came

	flows      atomic.Bool // events, or did until a moment ago
	flowBegins chan struct{}

	mu           sync.Mutex
	changed      *sync.Cond // partitions: held, quiet, in session
	fetchWake    *sync.Cond
	markWake     *sync.Cond
	held         map[int]time.Time // by our leases; not to be claimed before the time given
	locked       map[int]int       // how often a held partition's row was found locked
	parts        map[int]*part
	active       []int
	claims       int // how often partitions became active
	streams      map[string]*stream
	tracker      *tracker
	front        int64 // of the tracker: lanes may read up to here
	horizon      int64
	horizonMoved time.Time
	savedHorizon int64
	inSession    bool
	breaks       int // how often the listening connection was lost
	budget       budget
	fetchQueue   []*lane
	marks        []*markBatch
	marksEvents  int     // in marks
	marksDue     bool    // they are not to wait for more
	failingLanes []*lane // whose failed marks are to be tried again now
	hungry       []*lane
	changedLanes map[*lane]struct{}
	failing      map[string]string // by operation: the error it fails with, so that it is logged once
	databaseDown string            // why, empty while it works
	brokerUp     bool
	manager      *lease.Manager
	phase        string // what Run is waiting for before it works
}

// New checks cfg and makes a worker.
func New(cfg Config) (*Worker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	w := &Worker{
		cfg:          cfg,
		member:       lease.NewID(cfg.ID),
		routes:       newRouteTable(cfg.Routes, cfg.MaxAttempts),
		wake:         make(chan struct{}, 1),
		flowBegins:   make(chan struct{}, 1),
		held:         make(map[int]time.Time),
		locked:       make(map[int]int),
		parts:        make(map[int]*part),
		streams:      make(map[string]*stream),
		tracker:      &tracker{},
		changedLanes: make(map[*lane]struct{}),
		failing:      make(map[string]string),
		budget:       budget{limit: cfg.Memory},
		phase:        "starting",
	}
	w.log = cfg.Logger.With("member", w.member)
	w.changed, w.fetchWake, w.markWake = sync.NewCond(&w.mu), sync.NewCond(&w.mu), sync.NewCond(&w.mu)
	cfg.Metrics.watch(w)
	return w, nil
}

// Member is the worker's identity in leases and as a partition's owner, unique to this start.
func (w *Worker) Member() string { return w.member }

// Run works until ctx ends; then it settles what is in flight, hands its partitions over and returns nil. It returns an error only for what
// waiting cannot mend: a schema that is missing or of another version, or a number of partitions that differs from the configured one.
func (w *Worker) Run(ctx context.Context) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	w.work = work

	meta, err := w.prepare(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	w.delivered = make([]atomic.Uint64, meta.Partitions)
	w.cfg.Metrics.partitions.Set(float64(meta.Partitions))
	var events func(partition int) uint64
	if w.cfg.Weights {
		events = func(n int) uint64 { return w.delivered[n].Load() }
	}
	manager, err := lease.New(lease.Config{Backend: w.cfg.Leases, ID: w.member, Duration: w.cfg.LeaseDuration, Partitions: meta.Partitions,
		Handler: owner{w}, DrainTimeout: w.cfg.DrainTimeout, Events: events, Logger: w.cfg.Logger})
	if err != nil {
		return fmt.Errorf("start lease manager: %w", err)
	}
	w.mu.Lock()
	w.manager, w.phase = manager, ""
	w.mu.Unlock()
	w.log.Info("worker started", "partitions", meta.Partitions, "listen", meta.Sessions)

	var background sync.WaitGroup
	for range w.cfg.Fetchers {
		background.Go(func() { w.fetcher(work) })
	}
	for range w.cfg.Markers {
		background.Go(func() { w.marker(work) })
	}
	background.Go(func() { w.failingMarker(work) })
	background.Go(func() { w.claimer(ctx) })
	background.Go(func() { w.saver(work) })
	background.Go(func() { w.measurer(work) })
	background.Go(func() { w.sessions(ctx) })
	if w.cfg.SpareProcessor {
		background.Go(func() { w.keepProcessor(work) })
	}
	if meta.Sessions && !w.cfg.PollOnly {
		background.Go(func() { w.listener(ctx) })
	}
	wakeAll := func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.changed.Broadcast()
		w.fetchWake.Broadcast()
		w.markWake.Broadcast()
	}
	defer context.AfterFunc(ctx, wakeAll)()

	err = manager.Run(ctx) // returns after ctx, when all is handed over
	w.mu.Lock()
	for _, p := range w.parts {
		w.stopPart(p, false)
	}
	w.mu.Unlock()
	stop()
	wakeAll()
	w.running.Wait()
	background.Wait()
	switch {
	case err == nil, errors.Is(err, context.Canceled):
	case ctx.Err() != nil:
		w.log.Warn("not everything was handed over; others take it when the lease has run out", "error", err)
	default:
		return fmt.Errorf("run lease manager: %w", err)
	}
	w.log.Info("worker stopped")
	return nil
}

// prepare waits for the database and checks that this worker fits it.
func (w *Worker) prepare(ctx context.Context) (store.Meta, error) {
	for failures := 1; ; failures++ {
		meta, err := w.cfg.Database.Meta(ctx)
		var schema *store.SchemaError
		switch {
		case err == nil:
			w.databaseWorks()
			if w.cfg.Partitions != 0 && w.cfg.Partitions != meta.Partitions {
				return meta, fmt.Errorf("start worker: configured for %d partitions, the database has %d: set partitions to %d, or leave it out",
					w.cfg.Partitions, meta.Partitions, meta.Partitions)
			}
			if w.cfg.KeyField != "" && w.cfg.KeyField != meta.KeyField {
				return meta, fmt.Errorf("start worker: configured for the partition key field %q, the database has %q: set partitionKeyField to %q, or leave it out",
					w.cfg.KeyField, meta.KeyField, meta.KeyField)
			}
			if meta.SequenceCache > 1 {
				w.log.Error("the sequence outbox_events_seq hands out numbers in blocks: order by commit is not kept and cursors stand still; "+
					"run ALTER SEQUENCE outbox_events_seq CACHE 1", "cache", meta.SequenceCache)
			}
			if err = w.storeRoutes(ctx); err == nil {
				return meta, nil
			}
		case errors.As(err, &schema):
			return meta, fmt.Errorf("start worker: %w", err)
		}
		if ctx.Err() != nil {
			return meta, ctx.Err()
		}
		w.databaseFailedLocked("start", err)
		w.wait(ctx, retryDelay(failures))
	}
}

// storeRoutes gives the database this worker's routes, if it has any and they differ: inserts without a stream go by them.
func (w *Worker) storeRoutes(ctx context.Context) error {
	if len(w.cfg.Routes) == 0 {
		return nil
	}
	var want []store.Route
	for _, r := range w.cfg.Routes {
		for _, topic := range r.Topics {
			want = append(want, store.Route{Topic: topic, Stream: r.Stream})
		}
	}
	have, err := w.cfg.Database.Routes(ctx)
	if err != nil || slices.Equal(have, want) {
		return err
	}
	w.log.Info("the database gets this worker's routes; events inserted without a stream go by them", "had", len(have), "has", len(want))
	return w.cfg.Database.ReplaceRoutes(ctx, want)
}

// listener keeps a LISTEN alive; each notification ends the feed's sleep.
func (w *Worker) listener(ctx context.Context) {
	for failures := 1; ctx.Err() == nil; failures++ {
		err := w.cfg.Database.Listen(ctx, func() {
			failures = 0
			select {
			case w.wake <- struct{}{}:
			default:
			}
		})
		if errors.Is(err, store.ErrNoSession) {
			w.log.Info("the connection goes through a transaction pooler: waking up by polling alone")
			return
		}
		w.mu.Lock()
		w.breaks++
		w.mu.Unlock()
		w.wait(ctx, retryDelay(failures))
	}
}
