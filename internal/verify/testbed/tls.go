package testbed

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
	"testing"
	"time"
)

// Authority signs certificates, as a company's own CA does.
type Authority struct {
	tb   testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	File string // with its certificate
}

// NewAuthority creates a certificate authority that no client trusts yet.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{tb: tb, dir: tb.TempDir()}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "testbed"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.key = a.newKey()
	a.File = a.write("ca.pem", "CERTIFICATE", a.sign(a.cert, &a.key.PublicKey))
	return a
}

// Issue returns the files of a certificate for a server on loopback, or a client, and of its
// key.
func (a *Authority) Issue(name string) (cert, key string) {
	a.tb.Helper()
	k := a.newKey()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: a.cert.NotBefore, NotAfter: a.cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		a.tb.Fatal(err)
	}
	return a.write(name+".pem", "CERTIFICATE", a.sign(template, &k.PublicKey)), a.write(name+".key", "EC PRIVATE KEY", der)
}

// ServerConfig returns the settings of a server on loopback that requires client certificates of this
// authority.
func (a *Authority) ServerConfig() *tls.Config {
	a.tb.Helper()
	pair, err := tls.LoadX509KeyPair(a.Issue("server"))
	if err != nil {
		a.tb.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
}

func (a *Authority) newKey() *ecdsa.PrivateKey {
	a.tb.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.tb.Fatal(err)
	}
	return k
}

func (a *Authority) sign(template *x509.Certificate, key *ecdsa.PublicKey) []byte {
	a.tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key, a.key)
	if err != nil {
		a.tb.Fatal(err)
	}
	if template == a.cert {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			a.tb.Fatal(err)
		}
	}
	return der
}

func (a *Authority) write(name, kind string, der []byte) (path string) {
	a.tb.Helper()
	path = filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.tb.Fatal(err)
	}
	return path
}
