package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// channelName is computed by the server, as the insert trigger does.
const channelName = `SELECT 'outlane_' || left(md5($1::text), 16)`

const (
	listenCheck   = 30 * time.Second // how long silence is believed
	listenTimeout = 5 * time.Second
)

// Listen calls wake after each notification, and once right after it has begun to listen: whatever was committed before, a look then finds. Calls
// come one at a time, from this goroutine. It has a connection of its own and returns when that breaks or ctx ends, always with an
// error; ErrNoSession if there can be none.
func (s *Store) Listen(ctx context.Context, wake func()) error {
	return s.listenOn(ctx, wake, channelName, s.name)
}

// listenOn listens on the channel that a statement returns.
func (s *Store) listenOn(ctx context.Context, wake func(), channelName string, args ...any) error {
	err := s.listen(ctx, wake, channelName, args...)
	if s.foundPooler(err) {
		err = ErrNoSession
	}
	return s.failed("listen", err)
}

func (s *Store) listen(ctx context.Context, wake func(), channelName string, args ...any) error {
	if s.pooled.Load() {
		return ErrNoSession
	}
	config := s.pool.Config().ConnConfig
	s.asOneGoes(config)
	begin, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(begin, config)
	if err != nil {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), listenTimeout)
		defer cancel()
		_ = conn.Close(end)
	}()
	var channel string
	if err := conn.QueryRow(begin, channelName, args...).Scan(&channel); err != nil {
		return err
	}
	if _, err := conn.Exec(begin, "LISTEN "+channel); err != nil {
		return err
	}
	for {
		wake()
		for {
			heard, err := s.await(ctx, conn)
			if err != nil {
				return err
			}
			if heard {
				break
			}
		}
	}
}

// await waits for a notification. After a long silence it asks the server for a sign of life, and says that it has heard nothing.
func (s *Store) await(ctx context.Context, conn *pgx.Conn) (heard bool, err error) {
	wait, cancel := context.WithTimeout(ctx, listenCheck)
	defer cancel()
	_, err = conn.WaitForNotification(wait)
	switch {
	case err == nil:
		return true, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case !errors.Is(wait.Err(), context.DeadlineExceeded) || conn.IsClosed():
		return false, err
	}
	check, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	if err := conn.Ping(check); err != nil {
		return false, fmt.Errorf("check a silent connection: %w", err)
	}
	return false, nil
}
