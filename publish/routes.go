package publish

import "strings"

// Route sends topics to a stream.
type Route struct {
	Topics []string // patterns as in NATS: * is one token, a last > is one or more
	Stream string
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
