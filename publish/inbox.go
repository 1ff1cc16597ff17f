package publish

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"

	"github.com/nats-io/nats.go"
)

// inbox is the one subscription through which all answers come: <prefix>.<id of the call>.<what was answered>.
type inbox struct {
	prefix string // ends with a dot
	mark   string // begins the ids of this Broker: the server knows batches by their id alone, whoever sent them

	mu    sync.Mutex
	calls map[string]answerer
	last  uint64
	nc    *nats.Conn // where the subscription is
}

// answerer takes the answers of one call. It must not block. tail is what the reply subject had after the id.
type answerer interface {
	answer(tail string, m *nats.Msg)
}

func newInbox(prefix string) *inbox {
	if prefix == "" {
		prefix = "_INBOX"
	}
	return &inbox{
		prefix: prefix + "." + randomToken(10) + ".",
		mark:   randomToken(8),
		calls:  make(map[string]answerer),
	}
}

func randomToken(n int) string {
	const letters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	token := make([]byte, n)
	for i := range token {
		token[i] = letters[rand.IntN(len(letters))]
	}
	return string(token)
}

// listen subscribes on a connection that is new; the client itself subscribes again when it reconnects.
func (in *inbox) listen(nc *nats.Conn) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.nc == nc {
		return nil
	}
	if _, err := nc.Subscribe(in.prefix+">", in.receive); err != nil {
		return fmt.Errorf("listen for answers: %w", err)
	}
	in.nc = nc
	return nil
}

func (in *inbox) receive(m *nats.Msg) {
	rest := m.Subject[len(in.prefix):]
	id, tail, _ := strings.Cut(rest, ".")
	in.mu.Lock()
	call := in.calls[id]
	in.mu.Unlock()
	if call != nil {
		call.answer(tail, m)
	}
}

// open gives a call its id. Answers come until close.
func (in *inbox) open(call answerer) (id string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.last++
	id = in.mark + strconv.FormatUint(in.last, 36)
	in.calls[id] = call
	return id
}

func (in *inbox) close(id string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.calls, id)
}
