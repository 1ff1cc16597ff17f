package model

import (
	"fmt"
	"hash/maphash"
)

// Result is what an exploration has found.
type Result struct {
	States    int  // different states
	Steps     int  // steps between them
	Depth     int  // of the state that is farthest from the first, in steps
	Violation *Run // nil: all is well
}

// Run leads from the first state to one with which something is wrong.
type Run struct {
	Fault  Fault
	Steps  []Step
	States []State // States[0] is the first one, States[i] what Steps[i-1] led to
}

// key stands for a state.
type key [2]uint64

type explorer struct {
	cfg    *Config
	seeds  [2]maphash.Seed
	ids    map[key]uint32
	parent []uint32
	goals  []uint32
	fair   [][2]uint32 // steps that are no faults, as to and from
}

// Explore visits every state of cfg, unless there are more than limit: that is an error. It stops at the first state with which something is wrong.
func Explore(cfg Config, limit int) (Result, error) {
	x := &explorer{cfg: &cfg, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, ids: make(map[key]uint32)}
	var res Result
	first := cfg.first()
	x.add(&first, 0)
	level, base := []State{first}, 0 // the states of one depth, and the number of the first of them
	for ; len(level) > 0; res.Depth++ {
		var next []State
		for i := range level {
			from := uint32(base + i)
			cfg.all(&level[i], func(step Step, to *State) {
				res.Steps++
				id, isNew := x.add(to, from)
				if isNew {
					next = append(next, *to)
				}
				if !step.Kind.fault() && id != from {
					x.fair = append(x.fair, [2]uint32{id, from})
				}
				if isNew && res.Violation == nil {
					if f := cfg.check(to); f != Fine {
						res.Violation = x.run(id, f)
					}
				}
			})
			if res.States = len(x.parent); res.Violation != nil {
				return res, nil
			}
			if len(x.parent) > limit {
				return res, fmt.Errorf("explore: there are more than %d states", limit)
			}
		}
		base += len(level)
		level = next
	}
	if id, stuck := x.stuck(); stuck {
		res.Violation = x.run(id, Stuck)
	}
	return res, nil
}

// add gives s a number, if it has none.
func (x *explorer) add(s *State, parent uint32) (id uint32, isNew bool) {
	k := x.key(s)
	if id, ok := x.ids[k]; ok {
		return id, false
	}
	id = uint32(len(x.parent))
	x.ids[k] = id
	x.parent = append(x.parent, parent)
	if x.cfg.goal(s) {
		x.goals = append(x.goals, id)
	}
	return id, true
}

func (x *explorer) key(s *State) key {
	w := x.cfg.pack(s)
	return key{maphash.Comparable(x.seeds[0], w), maphash.Comparable(x.seeds[1], w)}
}

// stuck finds a state from which no run without further faults leads to a goal, the one with the fewest steps before it. It goes backwards from
// the goals, by steps that are no faults.
func (x *explorer) stuck() (uint32, bool) {
	// The steps that lead to state n are before[start[n]:start[n+1]].
	start := make([]uint32, len(x.parent)+1)
	for _, step := range x.fair {
		start[step[0]+1]++
	}
	for i := 1; i < len(start); i++ {
		start[i] += start[i-1]
	}
	before, filled := make([]uint32, len(x.fair)), make([]uint32, len(x.parent))
	for _, step := range x.fair {
		to := step[0]
		before[start[to]+filled[to]] = step[1]
		filled[to]++
	}
	reaches := make([]bool, len(x.parent))
	queue := x.goals
	for _, id := range queue {
		reaches[id] = true
	}
	for len(queue) > 0 {
		id := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, from := range before[start[id]:start[id+1]] {
			if !reaches[from] {
				reaches[from] = true
				queue = append(queue, from)
			}
		}
	}
	for id, ok := range reaches {
		if !ok {
			return uint32(id), true
		}
	}
	return 0, false
}

// run goes from the first state to id, which was reached in the fewest steps.
func (x *explorer) run(id uint32, f Fault) *Run {
	path := []uint32{id}
	for id != 0 {
		id = x.parent[id]
		path = append(path, id)
	}
	r := &Run{Fault: f, States: []State{x.cfg.first()}}
	for i := len(path) - 2; i >= 0; i-- {
		from := r.States[len(r.States)-1]
		found := false
		x.cfg.all(&from, func(step Step, to *State) {
			if !found && x.ids[x.key(to)] == path[i] {
				found = true
				r.Steps, r.States = append(r.Steps, step), append(r.States, *to)
			}
		})
	}
	return r
}
