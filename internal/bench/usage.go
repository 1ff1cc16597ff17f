package bench

import "slices"

// usage is the processor time of a site's workers, or what stands in their place, and of the servers, in seconds.
type usage struct{ worker, postgres, nats float64 }

func (s *site) usage() (u usage, err error) {
	for _, w := range slices.Concat(s.workers, s.others) {
		used, err := cpu(w.pid())
		if err != nil {
			return u, err
		}
		u.worker += used
	}
	if u.postgres, err = familyCPU(s.lab.postmaster); err != nil {
		return u, err
	}
	u.nats, err = cpu(s.lab.nats.pid())
	return u, err
}

func (u usage) since(o usage) usage {
	return usage{u.worker - o.worker, u.postgres - o.postgres, u.nats - o.nats}
}

// each is u's part of n events, in microseconds.
func (u usage) each(n int) usage {
	per := 1e6 / float64(n)
	return usage{u.worker * per, u.postgres * per, u.nats * per}
}

// medianUsage is the median of each part.
func medianUsage(list []usage) usage {
	part := func(of func(usage) float64) float64 {
		samples := make([]float64, len(list))
		for i, u := range list {
			samples[i] = of(u)
		}
		return median(samples)
	}
	return usage{part(func(u usage) float64 { return u.worker }), part(func(u usage) float64 { return u.postgres }), part(func(u usage) float64 { return u.nats })}
}
