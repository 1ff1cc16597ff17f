package chaos

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/outlane/outlane/internal/sandbox"
)

const (
	// restartEvery is the time between two rolling restarts of a soak that is long enough for it; a shorter one has three.
	restartEvery = time.Minute
	// The first worker is never restarted, so that what it gathers shows.
	soakWorkers = 4
	soakRate    = 1000
	sampleEvery = time.Second
	reportEvery = 10 * time.Second
)

// The last third of a run may need more than the first by a factor and a constant.
const (
	growthFactor     = 1.5
	growthBytes      = 32 << 20
	growthGoroutines = 50
)

// soakPool is a pool as its users have it.
var soakPool = Pool{
	Workers: soakWorkers, Partitions: 64, Batch: 250, Publishers: 8, MaxAttempts: 5, Lease: 10 * time.Second, AckTimeout: 5 * time.Second,
	StatementTimeout: 30 * time.Second, Memory: "64MiB",
}

// Soak runs a pool for long at a steady rate, with rolling restarts, and checks every event as Run does, and that the workers' memory and
// goroutines do not grow. It returns nil, ErrFaults, or why there was no run.
func Soak(ctx context.Context, opts Options) error {
	if opts.Rate == 0 {
		opts.Rate = soakRate
	}
	r := &run{opts: opts, name: "soak", servers: 1, direct: true, plan: Plan{Seed: opts.Seed, Duration: opts.Duration, Pool: soakPool}}
	r.again = fmt.Sprintf("make soak MINUTES=%.4g SEED=%d", opts.Duration.Minutes(), opts.Seed)
	return r.whole(ctx, (&soak{run: r, gauges: map[string]*gauges{}}).play)
}

type soak struct {
	*run
	mu     sync.Mutex
	gauges map[string]*gauges // by worker
}

// gauges are what was seen of one worker.
type gauges struct{ memory, goroutines []sample }

type sample struct {
	at    time.Duration
	value float64
}

// play inserts events and restarts workers until the time is over.
func (s *soak) play(ctx context.Context) error {
	s.log.restart()
	began := time.Now()
	s.load.start(ctx)
	timed, cancel := context.WithTimeout(ctx, s.opts.Duration)
	defer cancel()
	var others sync.WaitGroup
	others.Go(func() { s.sampleAll(timed, began) })
	others.Go(func() { s.report(timed) })
	every := min(restartEvery, s.opts.Duration/4)
	for n := 1; timed.Err() == nil; n++ {
		rest(timed, time.Until(began.Add(time.Duration(n)*every)))
		if timed.Err() == nil && s.opts.Duration-time.Since(began) > every/2 {
			s.restartAll(timed)
		}
	}
	s.load.end()
	others.Wait()
	s.log.say("%.0f events a second were committed, of the %d that were wanted", float64(s.load.ledger.count(committed))/time.Since(began).Seconds(), s.opts.Rate)
	s.judgeGrowth()
	return ctx.Err()
}

// restartAll stops and starts every worker but the first, one after another.
func (s *soak) restartAll(ctx context.Context) {
	for _, w := range s.box.Workers[1:] {
		if ctx.Err() != nil {
			return
		}
		began := time.Now()
		if err := w.Stop(); err != nil {
			s.blame("%s did not stop as it should: %v; its log ends so:\n%s", w.ID, err, w.Tail())
		}
		stopped := time.Since(began)
		s.heal(ctx, "start "+w.ID+" again", s.starting(w))
		s.heal(ctx, "wait for "+w.ID, func(ctx context.Context) error { return ready(ctx, w) })
		s.log.say("%s restarted: stopped in %s, ready after %s", w.ID, stopped.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	}
}

func ready(ctx context.Context, w *sandbox.Worker) error {
	answer, err := get(ctx, "http://"+w.Addr+"/readyz")
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s is not ready", w.ID)
	}
	return nil
}

func get(ctx context.Context, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return http.DefaultClient.Do(req)
}

// sampleAll reads every worker's gauges again and again until ctx ends.
func (s *soak) sampleAll(ctx context.Context, began time.Time) {
	for ctx.Err() == nil {
		for _, w := range s.box.Workers {
			memory, goroutines, err := read(ctx, w)
			if err != nil {
				continue // it is being restarted
			}
			s.mu.Lock()
			g := s.gauges[w.ID]
			if g == nil {
				g = &gauges{}
				s.gauges[w.ID] = g
			}
			at := time.Since(began)
			g.memory = append(g.memory, sample{at, memory})
			g.goroutines = append(g.goroutines, sample{at, goroutines})
			s.mu.Unlock()
		}
		rest(ctx, sampleEvery)
	}
}

// read reads a worker's memory, in bytes, and its goroutines from its metrics.
func read(ctx context.Context, w *sandbox.Worker) (memory, goroutines float64, err error) {
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	answer, err := get(limited, "http://"+w.Addr+"/metrics")
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = answer.Body.Close() }()
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		switch name {
		case "process_resident_memory_bytes":
			memory, err = strconv.ParseFloat(value, 64)
		case "go_goroutines":
			goroutines, err = strconv.ParseFloat(value, 64)
		}
		if err != nil {
			return 0, 0, fmt.Errorf("read the metrics of %s: %w", w.ID, err)
		}
	}
	if memory == 0 || goroutines == 0 {
		return 0, 0, fmt.Errorf("read the metrics of %s: its memory or its goroutines are missing", w.ID)
	}
	return memory, goroutines, lines.Err()
}

// report says every ten seconds how things stand, until ctx ends.
func (s *soak) report(ctx context.Context) {
	var before int64
	last := time.Now()
	for {
		rest(ctx, reportEvery)
		if ctx.Err() != nil {
			return
		}
		stored, err := s.box.Stored(ctx)
		if err != nil {
			s.log.say("the streams cannot be asked: %v", err)
			continue
		}
		total := s.load.ledger.count(committed)
		rate := float64(stored-before) / time.Since(last).Seconds()
		before, last = stored, time.Now()
		s.log.say("%d committed, %d waiting, %.0f stored/s; %s", total, max(0, total-stored), rate, s.now())
	}
}

// now is what every worker needs at the moment.
func (s *soak) now() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var parts []string
	for _, w := range s.box.Workers {
		if g := s.gauges[w.ID]; g != nil {
			n := len(g.memory) - 1
			parts = append(parts, fmt.Sprintf("%s %.0f MiB %.0f goroutines", w.ID, g.memory[n].value/(1<<20), g.goroutines[n].value))
		}
	}
	return strings.Join(parts, ", ")
}

// judgeGrowth compares the last third of the run with the first: the worker that ran all the time, and the others together.
func (s *soak) judgeGrowth() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var young gauges
	for _, w := range s.box.Workers[1:] {
		if g := s.gauges[w.ID]; g != nil {
			young.memory = append(young.memory, g.memory...)
			young.goroutines = append(young.goroutines, g.goroutines...)
		}
	}
	steady := s.gauges[s.box.Workers[0].ID]
	if steady == nil {
		s.blame("the first worker never told of its memory")
		return
	}
	s.compareThirds("memory in MiB of the worker that was never restarted", steady.memory, 1<<20, growthBytes)
	s.compareThirds("goroutines of the worker that was never restarted", steady.goroutines, 1, growthGoroutines)
	s.compareThirds("memory in MiB of the workers that were restarted", young.memory, 1<<20, growthBytes)
	s.compareThirds("goroutines of the workers that were restarted", young.goroutines, 1, growthGoroutines)
}

func (s *soak) compareThirds(what string, samples []sample, unit, constant float64) {
	third := s.opts.Duration / 3
	first, last := medianOf(samples, third/4, third), medianOf(samples, 2*third, s.opts.Duration+third) // its very beginning is no measure
	s.log.say("%s: %.0f in the first third, %.0f in the last", what, first/unit, last/unit)
	if first == 0 || last == 0 || last > growthFactor*first+constant {
		s.blame("%s grew from %.0f to %.0f", what, first/unit, last/unit)
	}
}

// medianOf is the median of the samples of a time, 0 if there are none.
func medianOf(samples []sample, from, to time.Duration) float64 {
	var values []float64
	for _, x := range samples {
		if x.at >= from && x.at < to {
			values = append(values, x.value)
		}
	}
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}
