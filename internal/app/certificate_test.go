package app_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/gateway/server"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

type log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// place is a TLS listener whose certificate files a test changes.
type place struct {
	t    *testing.T
	ca   *testbed.Authority
	cfg  app.TLSConfig
	log  *log
	addr string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	dir := t.TempDir()
	p := &place{t: t, ca: testbed.NewAuthority(t), cfg: app.TLSConfig{TLSCertFile: filepath.Join(dir, "tls.crt"), TLSKeyFile: filepath.Join(dir, "tls.key")}, log: &log{}}
	p.install("first")
	certificate, err := p.cfg.Certificate(t.Context(), slog.New(slog.NewJSONHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ErrorLog: server.ConnectionLog(slog.New(slog.DiscardHandler)), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) })}
	go srv.Serve(certificate.Wrap(l))
	t.Cleanup(func() { _ = srv.Close() })
	p.addr = l.Addr().String()
	return p
}

// install writes a certificate with this name to the files.
func (p *place) install(name string) {
	p.t.Helper()
	cert, key := p.ca.Issue(name)
	for from, to := range map[string]string{cert: p.cfg.TLSCertFile, key: p.cfg.TLSKeyFile} {
		text, err := os.ReadFile(from)
		if err != nil {
			p.t.Fatal(err)
		}
		p.write(to, string(text))
	}
}

func (p *place) write(file, text string) {
	p.t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) client() *http.Client {
	p.t.Helper()
	text, err := os.ReadFile(p.ca.File)
	if err != nil {
		p.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	c := &http.Client{Transport: &http.Transport{
		ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool, ClientSessionCache: tls.NewLRUClientSessionCache(8)},
	}}
	p.t.Cleanup(c.CloseIdleConnections)
	return c
}

// shown sends a request, and returns the name in the certificate of the connection.
func (p *place) shown(c *http.Client) string {
	p.t.Helper()
	resp, err := c.Get("https://" + p.addr)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "HTTP/2.0" {
		p.t.Fatalf("the answer is %q, %v", text, err)
	}
	return resp.TLS.PeerCertificates[0].Subject.CommonName
}

func (p *place) eventually(what string, ok func() bool) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); !ok(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			p.t.Fatalf("%s: never; the log says %s", what, p.log)
		}
	}
}

// A certificate is replaced while connections are open, and an invalid one is not used.
func TestCertificateIsReplaced(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	open := p.client()
	if name := p.shown(open); name != "first" {
		t.Fatalf("the certificate has the name %q", name)
	}
	fresh := func() string {
		c := p.client()
		c.Transport.(*http.Transport).TLSClientConfig.ClientSessionCache = open.Transport.(*http.Transport).TLSClientConfig.ClientSessionCache
		defer c.CloseIdleConnections()
		return p.shown(c)
	}
	p.install("second")
	p.eventually("a handshake sees the new certificate", func() bool { return fresh() == "second" })
	if name := p.shown(open); name != "first" {
		t.Errorf("the open connection was replaced: its certificate has the name %q", name)
	}

	p.write(p.cfg.TLSCertFile, "no certificate\n")
	p.eventually("the log says why", func() bool {
		return strings.Contains(p.log.String(), "new TLS certificate not loaded") && strings.Contains(p.log.String(), p.cfg.TLSCertFile)
	})
	if err := os.Remove(p.cfg.TLSKeyFile); err != nil {
		t.Fatal(err)
	}
	p.eventually("the log says that the key is gone", func() bool { return strings.Contains(p.log.String(), "no such file") })
	if name := fresh(); name != "second" {
		t.Errorf("with invalid files the certificate has the name %q", name)
	}
	if n := strings.Count(p.log.String(), "not loaded"); n != 2 {
		t.Errorf("the log reports %d refused certificates, want one for each:\n%s", n, p.log)
	}

	p.install("third")
	p.eventually("a certificate after a broken one", func() bool { return fresh() == "third" })
}

func TestTLSIsOfTheirTime(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	old := p.client()
	old.Transport.(*http.Transport).TLSClientConfig.MaxVersion = tls.VersionTLS11
	old.Transport.(*http.Transport).TLSClientConfig.MinVersion = tls.VersionTLS10
	if resp, err := old.Get("https://" + p.addr); err == nil {
		_ = resp.Body.Close()
		t.Error("TLS 1.1 is spoken")
	}
	var unknown x509.UnknownAuthorityError
	if resp, err := http.Get("https://" + p.addr); !errors.As(err, &unknown) {
		if err == nil {
			_ = resp.Body.Close()
		}
		t.Errorf("a client that trusts no authority: %v", err)
	}
}

func TestCertificateRefused(t *testing.T) {
	t.Parallel()
	ca := testbed.NewAuthority(t)
	cert, key := ca.Issue("one")
	_, other := ca.Issue("two")
	missing := filepath.Join(t.TempDir(), "none.pem")
	for name, c := range map[string]struct {
		cfg  app.TLSConfig
		want string
	}{
		"no key":          {app.TLSConfig{TLSCertFile: cert}, "set TURNPIKE_TLS_KEY_FILE to its file"},
		"no certificate":  {app.TLSConfig{TLSKeyFile: key}, "set TURNPIKE_TLS_CERT_FILE to its file"},
		"no file":         {app.TLSConfig{TLSCertFile: missing, TLSKeyFile: key}, missing},
		"another's key":   {app.TLSConfig{TLSCertFile: cert, TLSKeyFile: other}, "does not match"},
		"not what it is":  {app.TLSConfig{TLSCertFile: key, TLSKeyFile: cert}, "PEM"},
		"nothing is said": {app.TLSConfig{}, ""},
	} {
		certificate, err := c.cfg.Certificate(t.Context(), slog.New(slog.DiscardHandler))
		if certificate != nil || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
