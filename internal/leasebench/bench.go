package leasebench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/outlane/outlane/internal/controlplane"
	"github.com/outlane/outlane/lease"
	"github.com/outlane/outlane/lease/leasetest"
)

// Options say what to measure.
type Options struct {
	Partitions, Members int
	Duration            time.Duration // of the members' leases
	Steady              time.Duration // how long the steady state is measured
	Out                 io.Writer     // gets the tables
	Progress            io.Writer     // gets a line for each step
}

// ceiling bounds each step.
const ceiling = 10 * time.Minute

// bench is a run.
type bench struct {
	Options
	cluster *controlplane.Cluster
	pool    *pool
	rows    [][2]string
}

// Run measures and prints.
func Run(ctx context.Context, opts Options) error {
	program, err := controlplane.Build(ctx, opts.Progress)
	if err != nil {
		return err
	}
	cluster, err := controlplane.Start(ctx, controlplane.Options{Program: program})
	if err != nil {
		return err
	}
	defer func() { _ = cluster.Close() }() // it is thrown away
	client, _, err := lease.LoadKubernetes(cluster.Kubeconfig(controlplane.Admin))
	if err != nil {
		return err
	}
	b := &bench{Options: opts, cluster: cluster, pool: &pool{opts: opts, client: client}}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"start", b.start}, {"steady state", b.steady}, {"death", b.death}, {"joins", b.joins}, {"rollout", b.rollout}, {"baseline", b.baseline},
	} {
		b.say("%s …", step.name)
		limited, cancel := context.WithTimeout(ctx, ceiling)
		err := step.do(limited)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return b.print()
}

func (b *bench) say(format string, args ...any) { _, _ = fmt.Fprintf(b.Progress, format+"\n", args...) }

func (b *bench) row(what, format string, args ...any) {
	b.rows = append(b.rows, [2]string{what, fmt.Sprintf(format, args...)})
	b.say("  %s: %s", what, b.rows[len(b.rows)-1][1])
}

// heap is how much memory this process has in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// atATime is how many members start at a time in the beginning.
const atATime = 10

func (b *bench) start(ctx context.Context) error {
	empty, began := heap(), time.Now()
	for left := b.Members; left > 0; left -= atATime {
		if err := b.pool.start(min(left, atATime)); err != nil {
			return err
		}
		if err := b.pool.settled(ctx); err != nil {
			return err
		}
	}
	b.row(fmt.Sprintf("%d members start, %d at a time", b.Members, atATime), "%s, %d moves", span(time.Since(began)), b.pool.gained.Load())
	b.row("memory per member, with its connections", "%d kB", (heap()-empty)/int64(b.Members)/1024)
	return nil
}

// traffic is what the API server counts, and what the members received.
type traffic struct {
	at     time.Time
	writes map[string]float64 // by verb
	read   int64
	cpu    float64 // seconds
}

func (b *bench) traffic(ctx context.Context) (traffic, error) {
	answer, _, err := b.cluster.Call(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return traffic{}, err
	}
	t := traffic{at: time.Now(), writes: map[string]float64{}, read: b.pool.read.Load()}
	for lines := bufio.NewScanner(bytes.NewReader(answer)); lines.Scan(); {
		line := lines.Text()
		name, value, ok := strings.Cut(line, "} ")
		if number, found := strings.CutPrefix(line, "process_cpu_seconds_total "); found {
			name, value, ok = "", "", false
			t.cpu, _ = strconv.ParseFloat(number, 64)
		}
		if !ok || !strings.HasPrefix(name, "apiserver_request_total{") || !strings.Contains(name, `resource="leases"`) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		for _, verb := range []string{"GET", "LIST", "POST", "PUT", "DELETE", "WATCH"} {
			if strings.Contains(name, `verb="`+verb+`"`) {
				t.writes[verb] += n
			}
		}
	}
	return t, nil
}

// during measures the traffic of a while.
func (b *bench) during(ctx context.Context, d time.Duration) (writes, gets, bytes, cpu float64, err error) {
	before, err := b.traffic(ctx)
	if err != nil {
		return 0, 0, 0, 0, err
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return 0, 0, 0, 0, ctx.Err()
	}
	after, err := b.traffic(ctx)
	if err != nil {
		return 0, 0, 0, 0, err
	}
	seconds := after.at.Sub(before.at).Seconds()
	rate := func(verb string) float64 { return (after.writes[verb] - before.writes[verb]) / seconds }
	return rate("PUT") + rate("POST") + rate("DELETE"), rate("GET") + rate("LIST"), float64(after.read-before.read) / seconds,
		(after.cpu - before.cpu) / seconds, nil
}

func (b *bench) steady(ctx context.Context) error {
	moves := b.pool.gained.Load()
	writes, gets, bytes, cpu, err := b.during(ctx, b.Steady)
	if err != nil {
		return err
	}
	b.row("steady state: writes", "%.1f/s", writes)
	b.row("steady state: writes if the duration were 30 s", "%.1f/s (computed)", float64(b.Members)*3/30)
	b.row("steady state: reads (health of quiet watches)", "%.1f/s", gets)
	b.row("steady state: received by each member", "%.1f kB/s", bytes/float64(b.Members)/1024)
	b.row("steady state: sent by the API server in all", "%.2f MB/s", bytes/1e6)
	b.row("steady state: CPU of the API server", "%.2f cores", cpu)
	b.row("steady state: moves", "%d", b.pool.gained.Load()-moves)
	b.row("memory of the API server and of etcd", "%d MB, %d MB", b.cluster.Memory(controlplane.APIServer)>>20, b.cluster.Memory(controlplane.Etcd)>>20)
	return nil
}

func (b *bench) death(ctx context.Context) error {
	victim := b.pool.take(1)[0]
	id, held := victim.ID(), victim.Holding()
	moves, began := b.pool.gained.Load(), time.Now()
	victim.way.Set(leasetest.Down)
	// It is known when its record is gone.
	known, err := b.gone(ctx, id)
	if err != nil {
		return err
	}
	if err := b.pool.settled(ctx); err != nil {
		return err
	}
	over := time.Now()
	b.row(fmt.Sprintf("a death, of one that held %d", held), "%d moves; known after %s, over %s later", b.pool.gained.Load()-moves, span(known.Sub(began)), span(over.Sub(known)))
	end([]*member{victim})
	return nil
}

// gone waits until no member of the pool sees the record of one any more that another removed, and returns when the first did.
func (b *bench) gone(ctx context.Context, id string) (time.Time, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for b.pool.members[0].Sees(id) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
	return time.Now(), nil
}

func (b *bench) joins(ctx context.Context) error {
	const ten = 10
	moves, began := b.pool.gained.Load(), time.Now()
	if err := b.pool.start(ten); err != nil {
		return err
	}
	if err := b.pool.settled(ctx); err != nil {
		return err
	}
	least := b.Partitions * ten / len(b.pool.members)
	b.row("ten join", "%s, %d moves (at least %d)", span(time.Since(began)), b.pool.gained.Load()-moves, least)
	return nil
}

func (b *bench) rollout(ctx context.Context) error {
	n := len(b.pool.members)
	step := max(n/4, 1)
	moves, began := b.pool.gained.Load(), time.Now()
	for left := n; left > 0; left -= step {
		k := min(step, left)
		if err := b.pool.start(k); err != nil {
			return err
		}
		if err := b.pool.settled(ctx); err != nil {
			return err
		}
		end(b.pool.take(k))
		if err := b.pool.settled(ctx); err != nil {
			return err
		}
	}
	b.row(fmt.Sprintf("rollout of all %d, a quarter at a time, new ones first", n), "%s, %d moves (at least %d)", span(time.Since(began)), b.pool.gained.Load()-moves, b.Partitions)
	end(b.pool.take(len(b.pool.members)))
	return nil
}

func span(d time.Duration) string { return d.Round(10 * time.Millisecond).String() }

func (b *bench) print() error {
	text := fmt.Sprintf("\n%d partitions, %d members, lease duration %s, one API server and etcd on this machine (%d cores)\n\n| what | measured |\n|---|---|\n",
		b.Partitions, b.Members, b.Duration, runtime.NumCPU())
	for _, r := range b.rows {
		text += "| " + r[0] + " | " + r[1] + " |\n"
	}
	if _, err := io.WriteString(b.Out, text); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}
