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
	caFile          = "ca.crt"
	serverCertFile  = "apiserver.crt"
	serverKeyFile   = "apiserver.key"
	proxyCertFile   = "front-proxy.crt"
	proxyKeyFile    = "front-proxy.key"
	kubeletCertFile = "kubelet-client.crt"
	kubeletKeyFile  = "kubelet-client.key"
	accountKeyFile  = "accounts.key"
	tokenFile       = "tokens.csv"
)

// frontProxy is who the API server is towards API servers behind it.
const frontProxy = "front-proxy-client"

// ServiceAddress is the API server's for pods: the first of the range of Services.
const ServiceAddress = "10.96.0.1"

const validity = 30 * 24 * time.Hour

// authority signs the certificates of one cluster.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	text []byte
}

func newAuthority() (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "outlane-test-ca"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	text, err := x509.CreateCertificate(rand.Reader, root, root, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make the authority's certificate: %w", err)
	}
	return &authority{cert: root, key: key, text: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: text})}, nil
}

// sign makes a certificate for servers and clients, and its key. Hosts are names or addresses.
func (a *authority) sign(commonName, organization string, hosts ...string) (cert, key []byte, err error) {
	private, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 64))
	if err != nil {
		return nil, nil, fmt.Errorf("make a serial number: %w", err)
	}
	leaf := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: commonName}, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if organization != "" {
		leaf.Subject.Organization = []string{organization}
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			leaf.IPAddresses = append(leaf.IPAddresses, ip)
		} else {
			leaf.DNSNames = append(leaf.DNSNames, host)
		}
	}
	text, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, private.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("make the certificate of %s: %w", commonName, err)
	}
	if key, err = keyText(private); err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: text}), key, nil
}

// Authority is the certificate, in PEM, by which all of the cluster's certificates are signed.
func (c *Cluster) Authority() []byte { return c.keys.text }

// AuthorityFile is the path of the same.
func (c *Cluster) AuthorityFile() string { return filepath.Join(c.dir, caFile) }

// Certificate makes a certificate signed by the cluster's authority, and its key, both in PEM, for a server or a client of the cluster. Hosts are
// names or addresses. To the API server a client with it is the user commonName, of the group organization unless that is empty.
func (c *Cluster) Certificate(commonName, organization string, hosts ...string) (cert, key []byte, err error) {
	return c.keys.sign(commonName, organization, hosts...)
}

// writeKeys writes the authority's certificate, those of the API server in its three roles, and the key of service accounts.
func (c *Cluster) writeKeys() error {
	accounts, err := newKey()
	if err != nil {
		return err
	}
	text, err := keyText(accounts)
	if err != nil {
		return err
	}
	hosts := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "127.0.0.1", ServiceAddress}
	if c.node != nil {
		hosts = append(hosts, c.node.Address)
	}
	return errors.Join(
		c.write(caFile, c.Authority()), c.write(accountKeyFile, text),
		c.writeCertificate(serverCertFile, serverKeyFile, "kube-apiserver", "", hosts...),
		c.writeCertificate(proxyCertFile, proxyKeyFile, frontProxy, ""),
		c.writeCertificate(kubeletCertFile, kubeletKeyFile, "kube-apiserver-kubelet-client", "system:masters"),
	)
}

func (c *Cluster) writeCertificate(certFile, keyFile, commonName, organization string, hosts ...string) error {
	cert, key, err := c.keys.sign(commonName, organization, hosts...)
	if err != nil {
		return err
	}
	return errors.Join(c.write(certFile, cert), c.write(keyFile, key))
}

func (c *Cluster) write(name string, text []byte) error {
	if err := os.WriteFile(filepath.Join(c.dir, name), text, 0o600); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	return key, nil
}

func keyText(key *ecdsa.PrivateKey) ([]byte, error) {
	text, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("write a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: text}), nil
}
