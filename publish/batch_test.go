package publish

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"
)

// The answers to a batch of ten messages, in the order in which a server may give them, and what they mean.
func TestAnswersToABatch(t *testing.T) {
	t.Parallel()
	const (
		done    = `{"stream":"S","seq":70,"batch":"B","count":%d}`
		unknown = `{"error":{"code":400,"err_code":10208,"description":"unknown"},"stream":"S","seq":0}`
		large   = `{"error":{"code":400,"err_code":10054,"description":"too large"},"stream":"S","seq":0}`
		sealed  = `{"error":{"code":400,"err_code":10109,"description":"sealed"},"stream":"S","seq":0}`
		busy    = `{"error":{"code":429,"err_code":10167,"description":"too many"},"stream":"S","seq":0}`
		foreign = `{"error":{"code":400,"err_code":10208,"description":"unknown"},"stream":"OTHER","seq":0}`
		full    = `{"type":"err","seq":%d,"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"}}`
	)
	at := func(number int, text string) string {
		op := opAppend
		if number == 10 {
			op = opCommit
		}
		return fmt.Sprintf("%d %d %s", number, op, text)
	}
	for name, c := range map[string]struct {
		answers []string
		stored  int
		reason  string // empty: none
		open    bool   // nothing is decided, whatever came
		mustEnd bool
	}{
		"all":                     {answers: []string{at(10, fmt.Sprintf(done, 10))}, stored: 10},
		"flow and all":            {answers: []string{at(1, `{"type":"ack","seq":0,"msgs":1}`), at(5, `{"type":"ack","seq":5,"msgs":10}`), at(10, fmt.Sprintf(done, 10))}, stored: 10},
		"flow is no end":          {answers: []string{at(10, `{"type":"ack","seq":10,"msgs":10}`)}, open: true},
		"a gap is no end":         {answers: []string{at(7, `{"type":"gap","last_seq":3,"seq":7}`)}, open: true},
		"after a gap":             {answers: []string{at(7, `{"type":"gap","last_seq":3,"seq":7}`), at(7, fmt.Sprintf(done, 2))}, stored: 2, reason: ReasonBatchLost},
		"first refused":           {answers: []string{at(1, large), at(2, unknown), at(10, unknown)}, reason: ReasonTooLarge},
		"middle refused":          {answers: []string{at(4, fmt.Sprintf(full, 4)), at(4, fmt.Sprintf(done, 3)), at(5, unknown)}, stored: 3, reason: ReasonStreamFull},
		"last refused":            {answers: []string{at(10, fmt.Sprintf(full, 10)), at(9, fmt.Sprintf(done, 9))}, stored: 9, reason: ReasonStreamFull},
		"many refused":            {answers: []string{at(4, large), at(5, large), at(6, large), at(5, fmt.Sprintf(done, 3))}, stored: 3, reason: ReasonTooLarge, mustEnd: true},
		"refused in any order":    {answers: []string{at(6, sealed), at(4, large), at(5, busy), at(5, fmt.Sprintf(done, 3))}, stored: 3, reason: ReasonTooLarge, mustEnd: true},
		"refused but it went on":  {answers: []string{at(4, busy), at(10, fmt.Sprintf(done, 10))}, stored: 3, reason: ReasonBusy, mustEnd: true},
		"refused, waits":          {answers: []string{at(4, large)}, open: true, mustEnd: true},
		"refused, fewer stored":   {answers: []string{at(4, large), at(4, fmt.Sprintf(done, 2))}, stored: 2, reason: ReasonBatchLost, mustEnd: true},
		"lost start":              {answers: []string{at(2, unknown)}, reason: ReasonBatchLost},
		"lost, end unknown":       {answers: []string{at(4, large), fmt.Sprintf("4 %d %s", opPing, unknown)}, reason: ReasonBatchLost, mustEnd: true},
		"lost, stream sealed":     {answers: []string{at(4, sealed), fmt.Sprintf("4 %d %s", opPing, sealed)}, reason: ReasonSealed, mustEnd: true},
		"ping refused":            {answers: []string{fmt.Sprintf("10 %d %s", opPing, busy)}, reason: ReasonBusy},
		"nobody from the start":   {answers: []string{at(1, ""), at(2, "")}, reason: ReasonNoResponders},
		"nobody in the middle":    {answers: []string{at(4, ""), at(5, fmt.Sprintf(done, 3))}, stored: 3, reason: ReasonNoResponders, mustEnd: true},
		"another stream":          {answers: []string{at(4, foreign), at(5, fmt.Sprintf(done, 3))}, stored: 3, reason: ReasonWrongStream, mustEnd: true},
		"somebody else":           {answers: []string{at(3, "thanks"), at(3, "{}"), at(3, `{"stream":"S","seq":9}`), at(3, `{"stream":"OTHER","seq":9,"batch":"B","count":10}`)}, open: true},
		"somebody else, then all": {answers: []string{at(3, "thanks"), at(3, `{"stream":"S","seq":9,"batch":"C","count":10}`), at(10, fmt.Sprintf(done, 10))}, stored: 10},
		"more than was sent":      {answers: []string{at(10, fmt.Sprintf(done, 11))}, stored: 10},
	} {
		b := &batch{stream: "S", id: "B", wake: make(chan struct{}, 1)}
		for _, text := range c.answers {
			var number, op int
			n, err := fmt.Sscanf(text, "%d %d", &number, &op)
			require.Equal(t, 2, n, err)
			m := &nats.Msg{Data: []byte(strings.SplitN(text, " ", 3)[2])}
			if len(m.Data) == 0 {
				m.Header = nats.Header{"Status": {"503"}}
			}
			b.answer(fmt.Sprintf("500.fail.%d.%d.$FI", number, op), m)
			require.Len(t, b.wake, 1)
		}
		require.Equal(t, c.open, !b.ended && b.lost == nil, name)
		require.Equal(t, c.mustEnd, b.open, name)
		require.Equal(t, !c.open || c.mustEnd, b.stop.Load(), name)
		if c.open {
			continue
		}
		res := (&call{}).result(t.Context(), b, make([]Message, 10))
		require.Equal(t, c.stored, res.Stored, name)
		if c.reason == "" {
			require.Nil(t, res.Err, name)
			continue
		}
		require.NotNil(t, res.Err, name)
		require.Equal(t, c.reason, res.Err.Reason, name)
	}
}

func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{"", "500", "500.fail.x.1.$FI", "500.fail.1.1", "a.b.c.d.e.f"} {
		b := &batch{stream: "S", id: "B", wake: make(chan struct{}, 1)}
		b.answer(tail, &nats.Msg{Data: []byte(`{"stream":"S","seq":70,"batch":"B","count":1}`)})
		require.False(t, b.ended, tail)
	}
}

func TestASyncCallTakesOnlyItsMessagesAnswer(t *testing.T) {
	t.Parallel()
	b := &Broker{cfg: Config{AckTimeout: time.Minute}}
	c := &call{Broker: b, link: &link{down: make(chan struct{})}}
	s := &syncCall{stream: "S", answers: make(chan syncAnswer, syncAnswers)}
	ack := func(number, text string) { s.answer(number, &nats.Msg{Data: []byte(text)}) }
	ack("3", `{"stream":"S","seq":3}`)
	ack("3", `{"error":{"code":503,"err_code":10077,"description":"late"},"stream":"S"}`)
	ack("4", `thanks`)
	ack("4", `{"stream":"OTHER","seq":1}`)
	ack("4", `{"stream":"S","seq":0}`)
	ack("4", `{"type":"ack","stream":"S","seq":8}`)
	ack("4", `{"stream":"S","seq":4,"duplicate":true}`)
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	seq, err := c.await(t.Context(), s, "4", timer)
	require.Nil(t, err)
	require.Equal(t, uint64(4), seq)

	for range 10 * syncAnswers {
		ack("4", `{"stream":"S","seq":4}`) // nobody listens, and nothing blocks
	}
	timer.Reset(0)
	ack("5", `thanks`)
	for len(s.answers) > 0 {
		<-s.answers
	}
	ack("5", `thanks`)
	_, err = c.await(t.Context(), s, "5", timer)
	require.Contains(t, []string{ReasonTimeout, ReasonNotJetStream}, err.Reason, "what was said is no answer")
}
