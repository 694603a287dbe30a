package webhook

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxDescription bounds the text of a failure, in bytes.
const maxDescription = 256

// requestError is the error of a request. Its text is for the log of the worker: it may have addresses, or
// what the receiver has sent.
type requestError struct {
	error

	within time.Duration // the time limit of the request; 0 if it has none
}

func (e requestError) Unwrap() error { return e.error }

// describe returns a failure, in one line, for callers who may read the tenant. The text has no addresses, which
// would reveal the worker's network, and nothing that the receiver has sent, which could be any text.
func describe(err error) string {
	if request, ok := errors.AsType[requestError](err); ok {
		return line(requestText(request.error, request.within))
	}
	return line(err.Error())
}

func requestText(err error, within time.Duration) string {
	if parsed, ok := errors.AsType[*url.Error](err); ok {
		err = parsed.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		if within <= 0 {
			return "the receiver did not answer in time"
		}
		return fmt.Sprintf("the receiver did not answer within %s", within)
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "the receiver's TLS certificate is for another host"
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "the receiver's TLS certificate is signed by an unknown authority"
	}
	if lookup, ok := errors.AsType[*net.DNSError](err); ok {
		return "the DNS lookup of the host failed: " + lookup.Err
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		for inner, ok := errors.AsType[*net.OpError](op.Err); ok; inner, ok = errors.AsType[*net.OpError](op.Err) {
			op = inner // of a proxy
		}
		return op.Op + ": " + op.Err.Error()
	}
	text, _, quotes := strings.Cut(err.Error(), `"`) // net/http quotes what the receiver has sent
	if quotes {
		text += "…"
	}
	return text
}

// line returns the start of a text as one line that a terminal can show.
func line(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			r = ' '
		}
		if b.Len()+utf8.RuneLen(r) > maxDescription {
			break
		}
		b.WriteRune(r)
	}
	return strings.TrimSpace(b.String())
}
