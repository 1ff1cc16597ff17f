package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"

	"github.com/outlane/outlane/internal/config"
	"github.com/outlane/outlane/publish"
	"github.com/outlane/outlane/store"
	"github.com/outlane/outlane/worker"
)

func (a *app) worker() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Move events from the outbox to their streams, as one of a pool",
		Long: "Move events from the outbox to their streams, as one of a pool that shares the partitions. Start as many as you like, anywhere: they find\n" +
			"each other in the database, or as Leases of a Kubernetes cluster. Without Postgres, NATS or Kubernetes it stays alive, says so in /readyz, and goes on by itself.\n\n" +
			"SIGTERM or SIGINT: it settles what is under way, hands its partitions over and exits with 0; a second one ends it at once.\n" +
			"Exit codes: 0 stopped as told, 1 ended at once, or it cannot work, as when the schema is missing, has another number of\n" +
			"partitions, or is another pool's, 2 the configuration is wrong.",
		Example: example("OUTLANE_DATABASE_URL=postgres://outlane@db/app OUTLANE_NATS_URL=nats://nats:4222 outlane worker",
			"outlane worker --config outlane.yaml --worker-memory 128MiB"),
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.load(cmd, "database.url", "nats.url")
		if err != nil {
			return err
		}
		return a.runWorker(cmd.Context(), cfg)
	}
	return cmd
}

// runWorker works until ctx ends.
func (a *app) runWorker(ctx context.Context, cfg *config.Config) error {
	id, err := workerID(cfg.Worker.ID)
	if err != nil {
		return err
	}
	log := a.logger().With("worker", id)
	collectGarbage(int64(cfg.Worker.Memory))
	var broker *publish.Broker
	db, err := a.openStore(log, "outlane worker "+id, cfg.Database.MaxConnections, func(c *store.Config) {
		c.LargestBody = func() int64 { return broker.MaxPayload() }
	})
	if err != nil {
		return err
	}
	defer db.Close()
	// Renewals have connections of their own, so that no load can make a worker miss one.
	leases, err := a.openStore(log, "outlane leases "+id, leaseConnections)
	if err != nil {
		return err
	}
	defer leases.Close()
	backend, pool, closeBackend, err := a.leaseBackend(leases)
	if err != nil {
		return err
	}
	defer closeBackend()
	var w atomic.Pointer[worker.Worker]
	broker, err = a.connect(log, "outlane worker "+id, func(connected bool, reason string) {
		if w := w.Load(); w != nil {
			w.BrokerChanged(connected, reason)
		}
	})
	if err != nil {
		return err
	}
	defer broker.Close()
	ctx, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	guard := &poolGuard{Backend: backend, db: leases, pool: pool, log: log, refuse: refuse}
	c := workerConfig(cfg, id)
	c.SpareProcessor = spareProcessor()
	c.Database, c.Broker, c.Leases, c.Logger, c.Metrics = db, broker, guard, log, worker.NewMetrics()
	c.Metrics.Registry().MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	made, err := worker.New(c)
	if err != nil {
		return usageError{err}
	}
	w.Store(made)
	made.BrokerChanged(broker.Connected())

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.HTTP.Addr)
	if err != nil {
		return fmt.Errorf("serve probes and metrics: %w; choose another http.addr (OUTLANE_HTTP_ADDR, --http-addr)", err)
	}
	log.Info("serving probes and metrics", "addr", listener.Addr().String(), "version", version)
	var keeping sync.WaitGroup
	keep, stopKeeping := context.WithCancel(ctx)
	keeping.Go(func() { guard.keep(keep) })
	err = runBoth(ctx, made, listener, log)
	stopKeeping()
	keeping.Wait()
	if refused := context.Cause(ctx); errors.Is(refused, errOtherPool) {
		err = errors.Join(refused, err)
	}
	return err
}

const (
	// garbagePercent is how much garbage there may be, in percent of what is in use: three times Go's default, for a tenth of the processor time.
	garbagePercent = 300
	// beside is the memory that a worker has beside its payloads, in bytes, as Go counts it: without the program itself.
	beside = 36 << 20
)

// collectGarbage has garbage collected seldom while there is little of it, and often where it would take more memory than worker.memory is worth.
// GOGC and GOMEMLIMIT decide instead, where they are set.
func collectGarbage(memory int64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbagePercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" && memory <= math.MaxInt64-beside {
		debug.SetMemoryLimit(memory + beside)
	}
}

// spareProcessor adds one to GOMAXPROCS, unless it is set. Go then does not follow changes of the container's CPU limit any more.
func spareProcessor() bool {
	if os.Getenv("GOMAXPROCS") != "" {
		return false
	}
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1)
	return true
}

// runBoth runs the worker with its HTTP server, which answers until the worker is done.
func runBoth(ctx context.Context, w *worker.Worker, listener net.Listener, log *slog.Logger) error {
	server := &http.Server{
		Handler: w.Handler(), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- server.Serve(listener)
	}()
	failed := w.Run(ctx)
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer done()
	if err := server.Shutdown(closing); err != nil {
		_ = server.Close() // whoever still reads at the end does not hold it up
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		failed = errors.Join(failed, fmt.Errorf("serve probes and metrics: %w", err))
	}
	return failed
}

// leaseConnections are beside database.maxConnections.
const leaseConnections = 2

func workerConfig(cfg *config.Config, id string) worker.Config {
	c := worker.Config{
		ID: id, Partitions: cfg.Partitions, MaxAttempts: cfg.Worker.MaxAttempts,
		BatchEvents: cfg.Worker.BatchEvents, BatchBytes: int64(cfg.Worker.BatchBytes), Memory: int64(cfg.Worker.Memory),
		PollInterval: cfg.Worker.PollInterval, PollOnly: cfg.Worker.PollOnly, Publishers: cfg.Worker.Publishers, Fetchers: cfg.Worker.Fetchers,
		LeaseDuration: cfg.Lease.Duration, Weights: cfg.Lease.Weights, DrainTimeout: cfg.Worker.DrainTimeout,
	}
	if cfg.Origin("partitionKeyField").Kind != config.FromDefault {
		c.KeyField = cfg.PartitionKeyField
	}
	for _, r := range cfg.Routes {
		c.Routes = append(c.Routes, worker.Route{
			Topics: r.Topics, Stream: r.Stream, Block: r.OnDeadLetter == "block", MaxAttempts: r.MaxAttempts, Order: worker.Order(r.Order),
		})
	}
	return c
}

func workerID(configured string) (string, error) {
	if configured != "" {
		return configured, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", usageError{fmt.Errorf("name the worker: %w; set worker.id", err)}
	}
	return host, nil
}
