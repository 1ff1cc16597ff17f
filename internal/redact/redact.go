// Package redact keeps secrets out of what people and programs read: errors, logs, printouts.
//
// URL and Text know the usual forms: a password or token in a URL, a password in a keyword connection string. A Redactor also hides values
// that it was told. They mask too much rather than too little: what is doubtful is hidden. They are the last net, and replace nobody's duty
// not to put a secret into a message.
//
// Everything here may be called by any goroutine.
package redact

import (
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Mask stands for a secret.
const Mask = "***"

var (
	scheme   = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://`)
	keyword  = regexp.MustCompile(`(?i)((?:(?:ssl)?password|token)\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&'",;)]+)`)
	tokenEnd = " \t\r\n\"'`<>"
)

// URL masks the secrets of one address or of several with commas between: also those without a scheme, and keyword connection strings.
func URL(address string) string {
	if !scheme.MatchString(address) && !strings.Contains(address, "=") {
		return maskUser(address, true)
	}
	return Text(address)
}

// Text masks the secrets of every URL and connection string in a text.
func Text(text string) string {
	var b strings.Builder
	rest := text
	for {
		at := scheme.FindStringIndex(rest)
		if at == nil {
			b.WriteString(rest)
			break
		}
		b.WriteString(rest[:at[1]])
		isNATS := !strings.HasPrefix(strings.ToLower(rest[at[0]:at[1]]), "postgres")
		rest = rest[at[1]:]
		end := len(rest)
		if next := scheme.FindStringIndex(rest); next != nil {
			end = next[0]
		}
		if space := strings.IndexAny(rest[:end], tokenEnd); space >= 0 {
			end = space
		}
		b.WriteString(maskUser(rest[:end], isNATS))
		rest = rest[end:]
	}
	return keyword.ReplaceAllString(b.String(), "${1}"+Mask)
}

// maskUser masks the secret before the last @ of an address without its scheme. A lone user name is one, if it may be a token.
func maskUser(address string, loneIsToken bool) string {
	at := strings.LastIndexByte(address, '@')
	if at < 0 {
		return address
	}
	user, _, hasPassword := strings.Cut(address[:at], ":")
	switch {
	case hasPassword:
		return user + ":" + Mask + address[at:]
	case loneIsToken:
		return Mask + address[at:]
	}
	return address
}

// Secrets are the passwords and tokens in an address, as they are written there and as they are meant.
func Secrets(address string) []string {
	var found []string
	for part := range strings.SplitSeq(address, ",") {
		if at := scheme.FindStringIndex(part); at != nil {
			part = part[at[1]:]
		}
		if at := strings.LastIndexByte(part, '@'); at >= 0 {
			if _, password, ok := strings.Cut(part[:at], ":"); ok {
				found = append(found, password)
			}
		}
	}
	for _, m := range keyword.FindAllStringSubmatch(address, -1) {
		found = append(found, strings.Trim(m[2], "'"))
	}
	for _, s := range found {
		if plain, err := url.PathUnescape(s); err == nil && plain != s {
			found = append(found, plain)
		}
	}
	return slices.DeleteFunc(found, func(s string) bool { return s == "" })
}

// Redactor hides the secrets it was told, and whatever Text hides.
type Redactor struct{ replacer *strings.Replacer }

// shortest is the length below which hiding a value everywhere would only make texts unreadable.
const shortest = 4

// New makes a Redactor. Secrets of less than four bytes are not looked for.
func New(secrets ...string) *Redactor {
	var pairs []string
	slices.SortFunc(secrets, func(a, b string) int { return len(b) - len(a) })
	for _, s := range secrets {
		if len(s) >= shortest {
			pairs = append(pairs, s, Mask)
		}
	}
	return &Redactor{strings.NewReplacer(pairs...)}
}

// Text is the text without secrets.
func (r *Redactor) Text(text string) string { return r.replacer.Replace(Text(text)) }

// Attr is for slog.HandlerOptions.ReplaceAttr: it cleans messages, texts and errors.
func (r *Redactor) Attr(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case string:
		if clean := r.Text(v); clean != v {
			return slog.String(a.Key, clean)
		}
	case error:
		return slog.String(a.Key, r.Text(v.Error()))
	}
	return a
}
