package publish

import (
	"errors"
	"fmt"
	"strings"
)

// Route sends topics to a stream.
type Route struct {
	Topics []string // patterns as in NATS: * is one token, a last > is one or more
	Stream string
}

// Validate says what is wrong with the route.
func (r Route) Validate() error {
	if err := ValidateStreamName(r.Stream); err != nil {
		return fmt.Errorf("stream: %w", err)
	}
	if len(r.Topics) == 0 {
		return errors.New("topics: there are none")
	}
	for _, topic := range r.Topics {
		if err := ValidatePattern(topic); err != nil {
			return fmt.Errorf("topics: %w", err)
		}
	}
	return nil
}

// maxTopic leaves room, in the 4,096 bytes that a server takes as one line of the protocol, for the reply subject. A longer line would end
// the connection, for everybody on it.
const maxTopic = 2048

// maxStreamName is the server's limit.
const maxStreamName = 255

// ValidateTopic says why topic cannot be the subject of an event.
func ValidateTopic(topic string) error { return validateSubject(topic, false) }

// ValidatePattern says why pattern cannot be a topic pattern.
func ValidatePattern(pattern string) error { return validateSubject(pattern, true) }

func validateSubject(subject string, wildcards bool) error {
	switch {
	case subject == "":
		return errors.New("it is empty")
	case len(subject) > maxTopic:
		return fmt.Errorf("it has %d bytes, more than %d", len(subject), maxTopic)
	case subject[0] == '$':
		return fmt.Errorf("%s begins with $, which is the server's own", quote(subject))
	case strings.HasPrefix(subject, "_INBOX."):
		return fmt.Errorf("%s is an inbox, where somebody waits for an answer", quote(subject))
	}
	start := 0
	for i := 0; i <= len(subject); i++ {
		if i < len(subject) && subject[i] != '.' {
			if c := subject[i]; c <= ' ' || c == 0x7f {
				return fmt.Errorf("%s has a space or a control character", quote(subject))
			}
			continue
		}
		switch token := subject[start:i]; {
		case token == "":
			return fmt.Errorf("%s has an empty token", quote(subject))
		case (token == "*" || token == ">") && !wildcards:
			return fmt.Errorf("%s has a wildcard", quote(subject))
		case token == ">" && i < len(subject):
			return fmt.Errorf("%s has > before its end", quote(subject))
		}
		start = i + 1
	}
	return nil
}

// ValidateStreamName says why no stream can have this name.
func ValidateStreamName(name string) error {
	switch {
	case name == "":
		return errors.New("it is empty")
	case len(name) > maxStreamName:
		return fmt.Errorf("it has %d bytes, more than %d", len(name), maxStreamName)
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c == 0x7f || strings.IndexByte(`.*>/\`, c) >= 0 {
			return fmt.Errorf("%s has %s", quote(name), quote(name[i:i+1]))
		}
	}
	return nil
}

// quote makes text from outside safe and short enough for an error.
func quote(text string) string {
	const most = 80
	if len(text) > most {
		return fmt.Sprintf("%q…", text[:most])
	}
	return fmt.Sprintf("%q", text)
}

// MatchTopic says whether topic is one of those that pattern means. Both must be valid.
func MatchTopic(pattern, topic string) bool {
	for {
		p, restP, moreP := strings.Cut(pattern, ".")
		t, restT, moreT := strings.Cut(topic, ".")
		switch {
		case p == ">" && !moreP:
			return true
		case p != "*" && p != t, moreP != moreT:
			return false
		case !moreP:
			return true
		}
		pattern, topic = restP, restT
	}
}

// covers says whether every topic that pattern means is one that outer means.
func covers(outer, pattern string) bool {
	for {
		o, restO, moreO := strings.Cut(outer, ".")
		p, restP, moreP := strings.Cut(pattern, ".")
		switch {
		case o == ">" && !moreO:
			return true
		case p == ">" && !moreP:
			return false
		case o != "*" && o != p, moreO != moreP:
			return false
		case !moreO:
			return true
		}
		outer, pattern = restO, restP
	}
}
