package lease

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/outlane/outlane/partition"
)

// Handler does the work of the partitions that a manager holds.
//
// For each partition the manager calls Gained first. What follows is either Release or Lost; Lost may also come while Release runs. After
// Release has returned, the partition is handed over, or, if the pool has changed its mind, Gained again. After Lost, and after Release,
// nothing comes but Gained, and not before a running Release has returned.
//
// Gained and Lost are called from one goroutine and must return at once: while they run, the manager neither sees nor decides anything, and
// after the member's duration it is declared dead.
type Handler interface {
	// Gained says that the partitions are held now. Others may still believe to hold them, so that the claim in Postgres must come first.
	Gained(partitions []int)

	// Release drains a partition: stop fetching, settle what is in flight, save what shortens a restart. The partition is handed over when it
	// returns. Releases of several partitions run concurrently. When ctx ends, Release must give up and return soon.
	Release(ctx context.Context, partition int)

	// Lost says that the partition is no longer held. Stop at once and decide nothing more about it.
	Lost(partition int)
}

const (
	// DefaultDuration is how long a member may go without renewing, where nothing else is asked for.
	DefaultDuration = 10 * time.Second

	// DefaultDrainTimeout is how long a drain may take, where nothing else is asked for.
	DefaultDrainTimeout = 15 * time.Second
)

// Config is what a Manager needs. ID, Partitions, Backend and Handler must be given.
type Config struct {
	// ID is the member's identity, from NewID.
	ID string

	// Partitions is the number of partitions of the pool, the same for all members.
	Partitions int

	// Backend keeps the records.
	Backend Backend

	// Handler does the work.
	Handler Handler

	// Duration is how long this member may go without renewing before others may declare it dead: 100 ms to 1 h, DefaultDuration if zero.
	// Members may differ.
	Duration time.Duration

	// DrainTimeout bounds each Release, and all of them together when Run is told to stop. DefaultDrainTimeout if zero.
	DrainTimeout time.Duration

	// Events turns weights on: how many events of a partition this member has delivered since it started, never less than before. It may be
	// called from any goroutine. Partitions are moved for their weight only while all members that are to hold partitions have weights on.
	Events func(partition int) uint64

	// Clock tells the time by which silence is measured; it must be monotonic. time.Now if nil.
	Clock func() time.Time

	// Logger gets changes of state: one line each. Nothing is logged if nil.
	Logger *slog.Logger
}

func (c *Config) complete() error {
	if c.Duration == 0 {
		c.Duration = DefaultDuration
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = DefaultDrainTimeout
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case c.ID == "":
		return fmt.Errorf("lease: no identity given")
	case c.Partitions < 1 || c.Partitions > partition.MaxPartitions:
		return fmt.Errorf("lease: %d partitions given, must be 1 to %d", c.Partitions, partition.MaxPartitions)
	case c.Backend == nil || c.Handler == nil:
		return fmt.Errorf("lease: backend or handler is missing")
	case c.Duration < minDuration || c.Duration > maxDuration:
		return fmt.Errorf("lease: duration is %s, must be %s to %s", c.Duration, minDuration, maxDuration)
	case c.DrainTimeout < 0:
		return fmt.Errorf("lease: drain timeout is negative")
	}
	return nil
}

// every is how often updates are asked for. A death is seen up to two of these late, which must stay well below a second.
func (c *Config) every() time.Duration {
	return min(max(c.Duration/50, 10*time.Millisecond), 200*time.Millisecond)
}

// pace is how long a pool with weights must be at rest before a partition is moved for its weight alone. It is more than the time from one
// renewal to the next, in which the new holder of the last one tells its weight.
func (c *Config) pace() time.Duration {
	return c.Duration / 2
}

// callTimeout bounds one call of the backend.
func (c *Config) callTimeout() time.Duration {
	return min(max(c.Duration/2, 500*time.Millisecond), 5*time.Second)
}

// retryAfter is the pause before something that failed, or had no visible effect, is tried again.
func (c *Config) retryAfter() time.Duration {
	return min(max(c.Duration/10, 2*c.every()), time.Second)
}
