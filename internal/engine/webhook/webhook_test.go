package webhook_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/prometheus/client_golang/prometheus"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

const secretKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// receiver is an HTTP transport for all addresses. It records the deliveries.
type receiver struct {
	mu     sync.Mutex
	got    []delivery
	answer func(n int, r *http.Request) int // the status of the n-th request, 0 for no answer, -1 for no connection; nil: 200
	err    error                            // of requests without a connection; nil: no route
	tries  int
}

type delivery struct {
	url    string
	header http.Header
	body   []byte
	event  webhook.Body
}

// RoundTrip implements http.RoundTripper.
func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.tries++
	n, status := r.tries, http.StatusOK
	answer := r.answer
	r.mu.Unlock()
	if answer != nil {
		status = answer(n, req)
	}
	if status < 0 {
		return nil, cmp.Or(r.err, errors.New("no route"))
	}
	if status == 0 {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	if status == http.StatusOK {
		d := delivery{url: req.URL.String(), header: req.Header.Clone(), body: body}
		if err := json.Unmarshal(body, &d.event); err != nil {
			return nil, err
		}
		r.mu.Lock()
		r.got = append(r.got, d)
		r.mu.Unlock()
	}
	return &http.Response{StatusCode: status, Status: "200 \x1b[31mhush", Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

func (r *receiver) delivered() []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// letters are the dead letters.
type letters struct {
	mu  sync.Mutex
	all []bus.DeadLetter
}

func (l *letters) DeadLetter(_ context.Context, d bus.DeadLetter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, d)
	return nil
}

// grants allow everything but one host.
type grants struct{ refused string }

func (g grants) Permitted(_ context.Context, _ string, needs tool.Needs) error {
	if slices.Contains(needs.Hosts, g.refused) {
		return errors.New("the tenant may not reach " + g.refused)
	}
	return nil
}

func (grants) SecretOf(string) func(name, host string) (string, error) {
	return func(name, _ string) (string, error) {
		switch name {
		case "NEW":
			return secretKey, nil
		case "OLD":
			return "an old secret", nil
		default:
			return "", errors.New("secret " + name + " is not declared")
		}
	}
}

type fixture struct {
	*testing.T

	store    *memstore.Store
	receiver *receiver
	letters  *letters
	log      bytes.Buffer // of all senders; read it when they have ended
	logger   *slog.Logger // writes it
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t, store: memstore.New(memstore.Config{}), receiver: &receiver{}, letters: &letters{}}
	f.logger = slog.New(slog.NewTextHandler(&f.log, nil))
	return f
}

// sender returns the sender of another worker.
func (f *fixture) sender() *webhook.Sender {
	f.Helper()
	s, err := webhook.NewSender(f.store, f.letters, webhook.Config{
		Client: &http.Client{Transport: f.receiver}, Grants: grants{"refused.example:443"}, Registry: prometheus.NewRegistry(), Log: f.logger,
	})
	if err != nil {
		f.Fatal(err)
	}
	return s
}

// run stores a run of the tenant acme with a webhook.
func (f *fixture) run(id, address string, events ...state.EntryType) state.State {
	f.Helper()
	return f.runOf("acme", id, address, events...)
}

func (f *fixture) runOf(tenant, id, address string, events ...state.EntryType) state.State {
	f.Helper()
	s := state.State{
		ID: state.RunID("run_" + id), Tenant: tenant, Agent: "a", AgentVersion: 3, Loop: "react", Priority: state.Normal, Metadata: map[string]string{"k": "v"},
		Webhook: &state.Webhook{URL: address, Events: events, Secret: state.SecretReferences{"secret://NEW", "secret://OLD"}},
	}
	s, err := s.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("go")}})
	if err != nil {
		f.Fatal(err)
	}
	if _, err := f.store.Create(f.Context(), state.NewRun{State: s}); err != nil {
		f.Fatal(err)
	}
	return s
}

// move changes the state of a run and sets the timer as the finalizer does.
func (f *fixture) move(id state.RunID, why state.Reason, e state.Entry) {
	f.Helper()
	was, err := f.store.Load(f.Context(), id)
	if err != nil {
		f.Fatal(err)
	}
	c, err := f.store.Claim(f.Context(), state.ClaimRequest{Run: id, Version: was.Version, Token: "t", Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		f.Fatal(c.Outcome, err)
	}
	e.At = state.At(time.Now())
	next, err := c.State.Move(why, e)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := f.store.Commit(f.Context(), c.Lease, state.Commit{ID: fmt.Sprint(was.Version), State: &next, From: c.State.LogLen(), RedeliveryDelay: time.Hour}); err != nil {
		f.Fatal(err)
	}
	if next.Status.Terminal() {
		if err := f.store.PutTimer(f.Context(), webhook.Timer(next, next.LogLen()), time.Now()); err != nil {
			f.Fatal(err)
		}
	}
}

func (f *fixture) end(id state.RunID, output string) {
	f.Helper()
	f.move(id, state.EndCompleted, state.Entry{Output: &output})
}

// work runs senders for a duration.
func (f *fixture) work(d time.Duration, senders ...*webhook.Sender) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	var running sync.WaitGroup
	for _, s := range senders {
		running.Go(func() { s.Run(ctx) })
	}
	time.Sleep(d) // the bubble's clock
	synctest.Wait()
	cancel()
	running.Wait()
}

const (
	first  = "01ARZ3NDEKTSV4RRFFQ69G5FAA"
	second = "01ARZ3NDEKTSV4RRFFQ69G5FAB"
)

// An event is a CloudEvent, signed with both secrets.
func TestDelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		s := f.run(first, "https://one.example/events")
		f.end(s.ID, "done")
		f.work(3*time.Second, f.sender(), f.sender())
		got := f.receiver.delivered()
		if len(got) != 1 {
			t.Fatalf("%d deliveries, want 1", len(got))
		}
		d := got[0]
		data := d.event.Data
		if d.url != "https://one.example/events" || d.event.Type != state.EntryFinished || data.RunID != s.ID || data.Tenant != "acme" || data.Agent != "a" || data.AgentVersion != 3 ||
			data.Status != state.Completed || data.Reason != state.EndCompleted || data.Output == nil || *data.Output != "done" || data.Sequence != 1 || data.Metadata["k"] != "v" {
			t.Errorf("delivered %s", d.body)
		}
		for name, want := range map[string]string{
			"content-type": "application/json", "ce-specversion": "1.0", "ce-id": d.header.Get("webhook-id"), "ce-type": "dev.turnpike.run.finished",
			"ce-source": "/turnpike/acme", "ce-subject": string(s.ID), "ce-time": d.event.Timestamp.UTC().Format(time.RFC3339Nano),
		} {
			if got := d.header.Get(name); got != want || got == "" {
				t.Errorf("header %s is %q, want %q", name, got, want)
			}
		}
		ce, err := binding.ToEvent(t.Context(), cehttp.NewMessage(d.header, io.NopCloser(bytes.NewReader(d.body))))
		if err != nil {
			t.Fatal(err)
		}
		if err := ce.Validate(); err != nil || ce.ID() != d.header.Get("webhook-id") || ce.Subject() != string(s.ID) || !bytes.Equal(ce.Data(), d.body) {
			t.Errorf("the CloudEvents SDK reads %s, %v", ce, err)
		}
		base64, err := standardwebhooks.NewWebhook(secretKey)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := standardwebhooks.NewWebhookRaw([]byte("an old secret"))
		if err != nil {
			t.Fatal(err)
		}
		for _, hook := range []*standardwebhooks.Webhook{base64, raw} {
			if err := hook.Verify(d.body, d.header); err != nil {
				t.Error(err)
			}
		}
	})
}

// An event is retried until it is accepted, with the same id and body.
func TestRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		ids := map[string]bool{}
		f.receiver.answer = func(n int, r *http.Request) int {
			ids[r.Header.Get("webhook-id")] = true
			if n <= 3 {
				return http.StatusInternalServerError
			}
			return http.StatusOK
		}
		s := f.run(first, "https://one.example/events")
		f.end(s.ID, "done")
		f.work(5*time.Minute, f.sender(), f.sender())
		if got := f.receiver.delivered(); len(got) != 1 || len(ids) != 1 || f.receiver.tries != 4 {
			t.Errorf("%d deliveries with the ids %v after %d attempts; want 1, 1 id, 4 attempts", len(got), ids, f.receiver.tries)
		}
	})
}

// After three days an event becomes a dead letter; after a 410 it does so at once. The run's later events are
// still delivered.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	for status, within := range map[int]time.Duration{http.StatusBadGateway: 75 * time.Hour, http.StatusGone: time.Minute} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.receiver.answer = func(int, *http.Request) int { return status }
				s := f.run(first, "https://one.example/events")
				f.end(s.ID, "done")
				f.work(within, f.sender())
				if len(f.letters.all) != 1 {
					t.Fatalf("%d dead letters, want 1", len(f.letters.all))
				}
				l := f.letters.all[0]
				if l.Kind != bus.DeadWebhook || l.Tenant != "acme" || l.Run != s.ID || !strings.Contains(l.Cause, "the receiver answered") || !strings.Contains(l.Data, `"output":"done"`) {
					t.Errorf("the dead letter is %+v", l)
				}
				if status == http.StatusBadGateway && (f.receiver.tries < 20 || f.receiver.tries > 100) {
					t.Errorf("%d attempts in three days", f.receiver.tries)
				}
				// A replay delivers it, and a later event follows with the next number.
				f.receiver.answer = nil
				if err := webhook.Replay(t.Context(), f.store, "acme", s.ID, l.Events, time.Now()); err != nil {
					t.Fatal(err)
				}
				f.work(2*time.Minute, f.sender())
				say := state.UserText("go on")
				if _, err := f.store.Signal(t.Context(), s.ID, state.Signal{ID: "s", Message: &say}, time.Hour); err != nil {
					t.Fatal(err)
				}
				f.move(s.ID, state.UserMessage, state.Entry{Messages: []state.Message{say}})
				f.end(s.ID, "done again")
				f.work(time.Minute, f.sender())
				got := f.receiver.delivered()
				if len(got) != 2 || got[0].event.Data.Sequence != 1 || *got[1].event.Data.Output != "done again" {
					t.Errorf("delivered %+v", got)
				}
			})
		})
	}
}

// The events of a run arrive in order, although the first one fails for a while.
func TestOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.receiver.answer = func(n int, _ *http.Request) int {
			if n <= 4 {
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		}
		s := f.run(first, "https://one.example/events")
		senders := []*webhook.Sender{f.sender(), f.sender(), f.sender()}
		for i := range 3 {
			if i > 0 {
				say := state.UserText("go on")
				if _, err := f.store.Signal(t.Context(), s.ID, state.Signal{ID: fmt.Sprint(i), Message: &say}, time.Hour); err != nil {
					t.Fatal(err)
				}
				f.move(s.ID, state.UserMessage, state.Entry{Messages: []state.Message{say}})
			}
			f.end(s.ID, fmt.Sprint("answer ", i+1))
			f.work(time.Second, senders...)
		}
		f.work(10*time.Minute, senders...)
		var outputs []string
		for _, d := range f.receiver.delivered() {
			outputs = append(outputs, fmt.Sprint(d.event.Data.Sequence, " ", *d.event.Data.Output))
		}
		if want := []string{"1 answer 1", "2 answer 2", "3 answer 3"}; !slices.Equal(outputs, want) {
			t.Errorf("delivered %q, want %q", outputs, want)
		}
	})
}

// An event counts those before it, however long the log between them is, and also if the run ended in its first turn.
func TestSequence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		s := f.run(first, "https://one.example/events")
		f.end(s.ID, "answer 1")
		time.Sleep(time.Second) // the bubble's clock
		say := state.UserText("go on")
		if _, err := f.store.Signal(t.Context(), s.ID, state.Signal{ID: "s", Message: &say}, time.Hour); err != nil {
			t.Fatal(err)
		}
		f.move(s.ID, state.UserMessage, state.Entry{Messages: []state.Message{say}})
		for range 300 { // more than a page
			f.move(s.ID, state.NextTurn, state.Entry{})
		}
		f.end(s.ID, "answer 2")
		f.work(time.Minute, f.sender())
		var outputs []string
		for _, d := range f.receiver.delivered() {
			outputs = append(outputs, fmt.Sprint(d.event.Data.Sequence, " ", *d.event.Data.Output))
		}
		if want := []string{"1 answer 1", "2 answer 2"}; !slices.Equal(outputs, want) {
			t.Errorf("delivered %q, want %q", outputs, want)
		}
	})
}

// A slow or unresponsive receiver delays no other, and an unresponsive one gets few requests.
func TestDeadReceiver(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func() int{
		"dead": func() int { return 0 },
		"slow": func() int { time.Sleep(14 * time.Second); return http.StatusOK }, // the bubble's clock
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { besideDead(t, answer) })
		})
	}
}

func besideDead(t *testing.T, answer func() int) {
	t.Helper()
	f := newFixture(t)
	var asked atomic.Int64
	f.receiver.answer = func(_ int, r *http.Request) int {
		if r.URL.Host == "dead.example" {
			asked.Add(1)
			return answer()
		}
		return http.StatusOK
	}
	const each = 200
	for i := range each {
		for host, part := range map[string]string{"dead": "QQQQ", "live": "RRRR"} {
			s := f.run(fmt.Sprintf("01ARZ3NDEKTSV4RRFF%s%04d", part, i), "https://"+host+".example/")
			f.end(s.ID, "done")
		}
	}
	f.work(10*time.Second, f.sender())
	live := 0
	for _, d := range f.receiver.delivered() {
		if strings.Contains(d.url, "live") {
			live++
		}
	}
	if live != each {
		t.Errorf("%d of %d events were delivered within ten seconds next to a receiver that is not ready", live, each)
	}
	f.work(10*time.Minute, f.sender())
	if n := asked.Load(); answer() == 0 && n > 100 {
		t.Errorf("the other receiver got %d requests", n)
	}
}

// A failure of one tenant's events at an address, such as 401 for a wrong secret, slows down no other tenant.
func TestAddressOfTwoTenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.receiver.answer = func(_ int, r *http.Request) int {
			if r.Header.Get("ce-source") == bus.CloudEventSource("hostile") {
				return http.StatusUnauthorized
			}
			return http.StatusOK
		}
		const each = 20
		for i := range each {
			s := f.runOf("hostile", fmt.Sprintf("01ARZ3NDEKTSV4RRFFSSSS%04d", i), "https://shared.example/")
			f.end(s.ID, "done")
		}
		sender := f.sender()
		f.work(20*time.Second, sender)
		for i := range each {
			s := f.run(fmt.Sprintf("01ARZ3NDEKTSV4RRFFRRRR%04d", i), "https://shared.example/")
			f.end(s.ID, "done")
		}
		f.work(10*time.Second, sender)
		if n := len(f.receiver.delivered()); n != each {
			t.Errorf("%d of %d events were delivered within ten seconds to an address that another tenant may not use", n, each)
		}
	})
}

// A tenant with a thousand unresponsive receivers leaves capacity for another tenant's events.
func TestManyDeadReceivers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.receiver.answer = func(_ int, r *http.Request) int {
			if strings.HasPrefix(r.URL.Host, "dead") {
				return 0
			}
			return http.StatusOK
		}
		for i := range 1000 {
			s := f.runOf("hostile", fmt.Sprintf("01ARZ3NDEKTSV4RRFFQQQQ%04d", i), fmt.Sprintf("https://dead%d.example/", i))
			f.end(s.ID, "done")
		}
		sender := f.sender()
		f.work(20*time.Second, sender)
		const each = 50
		for i := range each {
			s := f.run(fmt.Sprintf("01ARZ3NDEKTSV4RRFFRRRR%04d", i), "https://live.example/")
			f.end(s.ID, "done")
		}
		f.work(10*time.Second, sender)
		if n := len(f.receiver.delivered()); n != each {
			t.Errorf("%d of %d events were delivered within ten seconds next to a tenant with dead receivers", n, each)
		}
	})
}

// The log has one failure with its cause per minute and tenant, and only the host of an address: its query may
// contain a token.
func TestFailuresAreLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.receiver.answer = func(_ int, r *http.Request) int {
			if r.URL.Host == "down.example" {
				return -1
			}
			return http.StatusInternalServerError
		}
		for i, address := range []string{"https://down.example/?token=hush", "https://one.example/?token=hush", "https://two.example/?token=hush"} {
			tenant := []string{"quiet", "loud", "loud"}[i]
			f.end(f.runOf(tenant, first[:len(first)-1]+fmt.Sprint(i), address).ID, "done")
		}
		f.work(30*time.Second, f.sender())
		log := f.log.String()
		if n := strings.Count(log, "webhook does not accept events"); n != 2 || strings.Count(log, "tenant=loud") != 1 || !strings.Contains(log, "host=down.example:443") || !strings.Contains(log, "no route") {
			t.Errorf("%d failures in the log, want one for each tenant:\n%s", n, log)
		}
		if strings.Contains(log, "hush") {
			t.Errorf("the log contains a token:\n%s", log)
		}
	})
}

// The sender makes no request for an event of a deleted run, of another tenant, or of a tenant that may not
// reach the host.
func TestNoDelivery(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		s := f.run(first, "https://refused.example/")
		f.end(s.ID, "done")
		gone := state.TimerID{Tenant: "acme", Kind: webhook.Kind, Name: "run_" + second + " 2"}
		foreign := webhook.Timer(s, 2)
		foreign.Tenant = "other"
		for _, id := range []state.TimerID{gone, foreign, {Tenant: "acme", Kind: webhook.Kind, Name: "nonsense"}} {
			if err := f.store.PutTimer(t.Context(), id, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		f.work(time.Minute, f.sender())
		if f.receiver.tries != 0 {
			t.Errorf("%d requests were made", f.receiver.tries)
		}
		if _, err := f.store.Timer(t.Context(), gone); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("the timer of a deleted run: %v", err)
		}
		if _, err := f.store.Timer(t.Context(), foreign); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("the timer of another tenant: %v", err)
		}
	})
}
