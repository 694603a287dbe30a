package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// readLimit is the time within which a gateway must begin its response to a request that only reads. It begins a
// stream at once, or with the first sign of life after 15 s.
const readLimit = time.Minute

// errSilent is the error of a request that the gateway has not answered within the limit.
var errSilent = errors.New("no response")

// patientTransport limits the time that requests which only read wait for their response. Others have no limit: they
// may do much, such as delete many runs, and the end of the connection would interrupt them.
type patientTransport struct {
	reads, others http.RoundTripper
	limit         time.Duration
}

// newTransport returns a transport that trusts only these authorities, nil for those of the system. The default of
// limit 0 is readLimit.
func newTransport(trusted *x509.CertPool, limit time.Duration) *patientTransport {
	limit = cmp.Or(limit, readLimit)
	of := func(limit time.Duration) http.RoundTripper {
		t := &http.Transport{}
		if standard, ok := http.DefaultTransport.(*http.Transport); ok {
			t = standard.Clone()
		}
		if trusted != nil {
			t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: trusted}
		}
		t.ResponseHeaderTimeout = limit
		return t
	}
	return &patientTransport{reads: of(limit), others: of(0), limit: limit}
}

// RoundTrip implements http.RoundTripper.
func (t *patientTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		return t.others.RoundTrip(r)
	}
	resp, err := t.reads.RoundTrip(r)
	_, connecting := errors.AsType[*net.OpError](err)
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() && !connecting && r.Context().Err() == nil {
		return nil, fmt.Errorf("%w within %s: %w", errSilent, t.limit, err)
	}
	return resp, err
}
