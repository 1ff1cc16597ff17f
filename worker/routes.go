package worker

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/outlane/outlane/publish"
)

// routeTable finds the route of a topic: the first whose patterns match. Safe for concurrent use.
type routeTable struct {
	routes   []Route
	fallback Route
	mu       sync.Mutex
	cache    map[string]Route
}

// cachedTopics bounds the cache: topics with ids in them are endless.
const cachedTopics = 4096

func newRouteTable(routes []Route, maxAttempts int) *routeTable {
	t := &routeTable{fallback: Route{MaxAttempts: maxAttempts, Order: OrderCommit}, cache: make(map[string]Route)}
	for _, r := range routes {
		if r.MaxAttempts == 0 {
			r.MaxAttempts = maxAttempts
		}
		if r.Order == "" {
			r.Order = OrderCommit
		}
		t.routes = append(t.routes, r)
	}
	return t
}

// blocks says whether an event could be forbidden by another owner's decision: a dead letter blocks all of its key, whatever route those take. If the
// epoch is ours after events were read, there was no such decision before.
func (t *routeTable) blocks() bool {
	return slices.ContainsFunc(t.routes, func(r Route) bool { return r.Block })
}

func (t *routeTable) match(topic string) Route {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r, ok := t.cache[topic]; ok {
		return r
	}
	if len(t.cache) >= cachedTopics {
		clear(t.cache)
	}
	r := t.find(topic)
	t.cache[topic] = r
	return r
}

func (t *routeTable) find(topic string) Route {
	for _, r := range t.routes {
		for _, pattern := range r.Topics {
			if publish.MatchTopic(pattern, topic) {
				return r
			}
		}
	}
	return t.fallback
}

// order is what lanes of a stream wait for.
func (t *routeTable) order(stream string) Order {
	for _, r := range t.routes {
		if r.Stream == stream {
			return r.Order
		}
	}
	return OrderCommit
}

// ranges writes ascending numbers briefly: 0-3,7,9-10.
func ranges(numbers []int) string {
	var b strings.Builder
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		fmt.Fprint(&b, numbers[i])
		if j > i {
			fmt.Fprintf(&b, "-%d", numbers[j])
		}
		i = j + 1
	}
	return b.String()
}
