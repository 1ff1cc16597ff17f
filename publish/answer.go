package publish

import (
	"encoding/json"
	"errors"

	"github.com/nats-io/nats.go"
)

// answer is what JetStream says to a message: an acknowledgement of a message or of a batch, a refusal, or, with a type, news of a batch.
type answer struct {
	Type   string    `json:"type"` // ack, gap, err
	Error  *apiError `json:"error"`
	Stream string    `json:"stream"`
	Seq    uint64    `json:"seq"` // of the stream; with a type, of the batch
	Batch  string    `json:"batch"`
	Count  uint64    `json:"count"` // how many messages of the batch are stored
}

var errOtherStream = errors.New("the topic belongs to another stream")

// readAnswer returns false for what JetStream would not say.
func readAnswer(m *nats.Msg) (answer, bool) {
	var a answer
	if len(m.Data) == 0 || json.Unmarshal(m.Data, &a) != nil {
		return answer{}, false
	}
	return a, a.Error != nil || a.Type != "" || a.Stream != ""
}

// nobodyListens says whether the server itself answered, because nobody else could.
func nobodyListens(m *nats.Msg) bool {
	return len(m.Data) == 0 && m.Header.Get("Status") == "503"
}

// refusal is the error of an answer, seen by who sent to stream.
func (a answer) refusal(stream string) *Error {
	if a.Stream != "" && a.Stream != stream {
		return &Error{Kind: Refused, Reason: ReasonWrongStream, Err: errOtherStream}
	}
	return classify(a.Error)
}
