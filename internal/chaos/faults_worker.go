package chaos

import (
	"syscall"
	"time"

	"github.com/outlane/outlane/internal/sandbox"
)

// worker is the target of a fault, which must be running.
func (r *run) worker(d *doing) *sandbox.Worker {
	w := r.workers[d.Target]
	if !w.Alive() {
		r.blame("%s had ended by itself; its log ends so:\n%s", w.ID, w.Tail())
		r.heal(d.ctx, "start "+w.ID+" again", r.starting(w))
	}
	return w
}

func (r *run) killWorker(d *doing) error {
	w := r.worker(d)
	w.Kill()
	d.last()
	r.heal(d.ctx, "start "+w.ID+" again", r.starting(w))
	return nil
}

func (r *run) stopWorker(d *doing) error {
	w := r.worker(d)
	began := time.Now()
	if err := w.Stop(); err != nil {
		r.blame("%s did not stop as it should: %v; its log ends so:\n%s", w.ID, err, w.Tail())
	}
	d.say("stopped in %s", time.Since(began).Round(time.Millisecond))
	d.last()
	r.heal(d.ctx, "start "+w.ID+" again", r.starting(w))
	return nil
}

func (r *run) pauseWorker(d *doing) error {
	w := r.worker(d)
	w.Signal(syscall.SIGSTOP)
	d.last()
	w.Signal(syscall.SIGCONT)
	return nil
}

func (r *run) joinWorker(d *doing) error {
	w := r.workers[d.Target]
	if err := w.Start(); err != nil {
		return err
	}
	d.last()
	if d.N%2 == 0 {
		w.Kill()
		d.say("killed")
		return nil
	}
	if err := w.Stop(); err != nil {
		r.blame("%s did not stop as it should: %v; its log ends so:\n%s", w.ID, err, w.Tail())
	}
	d.say("stopped")
	return nil
}

// toNATS breaks a worker's way to all NATS servers, and mends it.
func (r *run) toNATS(d *doing, m mode, cut bool) error {
	for _, p := range r.lines[d.Target].nats {
		p.set(m, cut && m.refuse)
	}
	d.last()
	for _, p := range r.lines[d.Target].nats {
		p.set(mode{}, cut)
	}
	return nil
}

func (r *run) cutNATS(d *doing) error { return r.toNATS(d, mode{refuse: true}, true) }

func (r *run) silenceNATS(d *doing) error {
	return r.toNATS(d, mode{mute: true, deaf: true}, d.N%2 == 0)
}

// deafenNATS lets the servers hear and store, and the worker hear nothing of it.
func (r *run) deafenNATS(d *doing) error { return r.toNATS(d, mode{deaf: true}, true) }

func (r *run) slowNATS(d *doing) error { return r.toNATS(d, mode{slowness: slowness(d)}, false) }

// slowness is up to 200 ms.
func slowness(d *doing) time.Duration { return time.Duration(1+d.N%200) * time.Millisecond }

func (r *run) toPostgres(d *doing, m mode, cut bool) error {
	p := r.lines[d.Target].postgres
	p.set(m, cut && m.refuse)
	d.last()
	p.set(mode{}, cut)
	return nil
}

func (r *run) cutPostgres(d *doing) error { return r.toPostgres(d, mode{refuse: true}, true) }

func (r *run) silencePostgres(d *doing) error {
	return r.toPostgres(d, mode{mute: true, deaf: true}, d.N%2 == 0)
}

func (r *run) deafenPostgres(d *doing) error { return r.toPostgres(d, mode{deaf: true}, true) }

func (r *run) slowPostgres(d *doing) error {
	return r.toPostgres(d, mode{slowness: slowness(d)}, false)
}
