package outbox

import (
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// marshal returns the JSON text of a payload, nil for none, and a reason if it cannot be stored.
func marshal(payload any) (text json.RawMessage, reason string) {
	switch p := payload.(type) {
	case nil:
		return nil, ""
	case []byte:
		return nil, "is a []byte, which could mean JSON text or bytes: use json.RawMessage, or the field Bytes"
	case json.RawMessage:
		if !utf8.Valid(p) {
			return nil, "is not valid UTF-8"
		}
		if !json.Valid(p) {
			return nil, "is not valid JSON"
		}
		return p, ""
	default:
		text, err := json.Marshal(payload)
		if err != nil {
			return nil, fmt.Sprintf("cannot be turned into JSON: %v", err)
		}
		return text, ""
	}
}

// inspect returns how many bytes Postgres will print for the JSON text, which is what is published: a space after each colon and comma, no
// other space, no needless escapes, numbers without exponents. It may count a little too much (exponents, repeated fields), never too
// little. The reason is not empty if jsonb cannot hold the text. The text must be valid JSON.
func inspect(text []byte) (size int, reason string) {
	for i := 0; i < len(text); {
		switch c := text[i]; c {
		case ' ', '\t', '\r', '\n':
			i++
		case ':', ',':
			size += 2
			i++
		case '"':
			printed, used, reason := inspectString(text[i:])
			if reason != "" {
				return 0, reason
			}
			size += printed
			i += used
		case 'e', 'E':
			// The exponent of a number; the e of true and false is followed by no digit.
			used := 1
			for i+used < len(text) && (text[i+used] == '+' || text[i+used] == '-' || isDigit(text[i+used])) {
				used++
			}
			size += used
			if exponent, err := strconv.Atoi(string(text[i+1 : i+used])); err == nil {
				size += max(exponent, -exponent)
			}
			i += used
		default:
			size++
			i++
		}
	}
	return size, ""
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// inspectString does inspect's work for the string that the text begins with; used is its length in the text.
func inspectString(text []byte) (printed, used int, reason string) {
	printed, used = 2, 1
	for text[used] != '"' {
		if text[used] != '\\' {
			printed++
			used++
			continue
		}
		if text[used+1] != 'u' {
			printed += 2
			if text[used+1] == '/' {
				printed--
			}
			used += 2
			continue
		}
		r := hex4(text[used+2:])
		used += 6
		switch {
		case r == 0:
			return 0, 0, `has the character \u0000, which Postgres cannot store in jsonb`
		case r == '\b' || r == '\f' || r == '\n' || r == '\r' || r == '\t' || r == '"' || r == '\\':
			printed += 2
		case r < ' ':
			printed += 6
		case utf16.IsSurrogate(r):
			low := rune(-1)
			if text[used] == '\\' && text[used+1] == 'u' {
				low = hex4(text[used+2:])
				used += 6
			}
			if utf16.DecodeRune(r, low) == utf8.RuneError {
				return 0, 0, `has half of a surrogate pair, such as \ud800, which Postgres cannot store in jsonb`
			}
			printed += 4
		default:
			printed += utf8.RuneLen(r)
		}
	}
	return printed, used + 1, ""
}

// hex4 reads the four digits of a \u escape in valid JSON.
func hex4(text []byte) rune {
	n, _ := strconv.ParseUint(string(text[:4]), 16, 16) // valid JSON has four hexadecimal digits there
	return rune(n)
}
