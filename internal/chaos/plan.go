package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Fault is one thing that is broken.
type Fault struct {
	At, For time.Duration // from the beginning, and how long
	Kind    string
	Target  string
	N       int64 // drawn for the kind to use as it likes
}

func (f Fault) String() string {
	text := fmt.Sprintf("%7.2fs  %s", f.At.Seconds(), f.Kind)
	if f.Target != "" {
		text += " " + f.Target
	}
	if f.For > 0 {
		text += fmt.Sprintf(" for %.2fs", f.For.Seconds())
	}
	return text
}

// Pool is how the pool of a run is set up.
type Pool struct {
	Workers, Partitions, Batch, Publishers, MaxAttempts int
	Lease, AckTimeout, StatementTimeout                 time.Duration
	Memory                                              string
	PollOnly                                            bool // so transactions may be prepared
	Pooler                                              bool // pgbouncer stands between workers and Postgres
}

func (p Pool) String() string {
	text := fmt.Sprintf("%d workers, %d partitions, batches of %d, %d publishers, %d attempts, lease %s, acknowledged in %s, statements %s, memory %s",
		p.Workers, p.Partitions, p.Batch, p.Publishers, p.MaxAttempts, p.Lease, p.AckTimeout, p.StatementTimeout, p.Memory)
	if p.PollOnly {
		text += ", polling only"
	}
	if p.Pooler {
		text += ", through pgbouncer"
	}
	return text
}

// Plan is all that a seed decides about a run, but for the events.
type Plan struct {
	Seed     uint64
	Duration time.Duration
	Pool     Pool
	Faults   []Fault // by time
}

func (p Plan) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s: %s\n", p.Seed, p.Duration, p.Pool)
	for _, f := range p.Faults {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

// extras are workers that come and go.
const extras = 2

// kind is a kind of fault.
type kind struct {
	name        string
	weight      int
	least, most time.Duration // how long; 0: a moment
	target      func(*rand.Rand, Pool) string
	// hold names what nobody else may break meanwhile; nil: nothing.
	hold func(target string) string
	do   func(*run, *doing) error
}

// only names one resource whatever the target.
func only(resource string) func(string) string { return func(string) string { return resource } }

func itself(target string) string { return target }

func oneWorker(r *rand.Rand, p Pool) string { return fmt.Sprintf("worker-%d", 1+r.IntN(p.Workers)) }

func oneExtra(r *rand.Rand, _ Pool) string { return fmt.Sprintf("extra-%d", 1+r.IntN(extras)) }

func oneServer(r *rand.Rand, _ Pool) string { return fmt.Sprintf("nats-%d", 1+r.IntN(servers)) }

func oneStream(r *rand.Rand, _ Pool) string { return streams[r.IntN(len(streams))].name }

func one(words ...string) func(*rand.Rand, Pool) string {
	return func(r *rand.Rand, _ Pool) string { return words[r.IntN(len(words))] }
}

func nobody(*rand.Rand, Pool) string { return "" }

// kinds are all that can happen.
var kinds = []kind{
	{"worker killed", 6, 300 * time.Millisecond, 6 * time.Second, oneWorker, itself, (*run).killWorker},
	{"worker stopped", 4, 200 * time.Millisecond, 4 * time.Second, oneWorker, itself, (*run).stopWorker},
	{"worker paused", 6, 500 * time.Millisecond, 10 * time.Second, oneWorker, itself, (*run).pauseWorker},
	{"worker added", 3, 2 * time.Second, 15 * time.Second, oneExtra, itself, (*run).joinWorker},

	{"NATS refused to", 3, 500 * time.Millisecond, 8 * time.Second, oneWorker, itself, (*run).cutNATS},
	{"NATS silent to", 3, 500 * time.Millisecond, 15 * time.Second, oneWorker, itself, (*run).silenceNATS},
	{"answers of NATS swallowed to", 4, 300 * time.Millisecond, 6 * time.Second, oneWorker, itself, (*run).deafenNATS},
	{"NATS slow to", 2, time.Second, 10 * time.Second, oneWorker, itself, (*run).slowNATS},
	{"Postgres refused to", 3, 500 * time.Millisecond, 8 * time.Second, oneWorker, itself, (*run).cutPostgres},
	{"Postgres silent to", 3, 500 * time.Millisecond, 15 * time.Second, oneWorker, itself, (*run).silencePostgres},
	{"answers of Postgres swallowed to", 4, 300 * time.Millisecond, 6 * time.Second, oneWorker, itself, (*run).deafenPostgres},
	{"Postgres slow to", 2, time.Second, 10 * time.Second, oneWorker, itself, (*run).slowPostgres},

	{"NATS killed", 4, 200 * time.Millisecond, 6 * time.Second, oneServer, only("nats"), (*run).killNATS},
	{"NATS stopped", 3, 200 * time.Millisecond, 6 * time.Second, oneServer, only("nats"), (*run).stopNATS},
	{"NATS in lame duck mode", 2, 200 * time.Millisecond, 4 * time.Second, oneServer, only("nats"), (*run).lameDuckNATS},
	{"NATS frozen", 4, 500 * time.Millisecond, 12 * time.Second, oneServer, only("nats"), (*run).freezeNATS},
	{"all NATS servers stopped", 1, 500 * time.Millisecond, 6 * time.Second, nobody, only("nats"), (*run).stopAllNATS},
	{"leader steps down", 6, 200 * time.Millisecond, 4 * time.Second, oneStream, nil, (*run).stepDown},
	{"other publishing mode", 2, time.Second, 10 * time.Second, oneStream, itself, (*run).switchMode},
	{"stream full", 3, time.Second, 8 * time.Second, oneStream, itself, (*run).fillStream},

	{"Postgres restarted", 2, 0, 3 * time.Second, nobody, only("postgres"), (*run).restartPostgres},
	{"Postgres crashed", 2, 0, 3 * time.Second, nobody, only("postgres"), (*run).crashPostgres},
	{"Postgres killed", 2, 0, 3 * time.Second, nobody, only("postgres"), (*run).killPostgres},
	{"Postgres frozen", 3, 500 * time.Millisecond, 8 * time.Second, nobody, only("postgres"), (*run).freezePostgres},
	{"backends terminated", 5, 0, 3 * time.Second, one("all", "workers"), nil, (*run).terminateBackends},
	{"table locked", 5, 500 * time.Millisecond, 6 * time.Second, one("outbox_events", "outlane_partitions", "outlane_leases", "outlane_lanes",
		"outbox_dead_letters"), only("tables"), (*run).lockTable},
	{"rows locked", 3, 500 * time.Millisecond, 8 * time.Second, one("outbox_events", "outlane_partitions"), only("tables"), (*run).lockRows},
	{"column added", 2, time.Second, 5 * time.Second, nobody, only("tables"), (*run).addColumn},
	{"marks refused", 3, time.Second, 8 * time.Second, nobody, only("tables"), (*run).refuseMarks},
	{"epochs raised", 4, 0, 0, nobody, nil, (*run).raiseEpochs},
	{"leases edited", 5, 0, 0, one("to a member", "to somebody unknown", "to nobody"), nil, (*run).editLeases},
	{"member deleted", 3, 0, 0, nobody, nil, (*run).deleteMember},

	{"long transaction", 6, time.Second, 12 * time.Second, one("commits", "rolls back"), nil, (*run).longTransaction},
	{"long transaction elsewhere", 2, 2 * time.Second, 15 * time.Second, one("writes", "reads"), nil, (*run).elsewhere},
	{"prepared transaction", 5, time.Second, 12 * time.Second, one("commits", "rolls back"), nil, (*run).prepareTransaction},
	{"burst of events", 3, 0, 0, nobody, nil, (*run).burst},
	{"poisoned events", 8, 0, 0, oneStream, nil, (*run).poison},
	{"decision", 9, 0, 0, one("retried", "mended and retried", "skipped"), nil, (*run).decide},
}

// Draw makes the plan of a seed. Every is the mean time between two faults.
func Draw(seed uint64, duration, every time.Duration) Plan {
	r := rand.New(rand.NewPCG(seed, 2))
	p := Plan{Seed: seed, Duration: duration, Pool: drawPool(r)}
	p.Faults = p.draw(r, kinds, every)
	return p
}

// draw draws faults of the given kinds, by time.
func (p *Plan) draw(r *rand.Rand, kinds []kind, every time.Duration) (faults []Fault) {
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	free := map[string]time.Duration{} // resource: until when it is held
	at := time.Second
	for {
		at += time.Duration(r.ExpFloat64() * float64(every))
		if at >= p.Duration {
			break
		}
		k := pick(r, kinds, total)
		f := Fault{At: at, Kind: k.name, Target: k.target(r, p.Pool), N: r.Int64N(1 << 40)}
		if k.most > 0 {
			f.For = min(k.least+time.Duration(r.Int64N(int64(k.most-k.least))), p.Duration-at).Truncate(10 * time.Millisecond)
		}
		if k.name == "prepared transaction" && !p.Pool.PollOnly {
			continue
		}
		if k.hold != nil {
			resource := k.hold(f.Target)
			if at < free[resource] {
				continue
			}
			free[resource] = at + f.For + time.Second
		}
		faults = append(faults, f)
	}
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	return faults
}

func pick(r *rand.Rand, kinds []kind, total int) kind {
	n := r.IntN(total)
	for _, k := range kinds {
		if n -= k.weight; n < 0 {
			return k
		}
	}
	return kinds[0]
}

func drawPool(r *rand.Rand) Pool {
	return Pool{
		Workers: 2 + r.IntN(3), Partitions: choose(r, 4, 16, 64), Batch: choose(r, 5, 50, 250), Publishers: choose(r, 1, 8, 8),
		MaxAttempts: choose(r, 1, 3, 5), Lease: choose(r, time.Second, 2*time.Second, 4*time.Second),
		AckTimeout: choose(r, time.Second, 2*time.Second, 5*time.Second), StatementTimeout: choose(r, 2*time.Second, 5*time.Second, 30*time.Second),
		Memory: choose(r, "4MiB", "8MiB", "64MiB"), PollOnly: r.IntN(3) == 0, Pooler: r.IntN(5) == 0,
	}
}

func choose[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }
