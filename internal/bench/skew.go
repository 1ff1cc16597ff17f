package bench

import (
	"context"
	"fmt"
)

// skew is section i: backlogs that are not spread evenly.
func skew(ctx context.Context, l *lab) ([]Row, error) {
	even := backlog{events: pick(l, 2000, 50_000, 500_000), keys: 5000, payload: 200, partitions: 64, streams: 1}
	hotKey, hotPartition, many := even, even, even
	hotKey.keys = 1
	hotPartition.keys, hotPartition.onePartition = 80, true
	many.partitions, many.keys = pick(l, 256, 4096, 4096), pick(l, 1000, 20_000, 20_000)
	named := func(name string, from backlog) side {
		d := pool(1, from)
		d.name = "1 worker, " + name
		return d
	}
	reference := named("64 partitions", even)
	rows, err := l.sides(ctx, l.repeats(), reference, named("one key", hotKey), named("80 keys of one partition", hotPartition),
		named(fmt.Sprintf("%s partitions with %d events each", amount(many.partitions), many.events/many.partitions), many))
	if err != nil {
		return nil, err
	}
	for i := range rows[1:] {
		rows[i+1] = rows[i+1].against(reference.name, rows[0].Value)
	}
	rows[1] = rows[1].target("≥ 0.5")
	return rows[1:], nil
}
