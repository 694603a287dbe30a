package webhook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

const (
	// atOnce is the number of events that a worker delivers concurrently, and perEndpoint that of one endpoint:
	// a receiver that does not answer delays no other one. A tenant has at most as many requests in flight as
	// it leaves to others, so its receivers, however many, leave capacity for those of other tenants.
	atOnce      = 64
	perEndpoint = 8

	// window bounds how long workers try to deliver an event.
	window = 72 * time.Hour

	longestPause = 2 * time.Hour

	// brokenAfter is the number of failures in a row after which this worker makes single attempts to an
	// endpoint, with growing pauses, until one succeeds. A receiver that fails half of the requests at random
	// has ten failures in a row about once in two thousand requests.
	brokenAfter = 10

	// slotWait is the time that an attempt waits for others of its endpoint to end: longer than a healthy
	// receiver takes.
	slotWait = 100 * time.Millisecond

	maxEndpoints = 10_000 // that are remembered
	maxResponse  = 64 << 10
)

// Store is the part of a store that a Sender needs.
type Store interface {
	ClaimTimers(ctx context.Context, kind state.TimerKind, limit int, lease time.Duration) ([]state.TimerClaim, error)
	AckTimer(ctx context.Context, c state.TimerClaim, next time.Time) error
	Timer(ctx context.Context, id state.TimerID) (time.Time, error)
	Load(ctx context.Context, id state.RunID) (state.State, error)
	Log(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error)
	LogPage(ctx context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error)
	Now(ctx context.Context) (time.Time, error)
	Document(ctx context.Context, kind state.DocumentKind, name string) (json.RawMessage, error)
	ReplaceDocument(ctx context.Context, kind state.DocumentKind, name string, was, data json.RawMessage) error
}

// Bus is the part of a bus that a Sender needs.
type Bus interface {
	DeadLetter(ctx context.Context, d bus.DeadLetter) error
}

// Grants decides which hosts and secrets the webhooks of a tenant may use. *definition.Agents implements it.
type Grants interface {
	Permitted(ctx context.Context, tenant string, needs tool.Needs) error
	SecretOf(tenant string) func(name, host string) (string, error)
}

// Times are intervals and timeouts of a Sender. Zero fields have the defaults.
type Times struct {
	Look       time.Duration // between checks for due events; default 1 s
	Lease      time.Duration // of an attempt: when it ends after a crash, another worker makes the attempt; default 30 s
	Request    time.Duration // timeout of a request, less than Lease; default 15 s
	FirstPause time.Duration // between attempts, until the age of the event makes it longer; default 5 s
}

// firstBroken and longestBroken are the pauses between attempts for a broken endpoint.
func (t Times) firstBroken() time.Duration   { return t.FirstPause / 5 }
func (t Times) longestBroken() time.Duration { return 6 * t.FirstPause }

func (t Times) withDefaults() Times {
	return Times{
		Look: cmp.Or(t.Look, time.Second), Lease: cmp.Or(t.Lease, 30*time.Second), Request: cmp.Or(t.Request, 15*time.Second),
		FirstPause: cmp.Or(t.FirstPause, 5*time.Second),
	}
}

// Config has the dependencies of a Sender. All fields but Times and Worker are required.
type Config struct {
	Client *http.Client // refuses addresses that are not public, and does not follow redirects
	Grants Grants
	Times  Times
	Worker string // its id, for the results of tests

	Registry *prometheus.Registry
	Log      *slog.Logger
}

// Sender delivers events that are due. Each worker has one; only the claims of the store coordinate them.
type Sender struct {
	cfg       Config
	store     Store
	bus       Bus
	delivered *prometheus.CounterVec

	mu        sync.Mutex
	endpoints map[address]*endpoint
	inFlight  int            // requests
	ofTenant  map[string]int // of them, by tenant; no zeros

	warned map[string]time.Time // the latest log of a failure, by tenant; none older than warnEvery stays for long
}

// address is a URL of one tenant: failures of a tenant at a URL say nothing about another tenant's secret or
// rights there.
type address struct{ tenant, url string }

// endpoint is what this worker has recorded about an address.
type endpoint struct {
	slots    chan struct{} // holds a token for each attempt in flight
	users    int           // attempts in flight or waiting for a slot
	moved    time.Time     // the latest time at which a slot was taken or given back, by the clock of this process
	failures int           // in a row
	next     time.Time     // after brokenAfter failures, the time of the next attempt
	pause    time.Duration // the time from next to the attempt after it
}

// stalled reports whether none of the attempts in flight ends within the time that others wait for one.
func (e *endpoint) stalled() bool {
	return len(e.slots) == cap(e.slots) && time.Since(e.moved) > slotWait
}

// NewSender returns a sender of the events of the runs in store, and registers its metric. The error is that of
// the registration.
func NewSender(store Store, b Bus, cfg Config) (*Sender, error) {
	cfg.Times = cfg.Times.withDefaults()
	s := &Sender{
		cfg: cfg, store: store, bus: b, endpoints: map[address]*endpoint{}, ofTenant: map[string]int{}, warned: map[string]time.Time{},
		delivered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "turnpike_webhook_attempts_total", Help: "Attempts to deliver an event to a webhook, by outcome: delivered, failed, dead.",
		}, []string{"outcome"}),
	}
	return s, cfg.Registry.Register(s.delivered)
}

// Run delivers until ctx ends, and returns when the attempts in flight have ended. It must be called once.
func (s *Sender) Run(ctx context.Context) {
	var attempts sync.WaitGroup
	defer attempts.Wait()
	slots := make(chan struct{}, atOnce)
	failed := false
	for {
		select {
		case slots <- struct{}{}: // one is free
			<-slots
		case <-ctx.Done():
			return
		}
		free := atOnce - len(slots)
		claims, err := s.store.ClaimTimers(ctx, Kind, free, s.cfg.Times.Lease)
		s.warn(ctx, err, &failed)
		for _, series := range inOrder(claims) {
			slots <- struct{}{}
			attempts.Go(func() {
				defer func() { <-slots }()
				s.attemptAll(ctx, series)
			})
		}
		if len(claims) > 0 && len(claims) == free {
			continue // more may be due
		}
		if !clock.Pause(ctx, s.cfg.Times.Look) {
			return
		}
	}
}

// warn logs the first of several errors of the store.
func (s *Sender) warn(ctx context.Context, err error, failed *bool) {
	if err != nil && !*failed && ctx.Err() == nil {
		s.cfg.Log.Warn("due webhook events not read from the store; the worker retries", "error", err, "hint", "run `turnpike doctor`: the store may be unreachable or refuse the operation")
	}
	*failed = err != nil
}

// inOrder returns the claims of the events of a run as one series, in their order, and any other claim as a series of
// its own.
func inOrder(claims []state.TimerClaim) map[string][]state.TimerClaim {
	series := map[string][]state.TimerClaim{}
	for _, c := range claims {
		name := c.Tenant + " " + c.Name
		if run, _, since, err := parse(c.Name); err == nil && since.IsZero() {
			name = string(run)
		}
		series[name] = append(series[name], c)
	}
	for _, of := range series {
		slices.SortFunc(of, func(a, b state.TimerClaim) int {
			_, x, _, _ := parse(a.Name)
			_, y, _, _ := parse(b.Name)
			return cmp.Compare(x, y)
		})
	}
	return series
}

// attemptAll makes the attempts of a series, each after the one before it, so that an event follows as soon as its
// receiver has accepted the earlier one. An attempt that could outlast its lease is left to the next check.
func (s *Sender) attemptAll(ctx context.Context, series []state.TimerClaim) {
	began := time.Now()
	for _, claim := range series {
		s.attempt(ctx, claim, time.Since(began) > (s.cfg.Times.Lease-s.cfg.Times.Request)/2)
	}
}

// attempt makes the attempt that a timer is due for, and stores when it is due next. If late, it makes no attempt, and
// the timer is due again at once. After an error, which attempt logs, the timer is due again when its lease ends.
func (s *Sender) attempt(ctx context.Context, claim state.TimerClaim, late bool) {
	defer func() {
		if p := timelimit.Caught(recover()); p != nil {
			s.cfg.Log.Error("attempt to deliver a webhook event panicked; a worker retries it in 30 s", "panic", p.Value, "stack", string(p.Stack), "event", claim.Name, "hint", "report this bug in Turnpike with the stack")
		}
	}()
	now, err := s.store.Now(ctx)
	next := claim.Due
	if err == nil && !late {
		next, err = s.act(ctx, &claim, now)
	}
	if err == nil {
		err = s.store.AckTimer(ctx, claim, next)
	}
	if err != nil && !errors.Is(err, state.ErrFenced) && ctx.Err() == nil {
		s.cfg.Log.Warn("attempt to deliver a webhook event not completed; a worker repeats it in 30 s", "error", err, "event", claim.Name, "tenant", claim.Tenant, "hint", "run `turnpike doctor`: the store or NATS may be unreachable or refuse the operation")
	}
}

// act makes the attempt, unless it must wait or is no longer needed, and returns the time at which the timer is due
// next, or the zero time to remove it. It may change the note of the claim. The error is that of the store, of the bus
// or of ctx, and the delivery may have succeeded; a failed delivery does not return an error.
func (s *Sender) act(ctx context.Context, claim *state.TimerClaim, now time.Time) (time.Time, error) {
	if isTest(claim.Name) {
		return s.actOnTest(ctx, claim.Tenant, claim.Name, now)
	}
	run, seq, since, err := parse(claim.Name)
	progress := progressOf(claim.Note)
	if err != nil {
		return time.Time{}, nil //nolint:nilerr // a malformed name: no attempt can succeed
	}
	e, err := read(ctx, s.store, claim.Tenant, run, seq)
	if errors.Is(err, errGone) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	if progress.ended() {
		return now.Add(keepEnded), nil // the run still exists
	}
	if n := len(e.earlier); n > 0 {
		// The event before this one has waited for those before it.
		due, err := s.store.Timer(ctx, Timer(state.State{ID: run, Tenant: claim.Tenant}, e.earlier[n-1]))
		if err == nil {
			// If that one is due by now, its attempt may be in flight: the next check finds this event due again.
			claim.Note = progress.note(api.PendingEarlierEvent)
			return later(due, now.Add(s.cfg.Times.Look/2)), nil
		}
		if !errors.Is(err, state.ErrNotFound) { // it was delivered, or is a dead letter
			return time.Time{}, err
		}
	}
	again := !since.IsZero()
	if !again {
		since = e.at.Time
	}
	at, reason := s.enter(ctx, address{claim.Tenant, e.endpoint.URL}, now)
	if reason != "" {
		claim.Note = progress.note(reason)
		return at, ctx.Err()
	}
	got, err := s.sendAndLeave(ctx, claim.Tenant, e, now)
	if ctx.Err() != nil {
		return time.Time{}, ctx.Err()
	}
	switch {
	case err == nil:
		s.delivered.WithLabelValues("delivered").Inc()
		if again {
			claim.Note = progress.delivered(now)
			return now.Add(keepEnded), nil
		}
		return time.Time{}, nil
	case final(err) || now.Sub(since) >= window:
		s.delivered.WithLabelValues("dead").Inc()
		s.cfg.Log.Warn("event not delivered to a webhook, and no further attempt is made: it becomes a dead letter", "error", err, "run_id", run, "tenant", claim.Tenant, "event", e.id, "hint", "if the error names a setting of the tenant or a secret, have that corrected; otherwise repair the receiver. Then replay the letter: find its number with turnpike dead ls, and run turnpike dead replay with the number")
		letter := bus.DeadLetter{
			Kind: bus.DeadWebhook, Tenant: claim.Tenant, Lane: state.Normal, Run: run, Events: seq, Cause: describe(err), At: state.At(now), Data: string(e.body),
		}
		if again { // progress closes the letters before this one, so a worker that repeats this must store another one
			claim.Note = progress.dead(now)
			return now.Add(keepEnded), s.bus.DeadLetter(ctx, letter)
		}
		letter.Message = claim.Name
		return time.Time{}, s.bus.DeadLetter(ctx, letter)
	default:
		s.delivered.WithLabelValues("failed").Inc()
		s.cfg.Log.Debug("event not delivered", "error", err, "run_id", run, "tenant", claim.Tenant, "event", e.id)
		if s.mayWarn(claim.Tenant, now) {
			s.cfg.Log.Warn("webhook does not accept events", "error", err, "tenant", claim.Tenant, "host", toolspec.HostPort(e.endpoint.URL), "event", e.id,
				"hint", "if the error names a secret, correct the secret; otherwise repair the receiver, or correct the URL of the webhook for later runs. Workers retry for three days, and log at most one failure of this tenant a minute")
		}
		claim.Note = progress.failed(err, now).note(api.PendingFailed)
		return now.Add(max(got.retry, s.pause(now.Sub(since)))), nil
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// pause returns the time until the next attempt for an event of the given age: half of the age, so that attempts become
// rarer, but at least FirstPause and at most longestPause, and then up to a fifth less at random, so that events that
// failed together are not retried together.
func (s *Sender) pause(age time.Duration) time.Duration {
	p := min(max(age/2, s.cfg.Times.FirstPause), longestPause)
	return p - time.Duration(rand.Int64N(int64(p/5))) //nolint:gosec // no secret
}

// enter begins an attempt for an endpoint, for whose slot it waits up to slotWait. If none may be made now, it returns
// a reason, and the time at which the caller should try again. With an empty reason the caller must call leave.
func (s *Sender) enter(ctx context.Context, to address, now time.Time) (at time.Time, reason api.PendingReason) {
	e, at, reason := s.use(to, now)
	if e == nil {
		return at, reason
	}
	wait := time.NewTimer(slotWait)
	defer wait.Stop()
	held := false
	select {
	case e.slots <- struct{}{}:
		held = true
	case <-wait.C:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if held {
		e.moved = time.Now()
	}
	if held && s.ofTenant[to.tenant] < atOnce-s.inFlight {
		s.inFlight++
		s.ofTenant[to.tenant]++
		return time.Time{}, ""
	}
	e.users--
	if held {
		<-e.slots
		return now.Add(s.fullPause()), api.PendingBusy
	}
	return now.Add(spread(s.cfg.Times.Look, 4*s.cfg.Times.Look)), api.PendingBusy
}

// spread returns a random duration of at least length and less than length plus more, so that events which wait
// together are retried apart.
func spread(length, more time.Duration) time.Duration {
	return length + time.Duration(rand.Int64N(int64(more))) //nolint:gosec // no secret
}

// fullPause is the pause of an event whose tenant has its share of the requests in flight, or whose
// endpoint does not answer those in flight.
func (s *Sender) fullPause() time.Duration {
	return spread(s.cfg.Times.FirstPause, s.cfg.Times.FirstPause)
}

// use returns the endpoint of an address and counts one more user of it. It returns nil, the time of the next attempt
// and the reason if the endpoint pauses, or does not answer the attempts in flight, so that an event that cannot be
// sent at once does not delay others. An endpoint pauses after brokenAfter failures without a success in between. The
// first call after the end of a pause begins the next pause, which does not apply to that call itself.
func (s *Sender) use(to address, now time.Time) (*endpoint, time.Time, api.PendingReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.endpoints[to]
	if e == nil {
		if len(s.endpoints) >= maxEndpoints {
			maps.DeleteFunc(s.endpoints, func(_ address, idle *endpoint) bool { return idle.users == 0 })
		}
		e = &endpoint{slots: make(chan struct{}, perEndpoint)}
		s.endpoints[to] = e
	}
	if e.failures >= brokenAfter {
		if now.Before(e.next) {
			return nil, e.next.Add(spread(0, e.pause)), api.PendingReceiverFailing
		}
		e.next, e.pause = now.Add(e.pause), min(2*e.pause, s.cfg.Times.longestBroken())
	}
	if e.stalled() {
		return nil, now.Add(s.fullPause()), api.PendingBusy
	}
	e.users++
	return e, time.Time{}, ""
}

func (s *Sender) leave(to address, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.endpoints[to]
	e.users--
	<-e.slots
	e.moved = time.Now()
	s.inFlight--
	if s.ofTenant[to.tenant]--; s.ofTenant[to.tenant] == 0 {
		delete(s.ofTenant, to.tenant)
	}
	switch {
	case err == nil:
		e.failures = 0
	case !final(err):
		if e.failures++; e.failures == brokenAfter {
			e.pause = s.cfg.Times.firstBroken()
			e.next = now.Add(e.pause)
		}
	}
}

// sendAndLeave calls send, and leave also if send panics.
func (s *Sender) sendAndLeave(ctx context.Context, tenant string, e event, now time.Time) (got answer, err error) {
	began := time.Now()
	err = errors.New("the attempt to send the event panicked: report this bug in Turnpike with the stack in the worker's log")
	defer func() { s.leave(address{tenant, e.endpoint.URL}, err, now.Add(time.Since(began))) }()
	got, err = s.send(ctx, tenant, e)
	return got, err
}

// mayWarn reports whether no failure of a tenant was logged for a minute: one tenant must not fill the log.
func (s *Sender) mayWarn(tenant string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.warned[tenant]) < warnEvery {
		return false
	}
	maps.DeleteFunc(s.warned, func(_ string, at time.Time) bool { return now.Sub(at) >= warnEvery })
	s.warned[tenant] = now
	return true
}

// final reports whether no further attempt is made after an error: the receiver wants no events, or the policy
// of the tenant does not allow them.
func final(err error) bool {
	_, refused := errors.AsType[*policy.RefusedError](err)
	return refused || errors.Is(err, errEnded)
}

// errEnded reports a receiver that wants no events.
var errEnded = errors.New("the receiver answered 410 Gone, so workers do not send it this event again: correct or remove the webhook's URL")

// warnEvery is the shortest time between two logs of failures of a tenant.
const warnEvery = time.Minute

// maxRetryAfter bounds the pause that a receiver asks for.
const maxRetryAfter = time.Hour

// answer describes the response of a receiver.
type answer struct {
	status  int           // 0 if there was no response
	latency time.Duration // from the request to the end of the response
	retry   time.Duration // the receiver's Retry-After, at most maxRetryAfter; 0 if it sent none
}

// send makes a request, within Times.Request, if the tenant may use the host and the secrets. Errors that final
// reports are not retried.
func (s *Sender) send(ctx context.Context, tenant string, e event) (got answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Times.Request)
	defer cancel()
	host := toolspec.HostPort(e.endpoint.URL)
	if err := s.cfg.Grants.Permitted(ctx, tenant, tool.Needs{Hosts: []string{host}}); err != nil {
		return got, err
	}
	secrets := make([]string, len(e.endpoint.Secret))
	for i, ref := range e.endpoint.Secret {
		if secrets[i], err = s.cfg.Grants.SecretOf(tenant)(strings.TrimPrefix(ref, "secret://"), host); err != nil {
			return got, err
		}
	}
	return deliver(ctx, s.cfg.Client, tenant, e, secrets)
}

// deliver sends an event, signed with each of the secrets, which belong to the references of its endpoint.
// Without a secret it has no signature.
func deliver(ctx context.Context, client *http.Client, tenant string, e event, secrets []string) (got answer, err error) {
	var within time.Duration
	if at, ok := ctx.Deadline(); ok {
		within = time.Until(at).Round(100 * time.Millisecond)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.endpoint.URL, bytes.NewReader(e.body))
	if err != nil {
		return got, requestError{err, within}
	}
	now := time.Now()
	var signatures []string
	for i, value := range secrets {
		signature, err := sign(value, e.id, now, e.body)
		if err != nil {
			return got, fmt.Errorf("secret %s: %w", e.endpoint.Secret[i], err)
		}
		signatures = append(signatures, signature)
	}
	h := req.Header
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "turnpike")
	h.Set(standardwebhooks.HeaderWebhookID, e.id)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	if len(signatures) > 0 {
		h.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	}
	h.Set("ce-specversion", "1.0")
	h.Set("ce-id", e.id)
	h.Set("ce-type", bus.CloudEventType(e.kind))
	h.Set("ce-source", bus.CloudEventSource(tenant))
	h.Set("ce-time", e.at.UTC().Format(time.RFC3339Nano))
	h.Set("ce-subject", string(e.run))
	defer func() { got.latency = time.Since(now) }()
	resp, err := client.Do(req)
	if request, ok := errors.AsType[*url.Error](err); ok {
		err = request.Err // without the address, whose query may have a token
	}
	if err != nil {
		return got, requestError{err, within}
	}
	got.status = resp.StatusCode
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxResponse)) // so that the connection can be used again
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return got, nil
	case resp.StatusCode == http.StatusGone:
		return got, errEnded
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		got.retry = min(time.Duration(min(seconds, 1<<20))*time.Second, maxRetryAfter)
	}
	return got, errors.New(strings.TrimSpace(fmt.Sprintf("the receiver answered %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))))
}

// sign returns the signature of a body. A secret that begins with whsec_ is Base64, as Standard Webhooks
// write it; any other is used byte for byte.
func sign(secret, id string, at time.Time, body []byte) (string, error) {
	var hook *standardwebhooks.Webhook
	var err error
	if strings.HasPrefix(secret, "whsec_") {
		hook, err = standardwebhooks.NewWebhook(secret)
	} else {
		hook, err = standardwebhooks.NewWebhookRaw([]byte(secret))
	}
	if err != nil {
		return "", errors.New("the secret's value begins with whsec_, and the rest is not base64: correct the value")
	}
	return hook.Sign(id, at, body)
}
