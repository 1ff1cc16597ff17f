package chaos

import (
	"fmt"
	"strings"

	"github.com/outlane/outlane/internal/city"
)

const servers = 3

// stream is one of the city's streams as a chaos run has it.
type stream struct {
	name, subject string
	replicas      int
	fast, block   bool
	strict        bool // in order of sequence
}

// streams are the city's, in every combination that matters.
var streams = plan(map[string]stream{
	"STREAM_PAYOUT":     {replicas: 3, fast: true, block: true},
	"STREAM_CLAIM":      {replicas: 3},
	"STREAM_STAKING":    {replicas: 3, fast: true},
	"STREAM_RWA":        {replicas: 1, fast: true},
	"STREAM_ENERGY":     {replicas: 1},
	"STREAM_ORACLE":     {replicas: 3, fast: true, strict: true},
	"STREAM_GOVERNANCE": {replicas: 3, block: true},
	"STREAM_AGENT_RUN":  {replicas: 1, fast: true, block: true},
	"STREAM_CHAT":       {replicas: 3, fast: true},
})

func plan(how map[string]stream) []stream {
	list := make([]stream, len(city.Streams))
	for i, c := range city.Streams {
		list[i] = how[c.Name]
		list[i].name, list[i].subject = c.Name, c.Subject
	}
	return list
}

func streamOf(name string) stream {
	for _, s := range streams {
		if s.name == name {
			return s
		}
	}
	return stream{name: name}
}

// topic is one that the stream has.
func (s stream) topic() string { return strings.TrimSuffix(s.subject, ">") + "chaos" }

// config is the workers' configuration file. No stream has more replicas than there are servers.
func config(p Pool, servers int, leases string) string {
	var b strings.Builder
	b.WriteString("partitionKeyField: team_id\n" + leases)
	fmt.Fprintf(&b, "nats: {ackTimeout: %s}\n", p.AckTimeout)
	fmt.Fprintf(&b, "worker: {batchEvents: %d, publishers: %d, maxAttempts: %d, memory: %s, pollOnly: %t, drainTimeout: 8s}\n",
		p.Batch, p.Publishers, p.MaxAttempts, p.Memory, p.PollOnly)
	fmt.Fprintf(&b, "database: {statementTimeout: %s}\n", p.StatementTimeout)
	b.WriteString("routes:\n")
	for _, s := range streams {
		policy, order := "skip", "commit"
		if s.block {
			policy = "block"
		}
		if s.strict {
			order = "sequence"
		}
		fmt.Fprintf(&b, "  - {topics: [%q], stream: %s, onDeadLetter: %s, order: %s}\n", s.subject, s.name, policy, order)
	}
	b.WriteString("streams:\n")
	for _, s := range streams {
		fmt.Fprintf(&b, "  - {name: %s, subjects: [%q], storage: file, replicas: %d, duplicateWindow: 24h, allowBatchPublish: %t}\n",
			s.name, s.subject, min(s.replicas, servers), s.fast)
	}
	return b.String()
}
