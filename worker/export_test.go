package worker

// Peak is the most payload that was held at once.
func (w *Worker) Peak() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.budget.peak
}
