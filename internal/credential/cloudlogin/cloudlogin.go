// Package cloudlogin turns the value of a secret into credentials for the models of a cloud.
//
// A value is what the cloud's own tools print: a key of the API, or the JSON of an identity. WorkerIdentity
// stands for the identity that the process has in the cloud. Nothing else is read from the environment, so
// an agent never uses credentials that its secret does not name.
package cloudlogin

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// WorkerIdentity is the value of a secret that stands for the identity of the process: a role of AWS, a
// service account of Google, a managed identity of Azure. The operator who declares the secret decides which
// tenants and hosts may use it.
const WorkerIdentity = "worker-identity"

const (
	// patience bounds a request for a token, whatever call waits for it.
	patience = 30 * time.Second

	// most bounds the identities whose tokens are kept.
	most = 256
)

// Error says why there are no credentials. Its text has no part of the secret.
type Error struct {
	Text string

	// Refused reports that the value of the secret is wrong, or that the cloud refused it. Otherwise the
	// cloud did not answer.
	Refused bool
}

func (e *Error) Error() string { return e.Text }

// IsRefused reports whether err says that the value of a secret is wrong.
func IsRefused(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Refused
}

func refused(format string, args ...any) *Error {
	return &Error{Text: fmt.Sprintf(format, args...), Refused: true}
}

// refuses reports whether the HTTP status of a response means that the cloud refused the identity. After any other
// status a retry may succeed.
func refuses(status int) bool {
	return status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
}

// Logins keeps identities, and with them their tokens, from call to call. Its methods may be called from any
// goroutine.
type Logins struct {
	client *http.Client

	mu    sync.Mutex
	known map[[sha256.Size]byte]any
}

// New returns Logins that request tokens with the transport of client. They do not use it for tokens of the process's
// own identity: these may come from the cloud's metadata service, which no client of models may reach.
func New(client *http.Client) *Logins {
	return &Logins{client: &http.Client{Transport: client.Transport, CheckRedirect: client.CheckRedirect, Timeout: patience}, known: map[[sha256.Size]byte]any{}}
}

// identity returns what create made of a value of a secret in a cloud. Calls at the same time may each make
// one: none waits for another's.
func identity[T any](l *Logins, cloud, value string, create func() (T, error)) (T, error) {
	key := sha256.Sum256([]byte(cloud + "\x00" + value))
	l.mu.Lock()
	known, ok := l.known[key].(T)
	l.mu.Unlock()
	if ok {
		return known, nil
	}
	made, err := create()
	if err != nil {
		return made, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.known[key].(T); ok {
		return known, nil
	}
	if len(l.known) >= most {
		clear(l.known) // of secrets that were replaced
	}
	l.known[key] = made
	return made, nil
}

// within returns what get returns, or the error of ctx once it ends: some libraries of the clouds do not
// observe a context.
func within[T any](ctx context.Context, get func() (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := get()
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// object decodes a value that is a JSON object into v. It reports whether the value is one.
func object(value string, v any) (bool, error) {
	if !strings.HasPrefix(value, "{") {
		return false, nil
	}
	return true, json.Unmarshal([]byte(value), v)
}
