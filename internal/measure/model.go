package measure

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// modelKey names the secret with the key of the model server, which accepts any.
const modelKey = "BENCH_MODEL_KEY"

// pageSize is the size of the answer of the tool page, in bytes.
const pageSize = 100_000

// modelServer is a model and tools over HTTP, in this process. It records the time of each call of the model, by its
// run, and of the tool pay, by its idempotency key, and can hold back the answers to these calls.
type modelServer struct {
	url  string // of the tools pay, page and large, and of the model below v1
	mock http.Handler

	mu       sync.Mutex
	asked    map[string][]time.Time
	often    map[int]int          // number of calls, by their number of attempts
	left     map[string]time.Time // calls that the caller cancelled
	holds    bool
	released map[string]bool // calls that are answered during a hold
	opened   chan struct{}   // closed and replaced when calls are released
	largest  int             // size of the largest request in bytes
}

// startModel starts a server of two models: once answers at once, pages first calls the tool page in that
// many turns.
func startModel(ctx context.Context, pages int) (*modelServer, error) {
	answer := mockmodel.Response{Scripted: model.Scripted{Text: "done"}}
	call := mockmodel.Response{Scripted: model.Scripted{ToolCalls: []model.ScriptedCall{{Name: "page"}}}}
	mock, err := mockmodel.New(mockmodel.Config{Scripts: []mockmodel.Script{
		{Model: "^once$", Responses: []mockmodel.Response{answer}},
		{Model: "^pages$", Responses: append(slices.Repeat([]mockmodel.Response{call}, pages), answer)},
	}})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &modelServer{
		url: "http://" + l.Addr().String() + "/", mock: mock, asked: map[string][]time.Time{}, often: map[int]int{},
		left: map[string]time.Time{}, released: map[string]bool{}, opened: make(chan struct{}),
	}
	server := &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(l) }() // ends with ctx
	return m, nil
}

// agent returns the definition of an agent that uses one of the models.
func (m *modelServer) agent(name string) string {
	return fmt.Sprintf("model: {provider: openai, name: %s, base_url: %q, api_key: \"secret://%s\", timeout: 1h}\n", name, m.url+"v1", modelKey)
}

// await returns when n calls were made at least that many times each.
func (m *modelServer) await(ctx context.Context, n, times int) error {
	made := 0
	err := soon(ctx, fmt.Sprintf("%d calls were made %d times", n, times), func() (bool, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		made = m.often[times]
		return made >= n, nil
	})
	if err != nil {
		err = fmt.Errorf("%w: only %d were made until then", err, made)
	}
	return err
}

// awaitLeft returns the time at which the caller cancelled a call.
func (m *modelServer) awaitLeft(ctx context.Context, key string) (at time.Time, err error) {
	err = soon(ctx, "the call of "+key+" is cancelled", func() (bool, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		at = m.left[key]
		return !at.IsZero(), nil
	})
	return at, err
}

// times returns the times at which each call was made.
func (m *modelServer) times() map[string][]time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.asked)
}

// hold makes answers wait until they are released.
func (m *modelServer) hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds = true
}

// release answers some calls, or all from now on if none are named.
func (m *modelServer) release(keys ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holds = m.holds && len(keys) > 0
	for _, key := range keys {
		m.released[key] = true
	}
	close(m.opened)
	m.opened = make(chan struct{})
}

// note records a call, and returns the channel to wait for before the answer; nil for none.
func (m *modelServer) note(key string, size int) <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked[key] = append(m.asked[key], time.Now())
	m.often[len(m.asked[key])]++
	m.largest = max(m.largest, size)
	return m.heldBy(key)
}

// heldBy returns the channel to wait for before a call is answered; the caller has the lock.
func (m *modelServer) heldBy(key string) <-chan struct{} {
	if !m.holds || m.released[key] {
		return nil
	}
	return m.opened
}

// toolSaid is the answer of the tool pay.
const toolSaid = "paid, once"

// ServeHTTP implements http.Handler.
func (m *modelServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The server notices that a worker has disconnected only once it has read the body.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if size := map[string]int{"/page": pageSize, "/large": 5 << 20}[r.URL.Path]; size > 0 {
		_, _ = io.WriteString(w, strings.Repeat("x", size)) // as below
		return
	}
	key := r.Header.Get("Idempotency-Key")
	if r.URL.Path != "/pay" {
		key, _, _ = strings.Cut(r.Header.Get("X-Client-Request-Id"), "/")
	}
	for held := m.note(key, len(body)); held != nil; {
		select {
		case <-held:
		case <-r.Context().Done():
			m.mu.Lock()
			m.left[key] = time.Now()
			m.mu.Unlock()
			return
		}
		m.mu.Lock()
		held = m.heldBy(key)
		m.mu.Unlock()
	}
	if r.URL.Path == "/pay" {
		_, _ = io.WriteString(w, toolSaid) // a caller that has left does not read it
		return
	}
	m.mock.ServeHTTP(w, r)
}
