package service

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// seen is a message that records what becomes of it.
type seen struct {
	StreamMessage

	id, subject, body string // without a body the stream has deleted it
	size              int64
	deliveries        int
	became            string
}

func (m *seen) ID() string                   { return m.id }
func (m *seen) Subject() string              { return m.subject }
func (m *seen) Headers() map[string][]string { return nil }
func (m *seen) Size() int64                  { return m.size }
func (m *seen) Delivered() int               { return m.deliveries }
func (m *seen) InProgress() error            { return nil }

func (m *seen) Body(context.Context) ([]byte, error) {
	if m.body == "" {
		return nil, ErrNoMessage
	}
	return []byte(m.body), nil
}

func (m *seen) become(what string) error {
	m.became += what
	return nil
}

func (m *seen) Ack() error                    { return m.become("acknowledged") }
func (m *seen) Nak(time.Duration) error       { return m.become("again") }
func (m *seen) Terminate(reason string) error { return m.become("terminated " + reason) }

// taking is a service with an agent a and a trigger t of the tenant acme, which may read all streams.
type taking struct {
	*Service

	t        *testing.T
	c        access.Caller
	bus      *membus.Bus
	registry *prometheus.Registry
}

func newTaking(t *testing.T, stream Streams) *taking {
	t.Helper()
	s := &taking{t: t, bus: membus.New(), registry: prometheus.NewRegistry()}
	var err error
	s.Service, err = New(memstore.New(memstore.Config{Now: time.Now}), s.bus, Config{
		Known: agent.Known{Providers: model.BuiltinSpecs()}, Prefix: "turnpike", Tenant: state.DefaultTenant, MaxBody: 1 << 10, RedeliveryDelay: time.Minute, Audited: true,
		Random: rand.Reader, Logger: slog.New(slog.DiscardHandler), Registry: s.registry, Streams: stream,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.c = access.Caller{Principal: access.Principal{Name: "ann", Via: "key"}, Tenant: "acme", Roles: access.Roles()}
	s.settings(api.TenantSettings{Streams: []api.TenantStream{{Name: "*"}}})
	if _, err := s.Agents.Put(t.Context(), s.c, "a", []byte("name: a\nmodel: {provider: scripted, responses: [{text: done}]}\n")); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *taking) settings(settings api.TenantSettings) {
	s.t.Helper()
	if err := s.Triggers.tenants.Put(s.t.Context(), "acme", settings, time.Now()); err != nil {
		s.t.Fatal(err)
	}
}

// runner stores the trigger with settings, and returns its runner.
func (s *taking) runner(settings api.TriggerSettings) *runner {
	s.t.Helper()
	settings.Stream = "ORDERS"
	if _, _, err := s.Triggers.Put(s.t.Context(), s.c, "t", settings); err != nil {
		s.t.Fatal(err)
	}
	stored, raw, err := s.Triggers.load(s.t.Context(), "acme", "t")
	if err != nil {
		s.t.Fatal(err)
	}
	m, err := s.Triggers.compile(stored.TriggerSettings)
	if err != nil {
		s.t.Fatal(err)
	}
	return &runner{s: s.Triggers, key: triggerKey{"acme", "t"}, stored: *stored, mapping: m, allowed: []api.TenantStream{{Name: "*"}}, limiter: &limiter{}, raw: raw}
}

// outcomes returns the metric of deliveries, without outcomes that have not occurred.
func (s *taking) outcomes() map[string]float64 {
	s.t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if n := m.GetCounter().GetValue(); f.GetName() == "turnpike_trigger_deliveries_total" && n > 0 {
				out[m.GetLabel()[0].GetValue()] = n
			}
		}
	}
	return out
}

// A message is acknowledged once it has its effect, is delivered again while its cause may end, and becomes a dead
// letter otherwise: at once if another attempt has the same result. The status, the metric and the audit say so.
func TestMessagesOfATrigger(t *testing.T) {
	for name, test := range map[string]struct {
		message   seen
		agent     string
		suspended bool

		became, outcome, letter string // letter: agent, cut
	}{
		"taken":                 {seen{body: `{"ok": true}`}, "a", false, "acknowledged", outcomeTaken, ""},
		"ignored by the filter": {seen{body: `{"ok": false}`}, "a", false, "acknowledged", outcomeIgnored, ""},
		"deleted by its stream": {seen{}, "a", false, "acknowledged", outcomeGone, ""},
		"without the field":     {seen{body: `{}`}, "a", false, "terminated invalid_delivery", outcomeDead, "a false"},
		"too large":             {seen{body: `{"ok": true}`, size: 1<<10 + 1}, "a", false, "terminated body_too_large", outcomeDead, "a true"},
		"of a missing agent":    {seen{body: `{"ok": true}`, deliveries: maxTries - 1}, "b", false, "again", outcomeRetried, ""},
		"refused too often":     {seen{body: `{"ok": true}`, deliveries: maxTries}, "b", false, "terminated agent_not_found", outcomeDead, "b false"},
		"of a suspended tenant": {seen{body: `{"ok": true}`, deliveries: 100}, "a", true, "again", outcomeRetried, ""},
		"of a reserved subject": {seen{body: `{"ok": true}`, subject: "$KV.x", deliveries: 100}, "a", false, "again", outcomeRetried, ""},
		"of Turnpike":           {seen{body: `{"ok": true}`, subject: "turnpike.turn.x", deliveries: 100}, "a", false, "again", outcomeRetried, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTaking(t, &orders{})
				r := s.runner(api.TriggerSettings{Filter: "event.ok", Run: &api.HookRun{Agent: test.agent}})
				if test.suspended {
					s.settings(api.TenantSettings{Suspended: true})
				}
				m := test.message
				m.id = "ORDERS:1:1"
				if m.subject == "" {
					m.subject = "orders"
				}
				m.deliveries = max(1, m.deliveries)
				r.take(t.Context(), &m)
				time.Sleep(2 * statusInterval) // the bubble's clock
				if m.became != test.became {
					t.Errorf("the message was %s, want %s", m.became, test.became)
				}
				if diff := cmp.Diff(map[string]float64{test.outcome: 1}, s.outcomes()); diff != "" {
					t.Errorf("outcomes:\n%s", diff)
				}
				letters, err := s.bus.DeadLetters(t.Context(), "acme", 0, 10)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, l := range letters {
					got = append(got, fmt.Sprint(l.Agent, " ", l.Cut))
				}
				if strings.Join(got, ", ") != test.letter {
					t.Errorf("dead letters: %q, want %q", got, test.letter)
				}
				status, _, err := s.Triggers.status(t.Context(), "acme", "t")
				if failed := test.outcome == outcomeRetried || test.letter != ""; err != nil || status.Dead != int64(len(letters)) || (status.LastError != "") != failed {
					t.Errorf("status %+v, %v; want %d dead, and an error: %t", status, err, len(letters), failed)
				}
				entries, _, err := s.Triggers.store.Audit(t.Context(), "acme", "", 10)
				noted := 0
				for _, e := range entries {
					if strings.Contains(string(e), string(DeliverTrigger)) {
						noted++
					}
				}
				if want := test.outcome == outcomeTaken; err != nil || (noted == 1) != want || noted > 1 {
					t.Errorf("the audit has %d deliveries, %v", noted, err)
				}
			})
		})
	}
}

// The status of a trigger adds up its dead letters. A trigger that starts over has those of its own runner only.
func TestStatusOfATrigger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTaking(t, &orders{})
		status := func() storedStatus {
			t.Helper()
			status, _, err := s.Triggers.status(t.Context(), "acme", "t")
			if err != nil {
				t.Fatal(err)
			}
			return status
		}
		r := s.runner(api.TriggerSettings{Run: &api.HookRun{Agent: "a"}})
		for range 3 {
			r.fail(t.Context(), problem(unprocessable, api.CodeInvalidDelivery, "no"), 2)
			time.Sleep(2 * statusInterval) // the bubble's clock
		}
		if got := status(); got.Dead != 6 || got.LastError != "no" {
			t.Errorf("status %+v, want 6 dead", got)
		}
		if err := s.Triggers.Delete(t.Context(), s.c, "t"); err != nil {
			t.Fatal(err)
		}
		s.runner(api.TriggerSettings{Run: &api.HookRun{Agent: "a"}})
		r.fail(t.Context(), problem(unprocessable, api.CodeInvalidDelivery, "late"), 1)
		time.Sleep(2 * statusInterval)
		if got := status(); got.Dead != 0 || got.LastError != "" {
			t.Errorf("status of a trigger that was put again: %+v", got)
		}
	})
}

// A trigger stops when its tenant may no longer read the stream.
func TestTriggerLosesItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := &orders{}
		s := newTaking(t, stream)
		s.runner(api.TriggerSettings{Run: &api.HookRun{Agent: "a"}, MaxPerMinute: 2})
		var keeping sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		keeping.Go(func() { s.Triggers.Keep(ctx) })
		time.Sleep(90 * time.Second) // the bubble's clock
		s.settings(api.TenantSettings{Streams: []api.TenantStream{{Name: "OTHER"}}})
		time.Sleep(5 * time.Second)
		before := stream.acked.Load()
		time.Sleep(5 * time.Minute)
		if after := stream.acked.Load(); before == 0 || after != before {
			t.Errorf("%d messages were processed before, %d afterwards", before, after-before)
		}
		cancel()
		keeping.Wait()
	})
}
