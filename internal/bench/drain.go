package bench

import (
	"context"
	"fmt"
	"time"
)

// side is one way to drain a backlog.
type side struct {
	name  string
	from  backlog
	opts  siteOptions
	start func(ctx context.Context, s *site) error // until it is ready to begin
	begin func(ctx context.Context, s *site) (time.Time, error)
}

// drained is how a drain went.
type drained struct {
	rate    float64 // events per second, from the first stored to the last
	overall float64 // the same from the moment when the backlog was released
	peak    float64 // the most memory that one of the workers had, in MiB
	used    usage   // an event, in microseconds
	faults  faults
}

// pool is a side with worker processes.
func pool(n int, from backlog, env ...string) side {
	return side{
		name: "outlane, " + number(n, "worker"), from: from, opts: siteOptions{streams: from.streams, hole: from.hole()},
		start: func(ctx context.Context, s *site) error { return s.startWorkers(ctx, n, env...) },
		begin: func(ctx context.Context, s *site) (time.Time, error) { return s.release(ctx, from.events) },
	}
}

// floorOf is a side with processes that do only what must be done.
func floorOf(n int, from backlog, batch int) side {
	name := "floor, " + number(n, "process")
	if batch != floorBatch {
		name += fmt.Sprintf(", %d a batch", batch)
	}
	return side{
		name: name, from: from, opts: siteOptions{streams: from.streams, hole: from.hole()},
		start: func(ctx context.Context, s *site) error { return s.runFloor(ctx, n, from.partitions, batch) },
		begin: func(_ context.Context, s *site) (time.Time, error) { return s.tellOthers() },
	}
}

// plainPollers is a side with the usual pollers.
func plainPollers(n int, skipLocked, markAtOnce bool, from backlog) side {
	from.plain = true
	name := "ordered plain poller"
	if skipLocked {
		name = "SKIP LOCKED, " + number(n, "poller")
	}
	if markAtOnce {
		name += ", marks 250 rows at once"
	}
	return side{
		name: name, from: from, opts: siteOptions{streams: from.streams, hole: from.hole()},
		start: func(_ context.Context, s *site) error {
			return s.startOther("pollers", order{Pollers: &pollersOrder{Database: s.url, NATS: s.natsAt, Pollers: n, SkipLocked: skipLocked, MarkAtOnce: markAtOnce}})
		},
		begin: func(_ context.Context, s *site) (time.Time, error) { return s.tellOthers() },
	}
}

// run drains once. during, if not nil, is called while it drains, and its undo before the site is removed.
func (d side) run(ctx context.Context, l *lab) (result drained, err error) {
	l.say("%s", d.name)
	template, err := l.backlog(ctx, d.from)
	if err != nil {
		return result, err
	}
	s, err := l.site(ctx, template, d.opts)
	if err != nil {
		return result, err
	}
	if err := d.start(ctx, s); err != nil {
		return result, err
	}
	before, err := s.usage()
	if err != nil {
		return result, err
	}
	began, err := d.begin(ctx, s)
	if err != nil {
		return result, err
	}
	first, last, err := s.awaitStored(ctx, d.from.events)
	if err != nil {
		return result, err
	}
	after, err := s.usage()
	if err != nil {
		return result, err
	}
	result.used = after.since(before).each(d.from.events)
	for _, w := range s.workers {
		peak, err := peakMemory(w.pid())
		if err != nil {
			return result, err
		}
		result.peak = max(result.peak, peak/(1<<20))
	}
	if err := s.stopWorkers(); err != nil {
		return result, err
	}
	result.rate = float64(d.from.events) / last.Sub(first).Seconds()
	result.overall = float64(d.from.events) / last.Sub(began).Seconds()
	if result.faults, err = s.verify(ctx, d.from.events); err != nil {
		return result, err
	}
	l.say("%s: %s/s", d.name, figure(result.rate))
	return result, s.close(ctx)
}

// sides are measured in turn, several times each.
func (l *lab) sides(ctx context.Context, repeats int, list ...side) ([]Row, error) {
	results, wrong := make([][]drained, len(list)), make([]faults, len(list))
	for range repeats {
		for i, d := range list {
			result, err := d.run(ctx, l)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", d.name, err)
			}
			results[i] = append(results[i], result)
			wrong[i].add(result.faults)
		}
	}
	rows := make([]Row, len(list))
	for i, d := range list {
		var rates, overall, peaks []float64
		var used []usage
		for _, r := range results[i] {
			rates, overall, peaks, used = append(rates, r.rate), append(overall, r.overall), append(peaks, r.peak), append(used, r.used)
		}
		r := row(d.name, "events/s", rates...)
		r.overall, r.peaks, r.used = median(overall), peaks, medianUsage(used)
		rows[i] = wrong[i].describe(r)
	}
	return rows, nil
}

// drain is section a.
func drain(ctx context.Context, l *lab) ([]Row, error) {
	var rows []Row
	events := pick(l, 4000, 100_000, 500_000)
	few := pick(l, 1000, 20_000, 100_000) // pollers are slow, and no faster with more
	for _, streams := range []int{1, 10} {
		from := backlog{events: events, keys: 5000, payload: 200, partitions: 64, streams: streams}
		plain := from
		plain.events = few
		list := []side{pool(1, from), floorOf(1, from, floorBatch), pool(3, from), floorOf(3, from, floorBatch)}
		if streams == 1 {
			list = append(list, floorOf(1, from, 1000), floorOf(3, from, 1000),
				plainPollers(1, false, false, plain), plainPollers(1, false, true, plain), plainPollers(1, true, false, plain), plainPollers(8, true, false, plain))
		}
		r, err := l.sides(ctx, l.repeats(), list...)
		if err != nil {
			return rows, err
		}
		for i := range r {
			r[i].Name = number(streams, "stream") + ": " + r[i].Name
			u := r[i].used
			r[i] = r[i].note("CPU an event: %s µs here, %s in Postgres, %s in NATS", figure(u.worker), figure(u.postgres), figure(u.nats))
		}
		for i := 0; i < 4; i += 2 {
			r[i] = r[i].against(list[i+1].name, r[i+1].Value).target("≥ 0.9").
				note("%s/s with the wake-up, floor %s/s", figure(r[i].overall), figure(r[i+1].overall))
		}
		if streams == 1 {
			for _, i := range []int{0, 2} {
				versus := row(r[i].Name, "events/s", r[i].Samples...)
				r = append(r, versus.against(list[6].name, r[6].Value).target("≥ 6"), versus.against(list[7].name, r[7].Value).target("≥ 6"))
			}
		}
		rows = append(rows, r...)
	}
	return rows, nil
}

// number writes a count with its noun.
func number(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case noun == "process":
		return fmt.Sprintf("%d processes", n)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
