package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outlane/outlane/internal/natsserver"
	"github.com/outlane/outlane/internal/sandbox"
)

// starting starts a worker again.
func (r *run) starting(w *sandbox.Worker) func(context.Context) error {
	return func(context.Context) error { return w.Start() }
}

// breakServer has one NATS server away, once the others have all that it has.
func (r *run) breakServer(d *doing, how, undo func(*natsserver.Process) error) error {
	if err := r.eventually(d.ctx, "wait for the streams before "+d.Kind, r.streamsWell); err != nil {
		return err
	}
	var n int
	if _, err := fmt.Sscanf(d.Target, "nats-%d", &n); err != nil {
		return fmt.Errorf("find server %q: %w", d.Target, err)
	}
	p := r.nats[n-1]
	if err := how(p); err != nil {
		return err
	}
	d.last()
	r.heal(d.ctx, "bring back "+d.Target, func(context.Context) error { return undo(p) })
	return nil
}

func (r *run) killNATS(d *doing) error {
	return r.breakServer(d, func(p *natsserver.Process) error { p.Kill(); return nil }, (*natsserver.Process).Start)
}

func (r *run) stopNATS(d *doing) error {
	return r.breakServer(d, func(p *natsserver.Process) error { p.Stop(); return nil }, (*natsserver.Process).Start)
}

func (r *run) lameDuckNATS(d *doing) error {
	return r.breakServer(d, func(p *natsserver.Process) error { p.LameDuck(); return nil }, (*natsserver.Process).Start)
}

func (r *run) freezeNATS(d *doing) error {
	return r.breakServer(d, (*natsserver.Process).Freeze, (*natsserver.Process).Thaw)
}

func (r *run) stopAllNATS(d *doing) error {
	if err := r.eventually(d.ctx, "wait for the streams before "+d.Kind, r.streamsWell); err != nil {
		return err
	}
	for _, p := range r.nats {
		p.Stop()
	}
	d.last()
	for _, p := range r.nats {
		r.heal(d.ctx, "start a NATS server", func(context.Context) error { return p.Start() })
	}
	return nil
}

// stepDown asks the leader of a stream to give up being it, again and again.
func (r *run) stepDown(d *doing) error {
	end := time.Now().Add(d.For)
	times := 0
	for d.ctx.Err() == nil && time.Now().Before(end) {
		limited, cancel := context.WithTimeout(d.ctx, time.Second)
		_, err := r.box.JetStream.Conn().RequestWithContext(limited, "$JS.API.STREAM.LEADER.STEPDOWN."+d.Target, nil)
		cancel()
		if err == nil {
			times++
		}
		rest(d.ctx, 250*time.Millisecond)
	}
	d.say("%d times", times)
	return nil
}

// change changes a stream's configuration.
func (r *run) change(ctx context.Context, name string, how func(*jetstream.StreamInfo, *jetstream.StreamConfig)) error {
	handle, err := r.box.JetStream.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("ask for stream %s: %w", name, err)
	}
	cfg := handle.CachedInfo().Config
	how(handle.CachedInfo(), &cfg)
	if _, err := r.box.JetStream.UpdateStream(ctx, cfg); err != nil {
		return fmt.Errorf("change stream %s: %w", name, err)
	}
	return nil
}

// switchMode lets the stream take batches, or no longer.
func (r *run) switchMode(d *doing) error {
	set := func(fast bool) func(context.Context) error {
		return func(ctx context.Context) error {
			return r.change(ctx, d.Target, func(_ *jetstream.StreamInfo, cfg *jetstream.StreamConfig) { cfg.AllowBatchPublish = fast })
		}
	}
	fast := streamOf(d.Target).fast
	limited, cancel := context.WithTimeout(d.ctx, 5*time.Second)
	err := set(!fast)(limited)
	cancel()
	d.last()
	r.heal(d.ctx, "give "+d.Target+" its mode back", set(fast))
	return err
}

// fillStream lets the stream take nothing more.
func (r *run) fillStream(d *doing) error {
	limited, cancel := context.WithTimeout(d.ctx, 5*time.Second)
	defer cancel()
	// First what to do when it is full, then when that is: so nothing that is stored is dropped.
	err := r.change(limited, d.Target, func(_ *jetstream.StreamInfo, cfg *jetstream.StreamConfig) { cfg.Discard = jetstream.DiscardNew })
	if err == nil {
		err = r.change(limited, d.Target, func(info *jetstream.StreamInfo, cfg *jetstream.StreamConfig) {
			cfg.MaxMsgs = max(int64(info.State.Msgs), 1)
		})
	}
	d.last()
	r.heal(d.ctx, "empty "+d.Target, func(ctx context.Context) error {
		if err := r.change(ctx, d.Target, func(_ *jetstream.StreamInfo, cfg *jetstream.StreamConfig) { cfg.MaxMsgs = -1 }); err != nil {
			return err
		}
		return r.change(ctx, d.Target, func(_ *jetstream.StreamInfo, cfg *jetstream.StreamConfig) { cfg.Discard = jetstream.DiscardOld })
	})
	return err
}
