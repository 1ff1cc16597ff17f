// Package pgurl says what is wrong with the address of a database, in errors that never repeat the address: it has a password in it, and one that
// cannot be read cannot be masked either.
package pgurl

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

var errMisread = errors.New("there is an @ in the host or the database's name; in a password write %40 for @ and %2F for /")

// Check takes the outcome of parsing an address, and says why it cannot be used, if so. A URL whose password has characters in it that end a
// password is read as another address: that is found by the @ that is left over.
func Check(url string, config *pgconn.Config, err error) error {
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		text := parse.Error()
		if i := strings.LastIndex(text, "`: "); i >= 0 {
			text = text[i+len("`: "):]
		}
		return errors.New(text)
	}
	if err != nil || !strings.Contains(url, "://") {
		return err
	}
	texts := []string{config.Host, config.Database}
	for _, f := range config.Fallbacks {
		texts = append(texts, f.Host)
	}
	for name := range config.RuntimeParams {
		texts = append(texts, name)
	}
	for _, text := range texts {
		if strings.Contains(text, "@") {
			return errMisread
		}
	}
	return nil
}
