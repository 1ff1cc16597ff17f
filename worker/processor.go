package worker

import (
	"context"
	"runtime"
)

// keepProcessor holds one of Go's processors while events flow, as Config.SpareProcessor says, until ctx ends.
//
// At low rates a worker waits a few times for each event, and all of its goroutines at once. Go's runtime then puts its monitor thread to sleep, and
// wakes it at the next system call, upon which it looks around every 20 µs for a while: two of five thread switches of a worker were
// that thread's. It keeps calm while a processor is in use. A goroutine in a system call holds its processor for 10 ms, if nobody needs it, and for
// as long again if it has been scheduled meanwhile. (Go 1.26, runtime/proc.go, sysmon and retake; it is no promise of Go's, and if it changes
// only time is lost.)
func (w *Worker) keepProcessor(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.flowBegins:
		}
		for w.flows.Load() && ctx.Err() == nil {
			holdProcessor()
			runtime.Gosched()
		}
	}
}

// setFlows notes whether events flow, for keepProcessor.
func (w *Worker) setFlows(flows bool) {
	if w.flows.Swap(flows) == flows || !flows {
		return
	}
	select {
	case w.flowBegins <- struct{}{}:
	default:
	}
}
