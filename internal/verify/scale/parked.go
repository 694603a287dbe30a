package scale

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// modelKey names the secret with the key for the model server, which takes any.
const modelKey = "SCALE_MODEL_KEY"

// parked is a server of a model and of a tool. It holds its answers until released. It identifies a
// call of the model by its run, and one of the tool by its idempotency key.
type parked struct {
	host string
	mock http.Handler

	mu      sync.Mutex
	asked   map[string][]time.Time // when, by call
	often   map[int]int            // how many calls were asked so often
	waits   map[string]chan struct{}
	goes    map[string]bool // calls that are answered
	all     bool            // are
	changed chan struct{}   // closed and made anew with each call
}

func park(ctx context.Context) (*parked, error) {
	mock, err := mockmodel.New(mockmodel.Config{Scripts: []mockmodel.Script{{
		Model: "^parked$", Responses: []mockmodel.Response{{Scripted: model.Scripted{Text: "done"}}},
	}}})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &parked{host: l.Addr().String(), mock: mock, asked: map[string][]time.Time{}, often: map[int]int{}, waits: map[string]chan struct{}{}, goes: map[string]bool{}, changed: make(chan struct{})}
	server := &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(l) }() // ends with ctx
	return p, nil
}

// calls returns the number of calls that were made that many times.
func (p *parked) calls(times int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.often[times]
}

// await returns when n calls were made that many times.
func (p *parked) await(ctx context.Context, n, times int) error {
	for {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		if p.calls(times) >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// times returns the times at which each call was made.
func (p *parked) times() map[string][]time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[string][]time.Time, len(p.asked))
	for key, at := range p.asked {
		all[key] = append([]time.Time(nil), at...)
	}
	return all
}

// release answers some calls, or all from now on if none are named.
func (p *parked) release(keys ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(keys) == 0 {
		p.all = true
		for _, wait := range p.waits {
			close(wait)
		}
		p.waits = map[string]chan struct{}{}
	}
	for _, key := range keys {
		p.goes[key] = true
		if wait, ok := p.waits[key]; ok {
			close(wait)
			delete(p.waits, key)
		}
	}
}

// ServeHTTP implements http.Handler.
func (p *parked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Only once the body is read does the server notice that a worker has gone.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	key := r.Header.Get("Idempotency-Key")
	isTool := r.URL.Path == "/tool"
	if !isTool {
		key, _, _ = strings.Cut(r.Header.Get("X-Client-Request-Id"), "/")
	}
	wait := p.note(key)
	if wait != nil {
		select {
		case <-wait:
		case <-r.Context().Done():
			return
		}
	}
	if !isTool {
		p.mock.ServeHTTP(w, r)
		return
	}
	_, _ = w.Write([]byte(toolSaid)) // who has gone does not read it
}

// toolSaid is the tool's answer.
const toolSaid = "paid, once"

// note returns what to wait for, or nil.
func (p *parked) note(key string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[key] = append(p.asked[key], time.Now())
	p.often[len(p.asked[key])]++
	close(p.changed)
	p.changed = make(chan struct{})
	if p.all || p.goes[key] {
		return nil
	}
	if p.waits[key] == nil {
		p.waits[key] = make(chan struct{})
	}
	return p.waits[key]
}
