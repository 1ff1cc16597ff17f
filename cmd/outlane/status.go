package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outlane/outlane/store"
)

// report is one look at the pool. It is what -o json prints.
type report struct {
	Time       time.Time      `json:"time"` // by the database's clock
	Database   databaseView   `json:"database"`
	Members    []memberView   `json:"members"`
	Partitions partitionsView `json:"partitions"`
	Streams    []streamView   `json:"streams"`
	Lanes      []laneView     `json:"lanes"` // those with something that waits, is dead or parked, the oldest first
	Stuck      []stuckView    `json:"stuck"`
}

type databaseView struct {
	Name              string `json:"name"`
	Schema            string `json:"schema"`
	SchemaVersion     int64  `json:"schema_version"`
	ServerVersion     string `json:"server_version"`
	PartitionKeyField string `json:"partition_key_field"`
	Listens           bool   `json:"listens"` // false behind a transaction pooler
	LastSeq           int64  `json:"last_seq"`
	Horizon           int64  `json:"horizon"`
}

type memberView struct {
	ID            string    `json:"id"`
	Alive         bool      `json:"alive"`
	Leaving       bool      `json:"leaving"`
	JoinedAt      time.Time `json:"joined_at"`
	SilentSeconds float64   `json:"silent_seconds"`
	Partitions    int       `json:"partitions"`
}

type partitionsView struct {
	Count   int   `json:"count"`
	Owned   int   `json:"owned"`
	Unowned []int `json:"unowned"` // claimed by no member that is alive
}

type lagView struct {
	Waiting       int64   `json:"waiting"`
	AtLeast       bool    `json:"at_least"` // there are more than waiting says
	OldestSeconds float64 `json:"oldest_seconds"`
	DeadLetters   int64   `json:"dead_letters"`
	Parked        int64   `json:"parked"`
}

type streamView struct {
	Stream string `json:"stream"`
	lagView
	WaitingLanes int `json:"waiting_lanes"`
	StuckLanes   int `json:"stuck_lanes"`
}

type laneView struct {
	Stream    string `json:"stream"`
	Partition int    `json:"partition"`
	Owner     string `json:"owner"`
	lagView
}

// stuckView is something that does not move, why, and since when.
type stuckView struct {
	What   string     `json:"what"` // "lane", "key", "partitions", "leases" or "cursors"
	Name   string     `json:"name"`
	Lane   *laneID    `json:"lane"` // of a lane or a key
	Reason string     `json:"reason"`
	Detail string     `json:"detail"`
	Since  *time.Time `json:"since"` // null if nobody knows
	Owner  string     `json:"owner"`
}

type laneID struct {
	Stream    string `json:"stream"`
	Partition int    `json:"partition"`
}

const (
	lagLimit    = 10_000 // how many events of a lane are counted
	stuckKeys   = 20     // how many blocked keys are listed
	neverClaims = "no worker has claimed them; start one with outlane worker"
)

// memberSource says who is in the pool, where the database does not know it.
type memberSource func(context.Context) ([]store.MemberInfo, error)

// lookAt reads the state of the pool. members is nil if the database knows them.
func lookAt(ctx context.Context, s *store.Store, schema string, members memberSource) (report, error) {
	meta, err := s.Meta(ctx)
	if err != nil {
		return report{}, fmt.Errorf("read status: %w", err)
	}
	pool, err := s.Overview(ctx)
	if err != nil {
		return report{}, fmt.Errorf("read status: %w", err)
	}
	lags, err := s.Lag(ctx, lagLimit)
	if err != nil {
		return report{}, fmt.Errorf("read status: %w", err)
	}
	states, err := s.LaneStates(ctx)
	if err != nil {
		return report{}, fmt.Errorf("read status: %w", err)
	}
	r := report{Time: pool.Now, Database: databaseView{
		Name: pool.Database, Schema: schema, SchemaVersion: meta.SchemaVersion, ServerVersion: serverVersion(meta.ServerVersion),
		PartitionKeyField: meta.KeyField, Listens: meta.Sessions, LastSeq: pool.LastSeq, Horizon: pool.Horizon,
	}}
	var unknown error // why it is not known who is in the pool
	if members != nil {
		pool.Members, unknown = members(ctx)
	}
	owners := r.setPool(pool, unknown)
	r.setLanes(lags, owners)
	r.setStuckLanes(states, owners)
	blocked, err := s.ListDeadLetters(ctx, store.DeadLetterFilter{Blocking: true, Limit: stuckKeys})
	if err != nil {
		return report{}, fmt.Errorf("read status: %w", err)
	}
	r.setStuckKeys(blocked, owners)
	if meta.SequenceCache > 1 {
		r.Stuck = append(r.Stuck, stuckView{What: "cursors", Name: "all", Reason: "sequence_cache",
			Detail: fmt.Sprintf("outbox_events_seq hands out numbers in blocks of %d, so order by commit is not kept; run ALTER SEQUENCE outbox_events_seq CACHE 1",
				meta.SequenceCache)})
	}
	return r, nil
}

// setPool fills in members and partitions, and returns each partition's owner, "" where none is alive. If it is unknown who is alive, everybody
// is taken to be who claimed a partition: nobody can take it from them.
func (r *report) setPool(pool store.Overview, unknown error) []string {
	alive, held := map[string]bool{}, map[string]int{}
	for _, m := range pool.Members {
		alive[m.ID] = m.Silent <= m.Duration
	}
	if unknown != nil {
		for _, p := range pool.Partitions {
			alive[p.Owner] = p.Owner != ""
		}
	}
	owners := make([]string, len(pool.Partitions))
	r.Partitions = partitionsView{Count: len(pool.Partitions), Unowned: []int{}}
	for i, p := range pool.Partitions {
		if !alive[p.Owner] {
			r.Partitions.Unowned = append(r.Partitions.Unowned, p.Partition)
			continue
		}
		owners[i] = p.Owner
		held[p.Owner]++
		r.Partitions.Owned++
	}
	r.Members = make([]memberView, 0, len(pool.Members))
	for _, m := range pool.Members {
		r.Members = append(r.Members, memberView{
			ID: m.ID, Alive: alive[m.ID], Leaving: m.Leaving, JoinedAt: m.JoinedAt, SilentSeconds: m.Silent.Seconds(), Partitions: held[m.ID],
		})
	}
	r.Stuck = []stuckView{}
	if unknown != nil {
		r.Stuck = append(r.Stuck, stuckView{
			What: "leases", Name: "all", Reason: "unreachable", Detail: unknown.Error() + "; delivery goes on, and no partition changes hands",
		})
	}
	if n := len(r.Partitions.Unowned); n > 0 {
		r.Stuck = append(r.Stuck, stuckView{
			What: "partitions", Name: ranges(r.Partitions.Unowned), Reason: "no_owner", Detail: neverClaims,
		})
	}
	return owners
}

func (r *report) setLanes(lags []store.LaneLag, owners []string) {
	streams := map[string]*streamView{}
	r.Lanes, r.Streams = []laneView{}, []streamView{}
	for _, l := range lags {
		s := streams[l.Lane.Stream]
		if s == nil {
			s = &streamView{Stream: l.Lane.Stream}
			streams[l.Lane.Stream] = s
		}
		lag := lagView{Waiting: l.Events, AtLeast: l.AtLeast, OldestSeconds: l.OldestAge.Seconds(), DeadLetters: l.DeadLetters, Parked: l.Parked}
		s.Waiting += lag.Waiting
		s.AtLeast = s.AtLeast || lag.AtLeast
		s.OldestSeconds = max(s.OldestSeconds, lag.OldestSeconds)
		s.DeadLetters += lag.DeadLetters
		s.Parked += lag.Parked
		if lag.Waiting > 0 {
			s.WaitingLanes++
		}
		if lag.Waiting > 0 || lag.DeadLetters > 0 || lag.Parked > 0 {
			r.Lanes = append(r.Lanes, laneView{Stream: l.Lane.Stream, Partition: l.Lane.Partition, Owner: ownerOf(owners, l.Lane), lagView: lag})
		}
	}
	for _, s := range streams {
		r.Streams = append(r.Streams, *s)
	}
	slices.SortFunc(r.Streams, func(a, b streamView) int { return cmp.Compare(a.Stream, b.Stream) })
	slices.SortFunc(r.Lanes, func(a, b laneView) int {
		return cmp.Or(cmp.Compare(b.OldestSeconds, a.OldestSeconds), cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.Partition, b.Partition))
	})
}

// setStuckLanes takes over what owners say about their lanes. What somebody else said once no longer counts.
func (r *report) setStuckLanes(states []store.LaneState, owners []string) {
	for _, st := range states {
		if st.Reason == "" || st.Member != ownerOf(owners, st.Lane) {
			continue
		}
		since := st.Since
		r.Stuck = append(r.Stuck, stuckView{
			What: "lane", Name: laneName(st.Lane), Lane: &laneID{st.Lane.Stream, st.Lane.Partition}, Reason: st.Reason, Detail: st.Detail, Since: &since,
			Owner: st.Member,
		})
		for i := range r.Streams {
			if r.Streams[i].Stream == st.Lane.Stream {
				r.Streams[i].StuckLanes++
			}
		}
	}
}

// setStuckKeys lists the keys that wait behind a dead letter.
func (r *report) setStuckKeys(entries []store.DeadLetterEntry, owners []string) {
	for _, e := range entries {
		since := e.CreatedAt
		r.Stuck = append(r.Stuck, stuckView{
			What: "key", Name: laneName(e.Lane) + " " + e.Key, Lane: &laneID{e.Lane.Stream, e.Lane.Partition}, Reason: "dead_letter", Since: &since,
			Owner:  ownerOf(owners, e.Lane),
			Detail: fmt.Sprintf("%s is a dead letter (%s); %s parked; decide with outlane dlq", e.EventID, e.Reason, count(e.Parked)),
		})
	}
}

func ownerOf(owners []string, lane store.Lane) string {
	if lane.Partition < 0 || lane.Partition >= len(owners) {
		return ""
	}
	return owners[lane.Partition]
}

func serverVersion(num int) string { return fmt.Sprintf("%d.%d", num/10000, num%10000) }

// ranges writes ascending numbers briefly: 0-3, 7, 9-10.
func ranges(numbers []int) string {
	text := ""
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if text != "" {
			text += ", "
		}
		text += fmt.Sprint(numbers[i])
		if j > i {
			text += fmt.Sprintf("-%d", numbers[j])
		}
		i = j + 1
	}
	return text
}
