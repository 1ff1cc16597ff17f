package publish

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/outlane/outlane/internal/redact"
)

// Config is how a Broker reaches its servers.
type Config struct {
	URL      string // one or more server addresses, comma separated
	Name     string // the connection's name, seen by the server's operator
	Username string
	Password string
	Token    string
	// Files are read again at every connection attempt, so that rotated ones are picked up.
	PasswordFile string
	TokenFile    string
	CredsFile    string // JWT and nkey seed, as nsc makes it
	NKeyFile     string // nkey seed
	TLSCAFile    string
	TLSCertFile  string
	TLSKeyFile   string
	InboxPrefix  string // where answers go, for accounts that restrict it; _INBOX if empty

	AckTimeout         time.Duration // how long the server may be silent before a message counts as not answered; 5 s if zero
	MinDuplicateWindow time.Duration // Preflight refuses streams whose duplicate window is shorter; no check if zero

	Logger *slog.Logger // nothing is logged if nil
	// OnState is called when the connection's state changes, one call at a time, in order. It must not block, nor call Close.
	OnState func(connected bool, reason string)
}

const (
	defaultAckTimeout = 5 * time.Second
	reconnectWait     = 500 * time.Millisecond
	reconnectJitter   = 500 * time.Millisecond
	// A server that is silent for three of these is given up: sockets can die without being closed.
	pingInterval = 5 * time.Second
	writeTimeout = 10 * time.Second
)

func (c Config) validate() error {
	if strings.TrimSpace(c.URL) == "" {
		return errors.New("read the NATS address: it is empty")
	}
	for i, address := range c.addresses() { // which is not shown: a password can be anywhere in what cannot be read
		u, err := url.Parse(address)
		if err != nil || u.Hostname() == "" || strings.Contains(u.Hostname(), ":") && u.Host[0] != '[' {
			return fmt.Errorf("read NATS address %d: it is malformed", i+1)
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return fmt.Errorf("read NATS address %d: its scheme is not nats, tls, ws or wss", i+1)
		}
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		return errors.New("read the NATS settings: a TLS certificate and its key need each other")
	}
	ways := 0
	for _, set := range []bool{c.Username != "", c.Token != "" || c.TokenFile != "", c.CredsFile != "", c.NKeyFile != ""} {
		if set {
			ways++
		}
	}
	if ways > 1 {
		return errors.New("read the NATS settings: only one of user, token, credentials file and nkey file may be given")
	}
	if prefix := c.InboxPrefix; prefix != "" {
		if err := ValidateTopic(strings.TrimPrefix(prefix, "_INBOX.")); err != nil {
			return fmt.Errorf("read the NATS settings: inbox prefix: %w", err)
		}
	}
	return nil
}

func (c Config) addresses() []string {
	parts := strings.Split(c.URL, ",")
	for i, part := range parts {
		parts[i] = strings.TrimSpace(part)
		if !strings.Contains(part, "://") {
			parts[i] = "nats://" + parts[i]
		}
	}
	return parts
}

// secrets are what no text may show.
func (c Config) secrets() []string {
	return append(redact.Secrets(c.URL), c.Password, c.Token)
}

// options are those of one connection. Whatever comes from a file is read here once, so that a missing or malformed file is said at once, and
// again at every attempt.
func (c Config) options() ([]nats.Option, error) {
	opts := []nats.Option{
		nats.Name(c.Name),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectJitter, reconnectJitter),
		nats.RetryOnFailedConnect(true),
		// Without a server a message must fail at once: kept for later, it could arrive after it was given up.
		nats.ReconnectBufSize(-1),
		nats.PingInterval(pingInterval),
		nats.MaxPingsOutstanding(2),
		nats.FlusherTimeout(writeTimeout),
		nats.ReconnectOnFlusherError(),
	}
	if c.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	auth, err := c.authentication()
	if err != nil {
		return nil, err
	}
	opts = append(opts, auth...)
	if c.TLSCAFile != "" || c.TLSCertFile != "" {
		if c.TLSCAFile != "" {
			opts = append(opts, nats.ClientTLSConfig(c.certificate(), c.authorities()))
		} else {
			opts = append(opts, nats.ClientTLSConfig(c.certificate(), nil))
		}
	}
	return opts, nil
}

func (c Config) authentication() ([]nats.Option, error) {
	switch {
	case c.CredsFile != "":
		if _, err := os.ReadFile(c.CredsFile); err != nil {
			return nil, fmt.Errorf("read the credentials file: %w", err)
		}
		return []nats.Option{nats.UserCredentials(c.CredsFile)}, nil
	case c.NKeyFile != "":
		return c.nkey()
	case c.TokenFile != "":
		if _, err := secretFile(c.TokenFile); err != nil {
			return nil, err
		}
		return []nats.Option{nats.TokenHandler(func() string {
			token, _ := secretFile(c.TokenFile) // without it the server refuses, which is seen
			return token
		})}, nil
	case c.Token != "":
		return []nats.Option{nats.Token(c.Token)}, nil
	case c.PasswordFile != "":
		if _, err := secretFile(c.PasswordFile); err != nil {
			return nil, err
		}
		return []nats.Option{nats.UserInfoHandler(func() (string, string) {
			password, _ := secretFile(c.PasswordFile)
			return c.Username, password
		})}, nil
	case c.Username != "":
		return []nats.Option{nats.UserInfo(c.Username, c.Password)}, nil
	}
	return nil, nil
}

// nkey takes the public key from the file as it is now: a file with another key takes effect by a new connection, which Broker makes when the
// server has refused this one.
func (c Config) nkey() ([]nats.Option, error) {
	pair, err := readSeed(c.NKeyFile)
	if err != nil {
		return nil, err
	}
	defer pair.Wipe()
	public, err := pair.PublicKey()
	if err != nil {
		return nil, errors.New("read the nkey file: it has no usable seed")
	}
	sign := func(nonce []byte) ([]byte, error) {
		pair, err := readSeed(c.NKeyFile)
		if err != nil {
			return nil, err
		}
		defer pair.Wipe()
		return pair.Sign(nonce)
	}
	return []nats.Option{nats.Nkey(public, sign)}, nil
}

func readSeed(file string) (nkeys.KeyPair, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the nkey file: %w", err)
	}
	defer clear(text)
	pair, err := nkeys.ParseDecoratedNKey(text)
	if err != nil {
		return nil, errors.New("read the nkey file: it has no usable seed")
	}
	return pair, nil
}

func secretFile(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read a secret: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

func (c Config) certificate() nats.TLSCertHandler {
	if c.TLSCertFile == "" {
		return nil
	}
	return func() (tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(c.TLSCertFile, c.TLSKeyFile)
		if err != nil {
			return tls.Certificate{}, fmt.Errorf("read the TLS certificate: %w", err)
		}
		return pair, nil
	}
}

func (c Config) authorities() nats.RootCAsHandler {
	return func() (*x509.CertPool, error) {
		text, err := os.ReadFile(c.TLSCAFile)
		if err != nil {
			return nil, fmt.Errorf("read the TLS authorities: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("read the TLS authorities: %s has no certificate", c.TLSCAFile)
		}
		return pool, nil
	}
}
