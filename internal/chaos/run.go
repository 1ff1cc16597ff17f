package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outlane/outlane/internal/controlplane"
	"github.com/outlane/outlane/internal/natsserver"
	"github.com/outlane/outlane/internal/postgres"
	"github.com/outlane/outlane/internal/sandbox"
	"github.com/outlane/outlane/store"
)

// Options say how a run goes.
type Options struct {
	// Program is the outlane executable that the workers run.
	Program string
	Out     io.Writer
	// Dir is where the folder of a run that fails is left; empty: the system's temporary folder.
	Dir      string
	Duration time.Duration
	Seed     uint64
	// Rate is in events a second; 0 means 300, and 1,000 for a soak. Every is the mean time between two faults; 0 means DefaultEvery.
	Rate  int
	Every time.Duration
	// Leases is where leases are kept: empty, which is in Postgres, or LeasesKubernetes, which can then fail as well.
	Leases string
}

// DefaultEvery is Options.Every if that is 0.
const DefaultEvery = 1500 * time.Millisecond

// ErrFaults is returned when the run came to its end and something was wrong.
var ErrFaults = errors.New("faults were found")

// healing bounds how long it may take to undo one fault.
const healing = 2 * time.Minute

// run is one run.
type run struct {
	opts    Options
	name    string
	again   string // the command that repeats it
	servers int    // of NATS
	direct  bool   // no proxies, no workers that come and go
	plan    Plan
	dir     string
	log     *log
	box     *sandbox.Sandbox
	nats    []*natsserver.Process
	bouncer *postgres.Bouncer
	cluster *controlplane.Cluster // nil: leases are in Postgres
	store   *store.Store
	load    *load
	lines   map[string]*lines // by worker
	workers map[string]*sandbox.Worker
	held    held
	mu      sync.Mutex
	wrong   []string            // what is wrong besides what the check will find
	spoilt  map[string]poisoned // by event
}

// lines are one worker's connections to the servers.
type lines struct {
	nats     []*proxy
	postgres *proxy
}

// Run makes one run. It returns nil, ErrFaults, or why there was no run.
func Run(ctx context.Context, opts Options) error {
	if opts.Rate == 0 {
		opts.Rate = 300
	}
	if opts.Every == 0 {
		opts.Every = DefaultEvery
	}
	r := &run{opts: opts, name: "chaos", servers: servers, plan: PlanOf(opts), spoilt: map[string]poisoned{}}
	r.again = fmt.Sprintf("make chaos SECONDS=%d SEED=%d", int(opts.Duration.Seconds()), opts.Seed)
	if opts.Leases == LeasesKubernetes {
		r.again += " LEASES=" + LeasesKubernetes
	}
	return r.whole(ctx, r.play)
}

// PlanOf is the plan of a run.
func PlanOf(opts Options) Plan {
	p := Draw(opts.Seed, opts.Duration, opts.Every)
	if opts.Leases == LeasesKubernetes {
		p.drawKubernetes(opts.Every)
	}
	return p
}

// whole is a run from end to end; play is its middle part.
func (r *run) whole(ctx context.Context, play func(context.Context) error) (err error) {
	r.lines, r.workers = map[string]*lines{}, map[string]*sandbox.Worker{}
	if r.dir, err = os.MkdirTemp(r.opts.Dir, fmt.Sprintf("outlane-%s-%d-", r.name, r.plan.Seed)); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	if r.log, err = newLog(r.opts.Out, filepath.Join(r.dir, "run.log")); err != nil {
		return err
	}
	good := false
	defer func() {
		if !good && r.load != nil && ctx.Err() == nil {
			r.keep(context.WithoutCancel(ctx))
		}
		if !good && ctx.Err() == nil {
			r.log.say("logs, plan and data are in %s", r.dir)
			r.log.say("the same plan again: %s", r.again)
		}
		err = errors.Join(err, r.close())
		if good || ctx.Err() != nil {
			err = errors.Join(err, os.RemoveAll(r.dir))
		}
	}()
	if err := os.WriteFile(filepath.Join(r.dir, "plan.txt"), []byte(r.plan.String()), 0o644); err != nil {
		return fmt.Errorf("write the plan: %w", err)
	}
	r.log.say("%s of %s with seed %d, %d events a second, %d faults: %s", r.name, r.plan.Duration, r.plan.Seed, r.opts.Rate, len(r.plan.Faults),
		r.plan.Pool)
	if err := r.start(ctx); err != nil {
		return err
	}
	if err := play(ctx); err != nil {
		return err
	}
	faults, err := r.judge(ctx)
	if err != nil {
		return err
	}
	for _, f := range faults {
		r.blame("%s", f)
	}
	if len(r.wrong) > 0 {
		return ErrFaults
	}
	good = true
	r.log.say("nothing is wrong")
	return nil
}

// start starts servers, proxies and workers.
func (r *run) start(ctx context.Context) (err error) {
	r.log.say("starting Postgres and NATS")
	if r.nats, err = startServers(r.dir, r.servers); err != nil {
		return err
	}
	if r.opts.Leases == LeasesKubernetes {
		if err = r.startKubernetes(ctx); err != nil {
			return err
		}
	}
	r.box, err = sandbox.Start(ctx, sandbox.Options{Program: r.opts.Program, Config: config(r.plan.Pool, r.servers, r.leaseSettings()), Dir: r.dir, NATSURL: addresses(r.nats)})
	if err != nil {
		return err
	}
	if r.store, err = store.Open(store.Config{URL: r.box.DatabaseURL, MaxConns: 4, ApplicationName: "chaos"}); err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	if r.plan.Pool.Pooler {
		if r.bouncer, err = postgres.StartBouncer(ctx, r.box.DatabaseURL); err != nil {
			return err
		}
	}
	if err := r.box.Command(ctx, "migrate", "up", "--partitions", fmt.Sprint(r.plan.Pool.Partitions)); err != nil {
		return err
	}
	if err := r.eventually(ctx, "apply the streams", func(ctx context.Context) error { return r.box.Command(ctx, "streams", "apply") }); err != nil {
		return err
	}
	if err := r.eventually(ctx, "wait for the streams", r.streamsWell); err != nil {
		return err
	}
	r.load = newLoad(r.box.DB, r.plan.Seed, r.opts.Rate)
	for i := range r.plan.Pool.Workers {
		w, err := r.addWorker(fmt.Sprintf("worker-%d", i+1))
		if err != nil {
			return err
		}
		if err := w.Start(); err != nil {
			return err
		}
	}
	if r.direct {
		return nil
	}
	for i := range extras {
		if _, err := r.addWorker(fmt.Sprintf("extra-%d", i+1)); err != nil {
			return err
		}
	}
	return nil
}

// startServers runs the NATS servers, as a cluster if they are many. Clients are told of no addresses but those that they were given: they come
// through proxies.
func startServers(dir string, n int) ([]*natsserver.Process, error) {
	members, err := natsserver.ClusterOptions("chaos", n)
	if err != nil {
		return nil, err
	}
	if n == 1 {
		members[0].Cluster = natsserver.Cluster{}
	}
	processes := make([]*natsserver.Process, 0, n)
	for i, opt := range members {
		name := fmt.Sprintf("nats-%d", i+1)
		opt.Cluster.NoAdvertise = true
		opt.StoreDir, opt.LogFile = filepath.Join(dir, name), filepath.Join(dir, name+".log")
		p, err := natsserver.StartProcess(opt)
		if p != nil {
			processes = append(processes, p)
		}
		if err != nil {
			return processes, err
		}
	}
	return processes, nil
}

func addresses(processes []*natsserver.Process) string {
	urls := make([]string, len(processes))
	for i, p := range processes {
		urls[i] = p.URL()
	}
	return strings.Join(urls, ",")
}

// addWorker makes a worker, behind proxies of its own unless the run is direct.
func (r *run) addWorker(id string) (*sandbox.Worker, error) {
	if r.direct {
		return r.box.NewWorker(id)
	}
	l := &lines{}
	r.lines[id] = l
	urls := make([]string, len(r.nats))
	for i, s := range r.nats {
		p, err := newProxy(strings.TrimPrefix(s.URL(), "nats://"))
		if err != nil {
			return nil, err
		}
		l.nats = append(l.nats, p)
		urls[i] = "nats://" + p.addr()
	}
	database := r.box.DatabaseURL
	if r.bouncer != nil {
		database = r.bouncer.URL()
	}
	target, err := hostOf(database)
	if err != nil {
		return nil, err
	}
	if l.postgres, err = newProxy(target); err != nil {
		return nil, err
	}
	w, err := r.box.NewWorker(id, "OUTLANE_NATS_URL="+strings.Join(urls, ","),
		"OUTLANE_DATABASE_URL="+strings.Replace(database, target, l.postgres.addr(), 1), "OUTLANE_LOG_LEVEL=info")
	if err != nil {
		return nil, err
	}
	r.workers[id] = w
	return w, nil
}

// play inserts events and carries the plan out. It returns when all faults are healed.
func (r *run) play(ctx context.Context) error {
	r.log.restart()
	began := time.Now()
	r.load.start(ctx)
	watching, stopWatching := context.WithCancel(ctx)
	var watched sync.WaitGroup
	watched.Go(func() { r.watch(watching) })
	var under sync.WaitGroup
	for _, f := range r.plan.Faults {
		rest(ctx, f.At-time.Since(began))
		if ctx.Err() != nil {
			break
		}
		under.Go(func() { r.carryOut(ctx, f) })
	}
	rest(ctx, r.plan.Duration-time.Since(began))
	r.load.end()
	under.Wait()
	stopWatching()
	watched.Wait()
	if ctx.Err() == nil {
		r.log.say("all faults are healed; committed %d events, rolled back %d, in doubt %d",
			r.load.ledger.count(committed), r.load.ledger.count(rolledBack), r.load.ledger.count(inDoubt))
	}
	return ctx.Err()
}

// doing is a fault that is carried out.
type doing struct {
	Fault
	ctx context.Context
	log *log
}

// say logs what is done.
func (d *doing) say(format string, args ...any) {
	d.log.say("%s %s: %s", d.Kind, d.Target, fmt.Sprintf(format, args...))
}

// last returns when the fault has lasted as long as it is to.
func (d *doing) last() { rest(d.ctx, d.For) }

// held are the resources that somebody breaks now.
type held struct {
	mu     sync.Mutex
	byName map[string]*sync.Mutex
}

// take waits until nobody else has the resource, and returns what gives it back.
func (h *held) take(resource string) (give func()) {
	h.mu.Lock()
	if h.byName == nil {
		h.byName = map[string]*sync.Mutex{}
	}
	m := h.byName[resource]
	if m == nil {
		m = &sync.Mutex{}
		h.byName[resource] = m
	}
	h.mu.Unlock()
	m.Lock()
	return m.Unlock
}

func (r *run) carryOut(ctx context.Context, f Fault) {
	for _, k := range slices.Concat(kinds, kubernetesKinds) {
		if k.name != f.Kind {
			continue
		}
		if k.hold != nil { // the plan has left time, but healing may take longer than planned
			defer r.held.take(k.hold(f.Target))()
		}
		text := strings.TrimSpace(f.Kind + " " + f.Target)
		if f.For > 0 {
			text += fmt.Sprintf(" for %.2fs", f.For.Seconds())
		}
		r.log.say("%s", text)
		if err := k.do(r, &doing{Fault: f, ctx: ctx, log: r.log}); err != nil && ctx.Err() == nil {
			r.log.say("%s %s was not done: %v", f.Kind, f.Target, err)
		}
	}
}

// heal undoes something, as often as it takes. That it cannot be undone is wrong.
func (r *run) heal(ctx context.Context, what string, undo func(context.Context) error) {
	if err := r.eventually(ctx, what, undo); err != nil && ctx.Err() == nil {
		r.blame("%v", err)
	}
}

// eventually tries until it works, or for too long.
func (r *run) eventually(ctx context.Context, what string, try func(context.Context) error) error {
	deadline := time.Now().Add(healing)
	for {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := try(limited)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: tried for %s: %w", what, healing, err)
		}
		rest(ctx, 100*time.Millisecond)
	}
}

// blame notes that something is wrong.
func (r *run) blame(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.log.say("WRONG: %s", text)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, text)
}

// streamsWell returns nil if every stream has a leader, and every replica follows it.
func (r *run) streamsWell(ctx context.Context) error {
	for _, s := range streams {
		handle, err := r.box.JetStream.Stream(ctx, s.name)
		if err != nil {
			return fmt.Errorf("ask for stream %s: %w", s.name, err)
		}
		if c := handle.CachedInfo().Cluster; c != nil {
			if err := clusterWell(c); err != nil {
				return fmt.Errorf("stream %s: %w", s.name, err)
			}
		}
	}
	return nil
}

func clusterWell(c *jetstream.ClusterInfo) error {
	if c.Leader == "" {
		return errors.New("it has no leader")
	}
	for _, p := range c.Replicas {
		if !p.Current || p.Offline {
			return fmt.Errorf("%s does not follow", p.Name)
		}
	}
	return nil
}

// watch says now and then how things stand, until ctx ends.
func (r *run) watch(ctx context.Context) {
	for {
		rest(ctx, 10*time.Second)
		if ctx.Err() != nil {
			return
		}
		stored, err := r.box.Stored(ctx)
		if err != nil {
			continue
		}
		r.log.say("%d committed, %d stored", r.load.ledger.count(committed), stored)
	}
}

// close ends everything.
func (r *run) close() error {
	var err error
	if r.load != nil && r.load.stop != nil {
		r.load.end()
	}
	if r.store != nil {
		r.store.Close()
	}
	if r.box != nil {
		err = r.box.Close()
	}
	for _, l := range r.lines {
		for _, p := range l.nats {
			p.close()
		}
		if l.postgres != nil {
			l.postgres.close()
		}
	}
	if r.bouncer != nil {
		err = errors.Join(err, r.bouncer.Close())
	}
	for _, p := range r.nats {
		p.Stop()
	}
	err = errors.Join(err, r.closeKubernetes())
	return errors.Join(err, r.log.close())
}
