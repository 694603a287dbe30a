// Package inprocess calls package service for clients of the same process, without HTTP.
package inprocess

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/gateway/stream"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// ErrClosed reports a call of a closed Process.
var ErrClosed = errors.New("closed")

// Config of a Process. Every field is required.
type Config struct {
	Service *service.Service
	Events  *stream.Events
	Tenant  string        // of principals that name none
	MaxBody int64         // bytes of an encoded request, as over HTTP
	Budget  time.Duration // for which one call waits for the store
	Log     *slog.Logger
}

// Process has the clients of a process. It is safe for concurrent use.
type Process struct {
	cfg     Config
	closing context.Context //nolint:containedctx // ended by Close
	end     context.CancelCauseFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// New returns a process without calls.
func New(cfg Config) *Process {
	p := &Process{cfg: cfg}
	p.closing, p.end = context.WithCancelCause(context.Background())
	return p
}

// Close ends all calls, waits until they have returned, and makes later ones return ErrClosed.
func (p *Process) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end(ErrClosed)
	p.running.Wait()
}

// Closing returns a context that ends when Close is called.
func (p *Process) Closing() context.Context { return p.closing }

// As returns a client that acts for a principal. Its methods have the results and errors of those of
// api.Client.
func (p *Process) As(who api.Principal) *Client { return &Client{p: p, who: who} }

// begin registers a call. It returns the context of the call, which ends with Close, and the function
// that ends the call.
func (p *Process) begin(ctx context.Context) (context.Context, func(), error) {
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, ErrClosed
	}
	p.running.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(p.closing, func() { cancel(ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		p.running.Done()
	}, nil
}

// Client makes calls for one principal. It is safe for concurrent use.
type Client struct {
	p   *Process
	who api.Principal
}

func (c *Client) caller() (access.Caller, error) {
	who, err := access.Trusted(c.who, c.p.cfg.Tenant)
	if errors.Is(err, access.ErrUnauthenticated) {
		return access.Caller{}, exchange.Unauthenticated(strings.TrimPrefix(err.Error(), access.ErrUnauthenticated.Error()+": "))
	}
	if err != nil {
		return access.Caller{}, err
	}
	caller, err := who.In("", c.p.cfg.Tenant)
	if err != nil {
		return access.Caller{}, exchange.Problem(http.StatusForbidden, api.CodeForbidden, "%v", err)
	}
	return caller, nil
}

// call is a request for an operation of the service.
type call struct {
	operation service.Operation
	body      []byte // encoded; nil: none
	bodies    int64  // Config.MaxBody that the body may have; 0 is one
}

// do makes a call. Its result is a copy, because a store in memory shares its values.
func do[T any](ctx context.Context, c *Client, what call, fn func(ctx context.Context, caller access.Caller) (any, error)) (out T, err error) {
	ctx, end, err := c.p.begin(ctx)
	if err != nil {
		return out, err
	}
	defer end()
	var v any
	err = service.Guarded(c.p.cfg.Log, func() (err error) {
		caller, err := c.caller()
		if err != nil {
			return err
		}
		within := service.WithBudget(ctx, c.p.cfg.Budget, what.operation.Lasts())
		if limit := c.p.cfg.MaxBody * max(what.bodies, 1); int64(len(what.body)) > limit {
			if err := c.p.cfg.Service.Permit(within, caller, what.operation); err != nil {
				return err
			}
			return exchange.TooLarge(limit)
		}
		v, err = fn(within, caller)
		return err
	})()
	if err != nil {
		return out, c.problem(ctx, err)
	}
	b, err := exchange.Encode(v)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	return out, err
}

// problem returns an error as a client sees it.
func (c *Client) problem(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	p := *service.ProblemOf(err)
	p.RequestID = rand.Text()
	if p.Status >= http.StatusInternalServerError {
		c.p.cfg.Log.Warn("request failed", "error", err, "hint", "find the code in docs/reference/errors.md", "code", p.Code, "request_id", p.RequestID)
	}
	var seen api.Problem
	if json.Unmarshal(exchange.EncodeProblem(p), &seen) != nil {
		return &p
	}
	seen.RetryAfter = p.RetryAfter // HTTP has it in a header
	return &seen
}
