package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Files of the folder.
const (
	caFile         = "ca.crt"
	serverCertFile = "apiserver.crt"
	serverKeyFile  = "apiserver.key"
	accountKeyFile = "accounts.key"
	tokenFile      = "tokens.csv"
)

const validity = 30 * 24 * time.Hour

// writeKeys makes an authority, the API server's certificate by it, and the key of service accounts. Clients have tokens.
func writeKeys(dir string) error {
	authority, err := newKey()
	if err != nil {
		return err
	}
	server, err := newKey()
	if err != nil {
		return err
	}
	accounts, err := newKey()
	if err != nil {
		return err
	}
	now := time.Now()
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "outlane-test-ca"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"}, NotBefore: root.NotBefore, NotAfter: root.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, KeyUsage: x509.KeyUsageDigitalSignature,
		DNSNames: []string{"localhost", "kubernetes.default.svc"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	rootText, err := x509.CreateCertificate(rand.Reader, root, root, authority.Public(), authority)
	if err != nil {
		return fmt.Errorf("make the authority's certificate: %w", err)
	}
	leafText, err := x509.CreateCertificate(rand.Reader, leaf, root, server.Public(), authority)
	if err != nil {
		return fmt.Errorf("make the API server's certificate: %w", err)
	}
	return errors.Join(
		writePEM(dir, caFile, "CERTIFICATE", rootText), writePEM(dir, serverCertFile, "CERTIFICATE", leafText),
		writeKey(dir, serverKeyFile, server), writeKey(dir, accountKeyFile, accounts),
	)
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

func writeKey(dir, name string, key *ecdsa.PrivateKey) error {
	text, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return writePEM(dir, name, "EC PRIVATE KEY", text)
}

func writePEM(dir, name, kind string, text []byte) error {
	if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: text}), 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
