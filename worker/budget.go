package worker

// budget bounds the bytes of payload a worker holds. It is guarded by the pool's lock.
type budget struct {
	limit, used, peak int64
}

// has says whether n bytes are there. A single reservation larger than the whole limit is granted when nothing else is held, so that no row is too
// large to ever be fetched.
func (b *budget) has(n int64) bool { return b.used == 0 || b.used+n <= b.limit }

// take reserves n bytes, if they are there.
func (b *budget) take(n int64) bool {
	if !b.has(n) {
		return false
	}
	b.force(n)
	return true
}

func (b *budget) give(n int64) { b.used -= n }

// force books n bytes that are held already.
func (b *budget) force(n int64) {
	b.used += n
	b.peak = max(b.peak, b.used)
}
