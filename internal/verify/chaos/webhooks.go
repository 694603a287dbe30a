package chaos

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// calledShare is the share of HTTP submissions with a webhook, in percent.
const calledShare = 12

// The secret of the webhooks, and its value.
const (
	eventsSecret = "CHAOS_EVENTS"
	eventsKey    = "a secret of the campaign"
)

// delivered is the time in which the events of resting runs must arrive: two attempts of workers that died, and
// the pauses after failures.
const delivered = 2 * time.Minute

// Delivery is one request that the webhook receiver got.
type Delivery struct {
	At       time.Time
	ID       string // of the event
	Sequence int64
	Taken    bool // answered with 2xx
	Forged   bool // not signed with the secret
}

// receiver receives the events of runs. It fails the first attempt of every third event.
type receiver struct {
	url  string
	hook *standardwebhooks.Webhook

	mu  sync.Mutex
	all map[string][]Delivery // by run
}

func startReceiver(ctx context.Context) (*receiver, error) {
	hook, err := standardwebhooks.NewWebhookRaw([]byte(eventsKey))
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "http://" + l.Addr().String() + "/events", hook: hook, all: map[string][]Delivery{}}
	server := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(l) }() // ends with ctx
	return r, nil
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 1<<20))
	var event struct {
		Data struct {
			Run      string `json:"run_id"`
			Sequence int64  `json:"sequence"`
		} `json:"data"`
	}
	if err != nil || json.Unmarshal(body, &event) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	d := Delivery{At: time.Now(), ID: req.Header.Get(standardwebhooks.HeaderWebhookID), Sequence: event.Data.Sequence, Forged: r.hook.Verify(body, req.Header) != nil}
	r.mu.Lock()
	defer r.mu.Unlock()
	known := slices.ContainsFunc(r.all[event.Data.Run], func(before Delivery) bool { return before.ID == d.ID })
	if d.Taken = known || len(d.ID) == 0 || d.ID[len(d.ID)-1]%3 != 0; !d.Taken {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	r.all[event.Data.Run] = append(r.all[event.Data.Run], d)
}

// deliveries returns the deliveries so far.
func (r *receiver) deliveries() map[string][]Delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string][]Delivery{}
	for run, list := range r.all {
		all[run] = slices.Clone(list)
	}
	return all
}

// call adds the receiver's webhook to a submission.
func (s *deployment) call(req *api.SubmitRequest) {
	req.Webhook = &state.Webhook{URL: s.receiver.url, Secret: state.SecretReferences{"secret://" + eventsSecret}}
}

// awaitEvents waits until the events of the runs have arrived, or their time has passed.
func awaitEvents(ctx context.Context, s *deployment, runs []Witness) map[string][]Delivery {
	_ = rig.Until(ctx, delivered, "the webhooks have arrived", func(context.Context) error {
		c := checker{Evidence: Evidence{Deliveries: s.receiver.deliveries()}}
		for _, w := range runs {
			if w.Found && w.Deleted.IsZero() {
				c.checkCalled(w)
			}
		}
		if len(c.found) > 0 {
			return context.DeadlineExceeded
		}
		return nil
	})
	return s.receiver.deliveries()
}

// checkCalled checks that each end of a run was delivered, in order, under one id (I9).
func (c *checker) checkCalled(w Witness) {
	if !w.Called || c.touched(w) {
		return
	}
	ends := int64(0)
	for _, e := range w.Log {
		if e.Type == state.EntryFinished {
			ends++
		}
	}
	ids, last := map[int64]string{}, int64(0)
	for _, d := range c.Deliveries[w.ID] {
		switch {
		case d.Forged:
			c.broken("I9", w.ID, "event %d came with a signature of another secret", d.Sequence)
		case d.Sequence > last+1:
			c.broken("I9", w.ID, "event %d came before event %d was taken", d.Sequence, last+1)
		case ids[d.Sequence] != "" && ids[d.Sequence] != d.ID:
			c.broken("I9", w.ID, "event %d came as %s and as %s", d.Sequence, ids[d.Sequence], d.ID)
		}
		ids[d.Sequence] = d.ID
		if d.Taken && d.Sequence == last+1 {
			last++
		}
	}
	if last != ends {
		c.broken("I9", w.ID, "the run ended %d times, and %d events were taken", ends, last)
	}
}
