package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// gather is how long changes are gathered, from the last time that some were shown, so that many at once are shown together.
	gather = 25 * time.Millisecond

	// blindAfter is how long the watch may take to show what this member has written. After that it is begun anew.
	blindAfter = 30 * time.Second

	// longestProof bounds for how long an answer proves that the API server stores what it is given.
	longestProof = 10 * time.Second

	// shortestWatch is how long a watch lasts at least of which it is routine that it ends.
	shortestWatch = time.Second
)

var (
	errEnded = errors.New("the watch has ended")

	// errBlind is why a watch is given up that is open and shows nothing.
	errBlind = errors.New("the watch does not show what was written")
)

// kubernetesView is the pool as a list and a watch have shown it.
type kubernetesView struct {
	names   kubernetesNames
	version string            // to watch from
	members map[string]Member // by the name of the record
	copies  map[string]int    // by ID: how many records have it
	leases  []Lease           // by partition; those without a version have no record

	newMembers, newLeases bool // there is something to show
}

// Watch implements Backend. It ends when the API server can be neither watched nor listed; a watch that merely ends, or is too old, is
// routine.
func (k *Kubernetes) Watch(ctx context.Context, every time.Duration, see func(Update)) error {
	view := &kubernetesView{names: k.names}
	if err := k.begin(ctx, view); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	prober := newProber(k, view.proof())
	var probing sync.WaitGroup
	defer probing.Wait()
	defer cancel()
	probing.Go(func() { prober.run(ctx) })

	show := &shower{view: view, see: see, every: every, prober: prober}
	show.proven(time.Now())
	show.show()
	for {
		began := time.Now()
		err := k.follow(ctx, view, show)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
			if err := k.read(ctx, view); err != nil {
				return err
			}
			show.show()
		case errors.Is(err, errBlind), time.Since(began) < shortestWatch:
			return err
		}
	}
}

// begin reads everything, if that is permitted.
func (k *Kubernetes) begin(ctx context.Context, view *kubernetesView) error {
	asking, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := k.permitted(asking); err != nil {
		return err
	}
	return k.read(ctx, view)
}

// read lists everything.
func (k *Kubernetes) read(ctx context.Context, view *kubernetesView) error {
	listing, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	began := time.Now()
	all, err := k.client.list(listing, k.names.selector())
	if err != nil {
		return k.failed(listing, fmt.Errorf("list leases: %w", err))
	}
	k.mu.Lock()
	if k.awaited.since.Before(began) {
		k.awaited = awaited{} // it was in the list, or something later was
	}
	k.mu.Unlock()
	view.reset(all)
	return nil
}

// follow watches until the watch ends, and says why.
func (k *Kubernetes) follow(ctx context.Context, view *kubernetesView, show *shower) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The request's header has a time limit, its body has none.
	limit := time.AfterFunc(readTimeout, k.client.reconnect)
	w, err := k.client.watch(ctx, k.names.selector(), view.version)
	limit.Stop()
	if err != nil {
		return fmt.Errorf("watch leases: %w", err)
	}
	defer w.Stop()
	tick := time.NewTicker(show.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case at := <-show.prober.found:
			show.proven(at)
		case <-tick.C:
			if k.blind() {
				k.client.reconnect()
				return errBlind
			}
			show.confirm()
		case <-show.later():
			show.show()
		case e, open := <-w.ResultChan():
			if !open {
				return errEnded
			}
			if err := k.take(e, view, show); err != nil {
				return err
			}
		}
	}
}

// take takes in an event.
func (k *Kubernetes) take(e watch.Event, view *kubernetesView, show *shower) error {
	if e.Type == watch.Error {
		return fmt.Errorf("watch leases: %w", apierrors.FromObject(e.Object))
	}
	l, ok := e.Object.(*coordination.Lease)
	if !ok {
		return fmt.Errorf("watch leases: got a %T", e.Object)
	}
	view.version = l.ResourceVersion
	if e.Type == watch.Bookmark {
		return nil
	}
	show.proven(time.Now())
	k.mu.Lock()
	if k.awaited.name == l.Name && k.awaited.version == l.ResourceVersion {
		k.awaited = awaited{}
	}
	k.mu.Unlock()
	view.change(l, e.Type == watch.Deleted)
	show.soon()
	return nil
}

// blind says whether the watch has failed to show what this member wrote.
func (k *Kubernetes) blind() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.awaited.name != "" && time.Since(k.awaited.since) > blindAfter
}

func (v *kubernetesView) reset(all *coordination.LeaseList) {
	v.version = all.ResourceVersion
	v.members, v.copies, v.leases = map[string]Member{}, map[string]int{}, nil
	v.newMembers, v.newLeases = true, true
	for i := range all.Items {
		v.change(&all.Items[i], false)
	}
}

// change takes in one record. Those that are neither a member's nor a partition's are passed over.
func (v *kubernetesView) change(l *coordination.Lease, gone bool) {
	gone = gone || l.DeletionTimestamp != nil // what only waits for a finalizer
	if p, ok := v.names.partitionOf(l.Name); ok {
		v.newLeases = true
		if p >= len(v.leases) {
			v.leases = append(v.leases, make([]Lease, p+1-len(v.leases))...)
		}
		v.leases[p] = Lease{}
		if !gone {
			v.leases[p] = leaseOf(p, l)
		}
	} else if v.names.isMember(l.Name) {
		if gone {
			v.setMember(l.Name, nil)
		} else {
			m := memberOf(l)
			v.setMember(l.Name, &m)
		}
	}
}

// update is what there is to show.
func (v *kubernetesView) update() Update {
	var u Update
	if v.newMembers {
		u.Members = make([]Member, 0, len(v.members))
		for _, m := range v.members {
			u.Members = append(u.Members, m)
		}
		if len(v.copies) < len(u.Members) {
			u.Members = v.originals()
		}
	}
	if v.newLeases {
		u.Leases = make([]Lease, 0, len(v.leases))
		for _, l := range v.leases {
			if l.Version != "" {
				u.Leases = append(u.Leases, l)
			}
		}
	}
	v.newMembers, v.newLeases = false, false
	return u
}

// originals leaves out records that somebody has copied: the first by name is the member's.
func (v *kubernetesView) originals() []Member {
	first := make(map[string]string, len(v.members))
	for name, m := range v.members {
		if other, twice := first[m.ID]; !twice || name < other {
			first[m.ID] = name
		}
	}
	members := make([]Member, 0, len(first))
	for _, name := range first {
		members = append(members, v.members[name])
	}
	return members
}

// setMember puts a member's record into the view, or, if m is nil, takes it out.
func (v *kubernetesView) setMember(name string, m *Member) {
	if before, ok := v.members[name]; ok {
		if v.copies[before.ID]--; v.copies[before.ID] == 0 {
			delete(v.copies, before.ID)
		}
		delete(v.members, name)
	}
	if m != nil {
		v.members[name] = *m
		v.copies[m.ID]++
	}
	v.newMembers = true
}

// proof is for how long an answer proves that other members, too, could have renewed: a little longer than a third of the shortest of their
// durations. Members that renew every third of one duration so prove it to themselves; and since a gap of more than a quarter interrupts the
// observation of a member, nobody is declared dead for a time in which the API server took no writes.
func (v *kubernetesView) proof() time.Duration {
	const share, of = 9, 25
	shortest := longestProof * of / share
	for _, m := range v.members {
		if m.Duration > 0 {
			shortest = min(shortest, m.Duration)
		}
	}
	return max(shortest, minDuration) * share / of
}

// shower shows the view: changes soon, and that it is current as long as that is proven.
type shower struct {
	view   *kubernetesView
	see    func(Update)
	every  time.Duration
	prober *prober

	shown  time.Time   // when see was called last
	proof  time.Time   // when the API server was last known to work
	gather *time.Timer // nil if there is nothing to show
}

func (s *shower) proven(at time.Time) {
	if at.After(s.proof) {
		s.proof = at
		s.prober.last.Store(int64(at.Sub(s.prober.k.began)))
	}
}

func (s *shower) soon() {
	if s.gather == nil {
		s.gather = time.NewTimer(max(gather-time.Since(s.shown), 0))
	}
}

func (s *shower) later() <-chan time.Time {
	if s.gather == nil {
		return nil
	}
	return s.gather.C
}

func (s *shower) show() {
	s.gather = nil
	u := s.view.update()
	if u.Members != nil {
		s.prober.lasts(s.view.proof())
	}
	s.shown = time.Now()
	s.see(u)
}

// confirm shows that nothing has changed, if there is proof.
func (s *shower) confirm() {
	if at := s.prober.k.lastWrite(); at.After(s.proof) {
		s.proven(at)
	}
	if time.Since(s.proof) <= s.view.proof() && time.Since(s.shown) >= s.every/2 {
		s.shown = time.Now()
		s.see(Update{})
	}
}

// lastWrite is when a write of ours was last answered.
func (k *Kubernetes) lastWrite() time.Time {
	return k.began.Add(time.Duration(k.answered.Load()))
}
