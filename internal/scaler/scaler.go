// Package scaler answers KEDA's questions over gRPC: it is an external scaler, with push, on outbox_workers_wanted. One process serves any number
// of ScaledObjects that scale pools of the same outbox.
//
// It keeps no state: every answer is read from the database. While that cannot be read, questions about the number fail, so that KEDA's fallback
// holds, and a stream of pushes stays open and says nothing new.
//
// A trigger's metadata may have `target`, the waiting events that one worker is worth (10000), and `most`, the most workers (as many as
// there are partitions). Others, such as KEDA's own scalerAddress, are passed over.
package scaler

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// MetricName is what KEDA calls the number.
	MetricName = "outlane-workers-wanted"

	// DefaultTarget is how many waiting events one worker is worth unless the trigger says otherwise.
	DefaultTarget = 10_000

	// DefaultPushInterval is how often the number is looked up for a stream of pushes.
	DefaultPushInterval = 2 * time.Second
)

// Database knows the number. *store.Store does.
type Database interface {
	WorkersWanted(ctx context.Context, target int64, most int) (int, error)
}

// Config is what a scaler needs.
type Config struct {
	Database     Database
	PushInterval time.Duration // 0: DefaultPushInterval
	Logger       *slog.Logger
}

// Serve answers on listener until ctx ends, and closes it. The streams of pushes end with ctx.
func Serve(ctx context.Context, listener net.Listener, cfg Config) error {
	if cfg.PushInterval == 0 {
		cfg.PushInterval = DefaultPushInterval
	}
	s := &scaler{Config: cfg, stop: ctx.Done()}
	server := grpc.NewServer(grpc.ForceServerCodec(codec{}))
	server.RegisterService(&scalerService, s)
	server.RegisterService(&healthService, s)
	stopped := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-ctx.Done():
		case <-done:
		}
		server.GracefulStop()
	}()
	err := server.Serve(listener)
	close(done)
	<-stopped
	if err != nil {
		return fmt.Errorf("serve the scaler: %w", err)
	}
	return nil
}

type scaler struct {
	Config
	stop <-chan struct{}
}

// trigger is what a ScaledObject asks for.
type trigger struct {
	target int64
	most   int
}

func (r *objectRef) trigger() (trigger, error) {
	t := trigger{target: DefaultTarget}
	var err error
	if text, ok := r.Metadata["target"]; ok {
		if t.target, err = strconv.ParseInt(text, 10, 64); err != nil || t.target < 1 {
			return t, r.wrong("target", text)
		}
	}
	if text, ok := r.Metadata["most"]; ok {
		most, err := strconv.ParseInt(text, 10, 32)
		if err != nil || most < 1 {
			return t, r.wrong("most", text)
		}
		t.most = int(most)
	}
	return t, nil
}

func (r *objectRef) wrong(name, text string) error {
	return status.Errorf(codes.InvalidArgument, "the trigger of %s/%s has %s %q; want a whole number from 1", r.Namespace, r.Name, name, text)
}

// wanted asks the database, for at most so many.
func (s *scaler) wanted(ctx context.Context, r *objectRef, t trigger, most int) (int, error) {
	n, err := s.Database.WorkersWanted(ctx, t.target, most)
	if err != nil {
		s.Logger.Warn("the number of workers cannot be read", "object", r.Namespace+"/"+r.Name, "error", err)
		return 0, status.Error(codes.Unavailable, "the database does not answer: see the scaler's log")
	}
	return n, nil
}

func (s *scaler) isActive(ctx context.Context, r *objectRef) (*isActive, error) {
	t, err := r.trigger()
	if err != nil {
		return nil, err
	}
	n, err := s.wanted(ctx, r, t, 1)
	return &isActive{n > 0}, err
}

func (s *scaler) metricSpec(_ context.Context, r *objectRef) (*metricSpec, error) {
	_, err := r.trigger()
	return &metricSpec{[]metricTarget{{MetricName, 1}}}, err // the number is one of workers
}

func (s *scaler) metrics(ctx context.Context, q *metricsRequest) (*metricsResponse, error) {
	t, err := q.Ref.trigger()
	if err != nil {
		return nil, err
	}
	n, err := s.wanted(ctx, &q.Ref, t, t.most)
	return &metricsResponse{MetricName, float64(n)}, err
}

func (s *scaler) health(context.Context, *healthRequest) (*healthResponse, error) {
	return &healthResponse{}, nil
}

// push tells KEDA at once, and when it changes, whether any worker is wanted.
func (s *scaler) push(r *objectRef, stream grpc.ServerStream) error {
	t, err := r.trigger()
	if err != nil {
		return err
	}
	tick := time.NewTicker(s.PushInterval)
	defer tick.Stop()
	said, active := false, false
	for {
		n, err := s.wanted(stream.Context(), r, t, 1)
		if err == nil && (!said || active != (n > 0)) {
			said, active = true, n > 0
			if err := stream.SendMsg(&isActive{active}); err != nil {
				return err
			}
			s.Logger.Info("told KEDA", "object", r.Namespace+"/"+r.Name, "active", active)
		}
		select {
		case <-tick.C:
		case <-stream.Context().Done():
			return nil
		case <-s.stop:
			return status.Error(codes.Unavailable, "the scaler stops")
		}
	}
}
