package measure

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
)

// failsInARow bounds the failures of an event, whose pauses grow with its age: without a bound the
// unluckiest of ten thousand would take a quarter of an hour.
const failsInARow = 3

// eventReceiver receives the events of runs, in this process. It fails half of the requests, and asks for a
// kill each time that it has received a further share of the events.
type eventReceiver struct {
	url  string
	hook *standardwebhooks.Webhook
	kill chan struct{} // asks for a kill; no request is answered until release

	mu       sync.Mutex
	want     int           // number of expected events
	every    int           // delivered events between kills
	kills    int           // number of remaining kills
	next     int           // the number of delivered events at which the next kill comes
	held     chan struct{} // nil, or closed when requests are answered again
	events   map[string]*received
	runs     map[string]*progress
	done     int // number of delivered events
	requests int
	failed   int
	wrong    []string
}

// received is the receiver's record of an event, by its webhook-id.
type received struct {
	body  string
	tries int
	at    []time.Time // of its deliveries
	sent  time.Time   // the time of the event
}

// progress is the receiver's record of a run.
type progress struct {
	delivered int      // number of delivered events, in order
	ids       []string // of the events, by sequence
	late      int      // repetitions after a later event
}

// receiveEvents starts a receiver that expects a number of events and asks for kills.
func receiveEvents(ctx context.Context, want, kills int) (*eventReceiver, error) {
	hook, err := standardwebhooks.NewWebhook(eventsKey)
	if err != nil {
		return nil, err
	}
	every := want * 4 / 5 / (kills + 1) // the last events have already waited for long, and would wait for half a minute more
	r := &eventReceiver{hook: hook, kill: make(chan struct{}, kills), want: want, every: every, kills: kills, next: every, events: map[string]*received{}, runs: map[string]*progress{}}
	r.url, err = serve(ctx, r)
	return r, err
}

// serve serves requests at an address of this process until ctx ends.
func serve(ctx context.Context, h http.Handler) (url string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(l) }() // ends with ctx
	return "http://" + l.Addr().String() + "/", nil
}

// ServeHTTP implements http.Handler.
func (r *eventReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the worker was killed
	}
	status, held := r.take(req.Header, body)
	if held != nil {
		<-held
	}
	w.WriteHeader(status)
}

// take records a request, and returns its status and the channel to wait for before the answer; nil for none.
func (r *eventReceiver) take(h http.Header, body []byte) (status int, held <-chan struct{}) {
	now, refused := time.Now(), r.hook.Verify(body, h)
	var b webhook.Body
	if err := json.Unmarshal(body, &b); err != nil {
		refused = err
	}
	id := h.Get(standardwebhooks.HeaderWebhookID)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	if refused != nil {
		r.wrong = append(r.wrong, fmt.Sprintf("event %q is refused: %v", id, refused))
		return http.StatusBadRequest, nil
	}
	e := r.events[id]
	if e == nil {
		e = &received{body: string(body), sent: b.Timestamp.Time}
		r.events[id] = e
	}
	if e.body != string(body) {
		r.wrong = append(r.wrong, fmt.Sprintf("event %s was sent as %s and as %s", id, e.body, body))
	}
	run := r.runs[string(b.Data.RunID)]
	if run == nil {
		run = &progress{}
		r.runs[string(b.Data.RunID)] = run
	}
	r.inOrder(run, id, b.Data)
	e.tries++
	if fails(id, e.tries) {
		r.failed++
		return http.StatusServiceUnavailable, r.held
	}
	e.at = append(e.at, now)
	switch {
	case len(e.at) == 1:
		run.delivered++
		r.done++
	case run.delivered > b.Data.Sequence:
		run.late++
	}
	if r.kills > 0 && r.done >= r.next && r.held == nil {
		r.kills--
		r.next += r.every
		r.held = make(chan struct{})
		r.kill <- struct{}{}
	}
	return http.StatusOK, r.held
}

// inOrder reports whether the earlier events of the run were delivered, so that this one may arrive. The caller
// has the lock.
func (r *eventReceiver) inOrder(run *progress, id string, d webhook.Data) {
	switch n := d.Sequence; {
	case n > run.delivered+1 || n < 1:
		r.wrong = append(r.wrong, fmt.Sprintf("event %d of run %s came after %d events", n, d.RunID, run.delivered))
	case n > len(run.ids):
		run.ids = append(run.ids, id)
	case run.ids[n-1] != id:
		r.wrong = append(r.wrong, fmt.Sprintf("event %d of run %s has the ids %s and %s", n, d.RunID, run.ids[n-1], id))
	}
}

// fails reports whether a receiver fails the n-th request of an event.
func fails(id string, n int) bool {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", id, n))
	return n <= failsInARow && sum[0]&1 == 0
}

// release answers the requests that wait for a kill.
func (r *eventReceiver) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.held)
	r.held = nil
}

// complete reports whether all events were delivered.
func (r *eventReceiver) complete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done >= r.want
}

// String returns the progress as text.
func (r *eventReceiver) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("%d of %d events were delivered in %d requests", r.done, r.want, r.requests)
}

// tally is the receiver's result.
type tally struct {
	requests, failed, repeated, late int

	delays  []time.Duration // from an event to its first delivery
	repeats []time.Duration // from a delivery to the next one of the same event
}

// tally returns the receiver's result, and reports broken guarantees.
func (r *eventReceiver) tally(fail func(format string, args ...any)) tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range r.wrong {
		fail("%s", text)
	}
	if len(r.events) != r.want || len(r.runs) != r.want/eventsPerRun {
		fail("the receiver of webhooks got %d events of %d runs, want %d of %d: find the failed deliveries in the logs of the workers", len(r.events), len(r.runs), r.want, r.want/eventsPerRun)
	}
	got := tally{requests: r.requests, failed: r.failed}
	for _, e := range r.events {
		if len(e.at) == 0 {
			continue // reported above: another event has its place
		}
		got.delays = append(got.delays, e.at[0].Sub(e.sent))
		for i, at := range e.at[1:] {
			got.repeats = append(got.repeats, at.Sub(e.at[i]))
		}
	}
	got.repeated = len(got.repeats)
	for _, run := range r.runs {
		got.late += run.late
	}
	return got
}

// liveReceiver receives events, in this process, and accepts each.
type liveReceiver struct {
	url string

	mu   sync.Mutex
	took map[string]time.Duration // from an event to its delivery, by webhook-id
}

func startLive(ctx context.Context) (r *liveReceiver, err error) {
	r = &liveReceiver{took: map[string]time.Duration{}}
	r.url, err = serve(ctx, r)
	return r, err
}

// ServeHTTP implements http.Handler.
func (r *liveReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	now := time.Now()
	var b webhook.Body
	if err := json.NewDecoder(req.Body).Decode(&b); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if id := req.Header.Get(standardwebhooks.HeaderWebhookID); r.took[id] == 0 {
		r.took[id] = now.Sub(b.Timestamp.Time)
	}
}

// delays returns the time from each event that was delivered to its first delivery.
func (r *liveReceiver) delays() []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.took))
}
