package publish

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
)

// An empty id would switch duplicate detection off. No other id is encoded as a lone percent sign.
const emptyID = "%"

// maxKey is the longest Outlane-Key; a longer key is cut.
const maxKey = 1024

// EncodeID is the id as it stands in Nats-Msg-Id. Ids that differ stay different: the server and its clients trim spaces around a header's
// value and end it at a line end, so those are percent-encoded, as are other control characters and the percent sign itself. Most ids
// stay as they are.
func EncodeID(id string) string {
	if id == "" {
		return emptyID
	}
	return encode(id)
}

// DecodeID is the id that EncodeID was given.
func DecodeID(text string) string {
	if text == emptyID {
		return ""
	}
	return decode(text)
}

// EncodeKey is the key as it stands in Outlane-Key: encoded like an id, and if that is longer than 1,024 bytes, its first part followed by
// "%~" and the SHA-256 of the whole key in hexadecimal. So keys that differ stay different.
func EncodeKey(key string) string {
	text := encode(key)
	if len(text) <= maxKey {
		return text
	}
	sum := sha256.Sum256([]byte(key))
	tail := "%~" + hex.EncodeToString(sum[:])
	cut := maxKey - len(tail)
	for cut > 0 && text[cut]&0xC0 == 0x80 { // not inside a character of several bytes
		cut--
	}
	if i := strings.LastIndexByte(text[:cut], '%'); i >= 0 && cut-i < 3 { // nor inside a code
		cut = i
	}
	return text[:cut] + tail
}

// DecodeKey is the key that EncodeKey was given, or, if it was cut, the text as it is and false.
func DecodeKey(text string) (key string, whole bool) {
	if i := strings.LastIndex(text, "%~"); i >= 0 {
		return text, false
	}
	return decode(text), true
}

// encode returns text itself if nothing is to be encoded, without allocating.
func encode(text string) string {
	n := 0
	for i := range len(text) {
		if mustEncode(text, i) {
			n++
		}
	}
	if n == 0 {
		return text
	}
	const digits = "0123456789ABCDEF"
	out := make([]byte, 0, len(text)+2*n)
	for i := range len(text) {
		if c := text[i]; mustEncode(text, i) {
			out = append(out, '%', digits[c>>4], digits[c&15])
		} else {
			out = append(out, c)
		}
	}
	return string(out)
}

func mustEncode(text string, i int) bool {
	switch c := text[i]; {
	case c < ' ', c == 0x7f, c == '%':
		return true
	case c == ' ':
		return i == 0 || i == len(text)-1
	}
	return false
}

func decode(text string) string {
	if plain, err := url.PathUnescape(text); err == nil {
		return plain
	}
	return text
}
