package lease

import (
	"hash/fnv"
	"time"
)

const (
	minDuration = 100 * time.Millisecond
	maxDuration = time.Hour
)

// judge measures for how long each member has been seen not to renew. It is a pure state machine: time comes in as an argument.
type judge struct {
	self    string
	own     time.Duration // stands in for a duration that makes no sense
	every   time.Duration // how often updates come while all is well
	last    time.Time
	members map[string]*observed
}

type observed struct {
	member    Member
	since     time.Time // when the renewal changed, or the observation began anew
	postponed time.Time // not to be declared dead before
}

func newJudge(self string, own, every time.Duration) *judge {
	return &judge{self: self, own: own, every: every, members: map[string]*observed{}}
}

// duration returns the duration that a member is held to. A record may have been edited: what makes no sense is replaced by our own.
func (j *judge) duration(m Member) time.Duration {
	if m.Duration <= 0 {
		return j.own
	}
	return min(max(m.Duration, minDuration), maxDuration)
}

// tolerance is the longest gap between two updates that does not interrupt the observation of a member. A member renews every third of its
// duration, so one that was kept from it for less than a quarter by the same outage still renews in time.
func (j *judge) tolerance(m Member) time.Duration {
	return max(j.duration(m)/4, 3*j.every)
}

// observe takes in an update. Members are nil if they are as before.
func (j *judge) observe(now time.Time, members []Member) {
	gap := now.Sub(j.last)
	j.last = now
	for _, o := range j.members {
		if gap > j.tolerance(o.member) {
			o.since = now
		}
	}
	if members == nil {
		return
	}
	present := make(map[string]*observed, len(members))
	for _, member := range members {
		o := j.members[member.ID]
		if o == nil || o.member.Renewal != member.Renewal {
			o = &observed{since: now}
		}
		o.member = member
		present[member.ID] = o
	}
	j.members = present
}

// postpone keeps a member from being declared dead for a while.
func (j *judge) postpone(id string, until time.Time) {
	if o := j.members[id]; o != nil {
		o.postponed = until
	}
}

// silence returns for how long the member has been seen not to renew, as of the last update.
func (j *judge) silence(o *observed) time.Duration { return j.last.Sub(o.since) }

// rank is this member's place in the order in which those that are alive declare another dead. The first does it at once, and the others only
// if that had no effect: one death must not be a hundred writes.
func (j *judge) rank(dead string) int {
	rank, own := 0, place(dead, j.self)
	for id, o := range j.members {
		if id != j.self && id != dead && j.silence(o) < j.duration(o.member) && place(dead, id) < own {
			rank++
		}
	}
	return rank
}

func place(dead, id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(dead + "\x00" + id)) // a hash takes everything
	return h.Sum64()
}

// silent returns the members that are to be declared dead as of the last update, and whether there are others for which that was postponed.
func (j *judge) silent() (dead []Member, later bool) {
	for id, o := range j.members {
		if id == j.self || j.silence(o) < j.duration(o.member) {
			continue
		}
		if j.silence(o) < j.duration(o.member)+time.Duration(j.rank(id))*j.every {
			continue
		}
		if j.last.Before(o.postponed) {
			later = true
			continue
		}
		dead = append(dead, o.member)
	}
	return dead, later
}
