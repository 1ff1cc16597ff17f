package bench

import (
	"context"
	"fmt"
)

// workerMemory is what the workers are given, worker.memory's default, in bytes.
const workerMemory = 64 << 20

// payloads is section h: larger bodies.
func payloads(ctx context.Context, l *lab) ([]Row, error) {
	sizes := []struct {
		name          string
		bytes, events int
	}{
		{"1 kB", 1000, pick(l, 500, 40_000, 200_000)},
		{"10 kB", 10_000, pick(l, 200, 10_000, 100_000)},
		{"100 kB", 100_000, pick(l, 100, 1500, 20_000)},
	}
	var rows []Row
	for _, size := range sizes {
		from := backlog{events: size.events, keys: 5000, payload: size.bytes, partitions: 64, streams: 1}
		worker, floor := pool(1, from, fmt.Sprintf("OUTLANE_WORKER_MEMORY=%d", workerMemory)), floorOf(1, from, floorBatch)
		worker.name, floor.name = size.name+": "+worker.name, size.name+": "+floor.name
		r, err := l.sides(ctx, l.repeats(), worker, floor)
		if err != nil {
			return rows, err
		}
		peak := row(size.name+": peak memory of the worker", "MiB", r[0].peaks...).target(fmt.Sprintf("≤ %d", workerMemory>>20+64)).
			note("worker.memory is %d MiB", workerMemory>>20)
		for i := range r {
			for j := range r[i].Samples {
				r[i].Samples[j] *= float64(size.bytes) / 1e6
			}
			r[i].Value, r[i].Unit = median(r[i].Samples), "MB/s"
		}
		rows = append(rows, r[0].against(r[1].Name, r[1].Value).note("a backlog of %s", amount(size.events)), peak)
	}
	return rows, nil
}
