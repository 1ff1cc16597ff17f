// Package demo shows Outlane's main job on one machine: a private Postgres, a
// NATS server, a pool of worker processes and producers, with a worker killed
// and NATS stopped in the middle, and at the end a check of every event.
//
// # What it promises
//
// Run returns nil only if every committed event is in its stream exactly once,
// in order, or is the one poisoned event in the dead-letter list, and the
// workers ended as told. What it started, it ends and removes, also when its
// context ends. If it is killed, servers and workers end as well, and a folder
// is left. Servers listen on 127.0.0.1 only.
//
// # What it does not promise
//
// Its figures are of one machine on which everything shares the cores. The
// private Postgres runs without fsync, since nobody needs its data.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/outlane/outlane/internal/city"
	"github.com/outlane/outlane/internal/sandbox"
)

// Options say how big the demo is. Zero values take what Defaults says.
type Options struct {
	// Program is the outlane executable that the workers run.
	Program string
	Out     io.Writer
	// Width is the terminal's, or 0 if Out is no terminal.
	Width int
	// Keep leaves everything running after the summary, until the context ends.
	Keep bool

	Events, Teams, Partitions, Workers, Producers int
	// Rate is in events per second, for the first three quarters of the events.
	Rate int
	Seed uint64
	// Lease is how long a silent worker keeps its partitions.
	Lease time.Duration
	// Outage is how long NATS is away.
	Outage time.Duration
}

// Defaults are the options of `outlane demo`.
func Defaults() Options {
	return Options{
		Events: 60_000, Teams: 500, Partitions: 64, Workers: 3, Producers: 16, Rate: 2000, Seed: 1, Lease: 3 * time.Second, Outage: 5 * time.Second,
	}
}

// Least is how small some of the options can be: with less, the demo has no time to break things.
var Least = map[string]int{"events": 6000, "teams": 2, "rate": 100}

// ErrFailed is returned when the demo ran to its end and something was wrong; the summary says what.
var ErrFailed = errors.New("the demo found faults")

var errInterrupted = errors.New("interrupted")

// drainPatience is how long the pool may take, after the last event, to store what is left.
const drainPatience = time.Minute

type demo struct {
	opts   Options
	show   *display
	box    *sandbox.Sandbox
	load   *load
	faults faults
}

// Run runs the demo, and prints what happens and a summary to opts.Out.
func Run(ctx context.Context, opts Options) (err error) {
	d := &demo{opts: opts, show: newDisplay(opts.Out, opts.Width)}
	defer d.show.clear()
	d.show.say("starting a private Postgres and a NATS server")
	if d.box, err = sandbox.Start(ctx, sandbox.Options{Program: opts.Program, Config: d.config()}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	result, err := d.run(ctx)
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		d.show.clear()
		d.showLogs()
		return err
	}
	if !opts.Keep {
		result.unclean = d.box.StopWorkers()
	}
	d.show.clear()
	result.print(opts.Out)
	if opts.Keep {
		d.printAddresses()
		<-ctx.Done()
		result.unclean = d.box.StopWorkers()
	}
	if !result.good() {
		d.showLogs()
		return fmt.Errorf("%w: %s", ErrFailed, result.why())
	}
	return nil
}

func (d *demo) run(ctx context.Context) (*result, error) {
	if err := d.start(ctx); err != nil {
		return nil, err
	}
	if err := d.play(ctx); err != nil {
		return nil, err
	}
	return d.judge(ctx)
}

// start makes the schema, the streams and the workers.
func (d *demo) start(ctx context.Context) error {
	d.show.say("outlane migrate up --partitions %d", d.opts.Partitions)
	if err := d.box.Command(ctx, "migrate", "up", "--partitions", fmt.Sprint(d.opts.Partitions)); err != nil {
		return err
	}
	d.show.say("outlane streams apply: %d streams", len(city.Streams))
	if err := d.box.Command(ctx, "streams", "apply"); err != nil {
		return err
	}
	if _, err := d.box.DB.Exec(ctx, ledger); err != nil {
		return fmt.Errorf("create the city's ledger: %w", err)
	}
	d.show.say("starting %d workers", d.opts.Workers)
	for i := range d.opts.Workers {
		if _, err := d.box.StartWorker(fmt.Sprintf("worker-%d", i+1)); err != nil {
			return err
		}
	}
	return d.awaitOwners(ctx)
}

// config is the workers' configuration file.
func (d *demo) config() string {
	text := fmt.Sprintf("partitionKeyField: team_id\nlease: {backend: postgres, duration: %s}\nroutes:\n", d.opts.Lease)
	for _, s := range city.Streams {
		policy := "skip"
		if city.Blocking[s.Name] {
			policy = "block"
		}
		text += fmt.Sprintf("  - {topics: [%q], stream: %s, onDeadLetter: %s}\n", s.Subject, s.Name, policy)
	}
	text += "streams:\n"
	for _, s := range city.Streams {
		text += fmt.Sprintf("  - {name: %s, subjects: [%q], storage: file, duplicateWindow: 2m}\n", s.Name, s.Subject)
	}
	return text
}

func (d *demo) close() error {
	if d.load != nil {
		d.load.stop()
	}
	return d.box.Close()
}

func (d *demo) printAddresses() {
	// To the terminal; nobody is told if it is gone.
	_, _ = fmt.Fprintf(d.opts.Out, "\nStill running; end it with Ctrl-C.\n\n  export OUTLANE_DATABASE_URL=%q\n  export OUTLANE_NATS_URL=%q\n  export OUTLANE_CONFIG=%q\n\n",
		d.box.DatabaseURL, d.box.NATS.URL(), d.box.ConfigFile)
	for _, w := range d.box.Workers {
		_, _ = fmt.Fprintf(d.opts.Out, "  %s  http://%s/metrics  %s\n", w.ID, w.Addr, w.Log)
	}
}

// showLogs prints the end of each worker's log.
func (d *demo) showLogs() {
	for _, w := range d.box.Workers {
		if tail := w.Tail(); tail != "" {
			_, _ = fmt.Fprintf(d.opts.Out, "\nthe end of the log of %s:\n%s\n", w.ID, tail) // as above
		}
	}
}
