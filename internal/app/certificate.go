package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// TLSConfig is the TLS settings of a process that serves TLS.
type TLSConfig struct {
	TLSCertFile string `name:"tls-cert-file" env:"TURNPIKE_TLS_CERT_FILE" type:"path" help:"PEM file with the certificate and its intermediate certificates: all listeners then serve TLS. The process reloads it and its key when they change."`
	TLSKeyFile  string `name:"tls-key-file" env:"TURNPIKE_TLS_KEY_FILE" type:"path" help:"PEM file with the private key of the certificate."`
}

// certificateEvery is the interval between checks of a certificate's files.
const certificateEvery = time.Second

// Certificate is the certificate that a process presents to clients. Without one (nil) it
// serves plain TCP.
type Certificate struct {
	cert, key string
	log       *slog.Logger
	now       atomic.Pointer[tls.Certificate]

	loaded  []byte // the contents of the files in use
	refused []byte // contents that are not a valid pair
	told    bool   // the log has the reason
}

// Certificate loads the certificate from the two files. It returns nil and no error if neither is set, and an error if
// only one is set or the files are not a valid pair. Until ctx ends, a goroutine reads the files every second, and at
// SIGHUP. New handshakes use a new pair that is valid, even if it has expired. If two reads in a row fail in the same
// way, the goroutine logs that once, and the previous pair stays in use.
func (c TLSConfig) Certificate(ctx context.Context, log *slog.Logger) (*Certificate, error) {
	switch {
	case c.TLSCertFile == "" && c.TLSKeyFile == "":
		return nil, nil //nolint:nilnil // that is what plain TCP is
	case c.TLSCertFile == "":
		return nil, errors.New("TURNPIKE_TLS_KEY_FILE is set without a certificate: set TURNPIKE_TLS_CERT_FILE to its file")
	case c.TLSKeyFile == "":
		return nil, errors.New("TURNPIKE_TLS_CERT_FILE is set without a private key: set TURNPIKE_TLS_KEY_FILE to its file")
	}
	p := &Certificate{cert: c.TLSCertFile, key: c.TLSKeyFile, log: log}
	text, pair, err := p.read()
	if err != nil {
		return nil, fmt.Errorf("the TLS certificate %s and its private key %s cannot be used: %w: set TURNPIKE_TLS_CERT_FILE and TURNPIKE_TLS_KEY_FILE to the PEM files of a certificate and its private key", c.TLSCertFile, c.TLSKeyFile, err)
	}
	p.take(text, pair)
	go p.follow(ctx)
	return p, nil
}

// read returns the contents of the files, also if they are not a certificate.
func (p *Certificate) read() ([]byte, *tls.Certificate, error) {
	cert, err := os.ReadFile(p.cert)
	if err != nil {
		return []byte(err.Error()), nil, err
	}
	key, err := os.ReadFile(p.key)
	if err != nil {
		return []byte(err.Error()), nil, err
	}
	text := bytes.Join([][]byte{cert, key}, []byte("\n"))
	pair, err := tls.X509KeyPair(cert, key)
	return text, &pair, err
}

func (p *Certificate) take(text []byte, pair *tls.Certificate) {
	p.loaded = text
	p.now.Store(pair)
	if ends := pair.Leaf.NotAfter; time.Now().After(ends) {
		p.log.Warn("TLS certificate has expired", "file", p.cert, "not_after", ends, "hint", "replace the files; no restart is needed. Until then clients refuse the connection")
	}
}

func (p *Certificate) follow(ctx context.Context) {
	tick := time.NewTicker(certificateEvery)
	defer tick.Stop()
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-reload:
		}
		p.look()
	}
}

// look loads a new pair. The two files are replaced one after the other, so it reports a
// broken pair only if the next look still finds it.
func (p *Certificate) look() {
	text, pair, err := p.read()
	switch {
	case err == nil && bytes.Equal(text, p.loaded):
		p.refused = nil
	case err == nil:
		p.refused = nil
		p.take(text, pair)
		p.log.Info("TLS certificate loaded", "file", p.cert, "not_after", pair.Leaf.NotAfter)
	case !bytes.Equal(text, p.refused):
		p.refused, p.told = text, false
	case !p.told:
		p.told = true
		p.log.Error("new TLS certificate not loaded, the previous one stays in use", "error", err, "file", p.cert, "hint", "fix the files; no restart is needed")
	}
}

// Wrap has a listener serve TLS, if there is a certificate.
func (p *Certificate) Wrap(l net.Listener) net.Listener {
	if p == nil {
		return l
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		// A resumed session would not see a new certificate.
		SessionTicketsDisabled: true,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.now.Load(), nil },
	})
}

// Scheme is what URLs of a listener begin with.
func (p *Certificate) Scheme() string {
	if p == nil {
		return "http"
	}
	return "https"
}
