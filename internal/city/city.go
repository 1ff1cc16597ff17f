// Package city invents the events of a small city: teams that claim and get
// payouts, stake, trade inventory, buy energy, read oracles, vote, run agents
// and chat. The demo and benchmarks insert them.
//
// The same seed gives the same transactions. They make sense: a payout is
// generated before it is sent, an agent's run starts before it ends. The field
// step of a payload numbers what a team did in a stream, in the order in which
// the transactions were made; they may commit in another, or roll back.
//
// A City is for one goroutine. It does no input or output.
package city

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"
)

// Streams of the city, and the subjects each of them has.
var Streams = []struct{ Name, Subject string }{
	{"STREAM_PAYOUT", "payout.>"},
	{"STREAM_CLAIM", "claim.>"},
	{"STREAM_STAKING", "staking.>"},
	{"STREAM_RWA", "rwa.inventory.>"},
	{"STREAM_ENERGY", "embassy.energy.>"},
	{"STREAM_ORACLE", "oracle.reading.>"},
	{"STREAM_GOVERNANCE", "governance.>"},
	{"STREAM_AGENT_RUN", "agent.run.>"},
	{"STREAM_CHAT", "chat.>"},
}

// Blocking are the streams in which a team's later events must wait behind its dead letter.
var Blocking = map[string]bool{"STREAM_PAYOUT": true, "STREAM_GOVERNANCE": true}

// Event is one event of a transaction.
type Event struct {
	Stream, Topic string
	Payload       []byte // a JSON object with the team's id in team_id
	Headers       []byte // a JSON object, or nil
}

// Transaction is one business transaction.
type Transaction struct {
	Team   string
	What   string // for the ledger
	Amount int64  // in cents
	Events []Event
	// Pause is how long the transaction takes its time between its first event and the others; 0 for most.
	Pause time.Duration
	// RollBack says that the transaction changes its mind at the end.
	RollBack bool
}

// Options describe a city.
type Options struct {
	Teams int
	Seed  uint64
	// RollBacks and Pauses are shares of the transactions.
	RollBacks, Pauses float64
	LongestPause      time.Duration
}

// City makes transactions.
type City struct {
	opts  Options
	rand  *rand.Rand
	zipf  *rand.Zipf
	steps map[string]int
	total int
}

// New returns a city before its first transaction.
func New(opts Options) *City {
	r := rand.New(rand.NewPCG(opts.Seed, 1))
	return &City{
		opts: opts, rand: r, steps: map[string]int{},
		zipf: rand.NewZipf(r, 1.1, 20, uint64(opts.Teams-1)), // a few teams are much busier than most
	}
}

// Next is the next transaction, of one to five events.
func (c *City) Next() Transaction {
	t := Transaction{Team: fmt.Sprintf("team_%03d", c.zipf.Uint64())}
	if c.rand.IntN(4) == 0 {
		t.Team = fmt.Sprintf("team_%03d", c.rand.IntN(c.opts.Teams))
	}
	c.total++
	business[c.pick()].do(c, &t)
	if c.rand.Float64() < c.opts.RollBacks {
		t.RollBack = true
	}
	if c.rand.Float64() < c.opts.Pauses {
		t.Pause = c.opts.LongestPause/10 + time.Duration(c.rand.Int64N(int64(c.opts.LongestPause)*9/10))
	}
	return t
}

// Poison is a transaction whose only event no stream can take: its headers ask to erase the stream, which no row may.
func (c *City) Poison() Transaction {
	t := Transaction{Team: "team_000", What: "chat"}
	c.add(&t, "STREAM_CHAT", "chat.message", map[string]any{"room": "plaza", "text": "let us forget all this"})
	t.Events[0].Headers = []byte(`{"Nats-Rollup": "all"}`)
	return t
}

func (c *City) pick() int {
	n := c.rand.IntN(100)
	for i, b := range business {
		if n -= b.share; n < 0 {
			return i
		}
	}
	return 0
}

// add appends an event with the team, its step and what the payload says.
func (c *City) add(t *Transaction, stream, topic string, payload map[string]any) {
	c.steps[t.Team+stream]++
	payload["team_id"] = t.Team
	payload["step"] = c.steps[t.Team+stream]
	text, err := json.Marshal(payload)
	if err != nil {
		panic(err) // the payloads of this package are all of plain types
	}
	t.Events = append(t.Events, Event{Stream: stream, Topic: topic, Payload: text})
}

func (c *City) id(prefix string) string { return fmt.Sprintf("%s_%06d", prefix, c.total) }

func (c *City) one(words ...string) string { return words[c.rand.IntN(len(words))] }
