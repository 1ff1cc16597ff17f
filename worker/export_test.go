package worker

import "github.com/outlane/outlane/lease"

// Peak is the most payload that was held at once.
func (w *Worker) Peak() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.budget.peak
}

// nobody answers nothing; it stands where a unit test needs a value and never calls it.
type nobody struct {
	Broker
	lease.Backend
}
