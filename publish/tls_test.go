package publish_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/outlane/outlane/internal/natsserver"
	"github.com/outlane/outlane/internal/natstest"
	"github.com/outlane/outlane/publish"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{cert, key}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a *authority) issue(t *testing.T) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "member"}, NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	require.NoError(t, err)
	text, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

func TestTLSFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path
	}
	old := newAuthority(t)
	accept := func(a *authority) func(*server.Options) {
		cert, key := a.issue(t)
		pair, err := tls.X509KeyPair(cert, key)
		require.NoError(t, err)
		return func(o *server.Options) {
			o.TLS, o.TLSTimeout = true, 10
			o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: a.pool(), ClientAuth: tls.RequireAndVerifyClientCert}
		}
	}
	s := natstest.Start(t, func(o *natsserver.Options) { o.Configure = accept(old) })
	store := func(a *authority) (ca, cert, key string) {
		c, k := a.issue(t)
		return write("ca", a.pem()), write("cert", c), write("key", k)
	}
	cfg := publish.Config{URL: s.URL}
	cfg.TLSCAFile, cfg.TLSCertFile, cfg.TLSKeyFile = store(old)
	b := connect(t, cfg)
	waitConnected(t, b)

	fresh := newAuthority(t)
	require.NoError(t, s.Reload(accept(fresh)))
	s.Restart(t)
	require.Eventually(t, func() bool {
		ok, reason := b.Connected()
		return !ok && strings.Contains(reason, "certificate")
	}, ceiling, time.Millisecond)
	store(fresh)
	waitConnected(t, b)
}

func TestACredentialsFileIsReadAgain(t *testing.T) {
	t.Parallel()
	pair := func(make func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		p, err := make()
		require.NoError(t, err)
		public, err := p.PublicKey()
		require.NoError(t, err)
		return p, public
	}
	encode := func(c jwt.Claims, signer nkeys.KeyPair) string {
		text, err := c.Encode(signer)
		require.NoError(t, err)
		return text
	}
	operator, operatorKey := pair(nkeys.CreateOperator)
	operatorClaims := jwt.NewOperatorClaims(operatorKey)
	encode(operatorClaims, operator)
	account, accountKey := pair(nkeys.CreateAccount)
	accountClaims := jwt.NewAccountClaims(accountKey)
	user := func() (creds []byte, public string) {
		p, public := pair(nkeys.CreateUser)
		seed, err := p.Seed()
		require.NoError(t, err)
		creds, err = jwt.FormatUserConfig(encode(jwt.NewUserClaims(public), account), seed)
		require.NoError(t, err)
		return creds, public
	}
	file := filepath.Join(t.TempDir(), "creds")
	creds, first := user()
	require.NoError(t, os.WriteFile(file, creds, 0o600))

	resolver := &server.MemAccResolver{}
	require.NoError(t, resolver.Store(accountKey, encode(accountClaims, operator)))
	s := natstest.Start(t, func(o *natsserver.Options) {
		o.Configure = func(o *server.Options) {
			o.JetStream = false // it would need a system account
			o.TrustedOperators, o.AccountResolver = []*jwt.OperatorClaims{operatorClaims}, resolver
		}
	})
	b := connect(t, publish.Config{URL: s.URL, CredsFile: file})
	waitConnected(t, b)

	accountClaims.Revoke(first)
	revoked := encode(accountClaims, operator)
	require.NoError(t, resolver.Store(accountKey, revoked))
	a, err := s.NATS().LookupAccount(accountKey)
	require.NoError(t, err)
	claims, err := jwt.DecodeAccountClaims(revoked)
	require.NoError(t, err)
	s.NATS().UpdateAccountClaims(a, claims)
	require.Eventually(t, func() bool { ok, reason := b.Connected(); return !ok && reason != "" }, ceiling, time.Millisecond)
	creds, _ = user()
	require.NoError(t, os.WriteFile(file, creds, 0o600))
	waitConnected(t, b)
}
