package service

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/turnpike-dev/turnpike/internal/hookin"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// consumers are streams that record their consumers.
type consumers struct {
	orders

	open   []ConsumerSpec
	gone   []string
	opened func()
}

func (c *consumers) Open(_ context.Context, spec ConsumerSpec) (StreamConsumer, error) {
	c.open = append(c.open, spec)
	if c.opened != nil {
		c.opened()
	}
	return &c.orders, nil
}

func (c *consumers) Remove(_ context.Context, stream, name string) error {
	c.gone = append(c.gone, stream+" "+name)
	return nil
}

// A trigger gets another consumer if its stream or its beginning changes, and the earlier one is removed from its own
// stream. Other changes keep the consumer.
func TestTriggerStartsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := &consumers{}
		s := newTaking(t, stream)
		put := func(name, from string, rate int) ConsumerSpec {
			t.Helper()
			settings := api.TriggerSettings{Stream: name, From: from, MaxPerMinute: rate, Run: &api.HookRun{Agent: "a"}}
			if _, _, err := s.Triggers.Put(t.Context(), s.c, "t", settings); err != nil {
				t.Fatal(err)
			}
			return stream.open[len(stream.open)-1]
		}
		first := put("A", api.FromNew, 1)
		if again := put("A", "", 2); again.Name != first.Name || len(stream.gone) > 0 || first.From.IsZero() {
			t.Errorf("another rate: %+v in place of %+v, removed %v", again, first, stream.gone)
		}
		all := put("A", api.FromAll, 2)
		if all.Name == first.Name || !all.From.IsZero() || len(stream.gone) != 1 || stream.gone[0] != "A "+first.Name {
			t.Errorf("from all: %+v in place of %+v, removed %v", all, first, stream.gone)
		}
		other := put("B", api.FromAll, 2)
		if other.Name == all.Name || other.Stream != "B" || len(stream.gone) != 2 || stream.gone[1] != "A "+all.Name {
			t.Errorf("another stream: %+v in place of %+v, removed %v", other, all, stream.gone)
		}
		// A gateway may store the status of a trigger just after its deletion.
		if err := s.Triggers.Delete(t.Context(), s.c, "t"); err != nil || stream.gone[len(stream.gone)-1] != "B "+other.Name {
			t.Errorf("the deletion: removed %v, %v", stream.gone, err)
		}
		if err := s.Triggers.store.PutDocument(t.Context(), state.TriggersOf("acme"), "t"+statusSuffix, []byte(`{"dead": 3}`)); err != nil {
			t.Fatal(err)
		}
		put("B", api.FromAll, 2)
		if status, _, err := s.Triggers.status(t.Context(), "acme", "t"); err != nil || status.Dead != 0 {
			t.Errorf("status of a trigger that was put again: %+v, %v", status, err)
		}
		if err := s.Triggers.removeAll(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
		if marks, err := s.Triggers.store.Documents(t.Context(), state.TriggersDocument); err != nil || len(marks) > 0 {
			t.Errorf("marks of tenants without triggers: %s, %v", marks, err)
		}
	})
}

// A gateway that creates the consumer of a trigger while another deletes or replaces the trigger removes it again.
func TestConsumerOfATriggerThatIsGone(t *testing.T) {
	for name, change := range map[string]func(s *taking) error{
		"deleted": func(s *taking) error { return s.Triggers.Delete(s.t.Context(), s.c, "t") },
		"replaced": func(s *taking) error {
			settings := api.TriggerSettings{Stream: "ORDERS", From: api.FromAll, Run: &api.HookRun{Agent: "a"}}
			_, _, err := s.Triggers.Put(s.t.Context(), s.c, "t", settings)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stream := &consumers{}
				s := newTaking(t, stream)
				r := s.runner(api.TriggerSettings{Run: &api.HookRun{Agent: "a"}})
				stream.opened = func() {
					stream.opened = nil
					if err := change(s); err != nil {
						t.Error(err)
					}
					stream.gone = nil // by the change
				}
				_, err := r.open(t.Context())
				if want := "ORDERS " + stream.open[0].Name; err == nil || len(stream.gone) != 1 || stream.gone[0] != want {
					t.Errorf("removed %v, want %s; %v", stream.gone, want, err)
				}
			})
		})
	}
}

// The runs of a message and of a delivery belong to the trace of their sender.
func TestTraceOfASender(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	synctest.Test(t, func(t *testing.T) {
		s := newTaking(t, &orders{})
		r := s.runner(api.TriggerSettings{Run: &api.HookRun{Agent: "a"}})
		r.take(t.Context(), &traced{&seen{id: "ORDERS:1:1", subject: "orders", body: `{}`, deliveries: 1}, parent})
		m, err := compileMapping(sourceHook, "", &api.HookRun{Agent: "a"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		e := hookin.Event{ID: "d", Body: map[string]any{}}
		d := delivery{tenant: "acme", name: "h", trace: parent, Event: e, mapping: m, values: evaluationOf(e)}
		if _, err := s.Triggers.deliver(t.Context(), s.c, d); err != nil {
			t.Fatal(err)
		}
		page, err := s.Triggers.store.List(t.Context(), state.Filter{Tenant: "acme"})
		if err != nil || len(page.Runs) != 2 {
			t.Fatalf("%d runs, %v", len(page.Runs), err)
		}
		for _, st := range page.Runs {
			if st.TraceSpan != parent {
				t.Errorf("a run of %v belongs to %q", st.Metadata, st.TraceSpan)
			}
		}
	})
}

// traced is a message with a trace.
type traced struct {
	*seen

	parent string
}

func (m *traced) Headers() map[string][]string { return map[string][]string{"traceparent": {m.parent}} }

// The settings of hooks and triggers are accepted up to their limits, and refused beyond; they must not set the
// metadata that Turnpike sets.
func TestLimitsOfMappings(t *testing.T) {
	t.Parallel()
	run := func(keys ...string) *api.HookRun {
		r := &api.HookRun{Agent: "a", Metadata: map[string]string{}}
		for _, key := range keys {
			r.Metadata[key] = "'x'"
		}
		return r
	}
	many := func(n int) (keys []string) {
		for i := range n {
			keys = append(keys, fmt.Sprint("k", i))
		}
		return keys
	}
	secrets := func(n int) (refs api.SecretReferences) {
		for i := range n {
			refs = append(refs, fmt.Sprint(secretScheme, "S", i))
		}
		return refs
	}
	for name, test := range map[string]struct {
		run     *api.HookRun
		secrets int
		rate    int
		refused string // part of the error of both, or of hooks only if secrets are wrong
	}{
		"metadata":          {run(many(maxHookMetadata)...), 1, 0, ""},
		"much metadata":     {run(many(maxHookMetadata + 1)...), 1, 0, "run.metadata has 21"},
		"a long key":        {run(strings.Repeat("k", maxKey)), 1, 0, ""},
		"a longer key":      {run(strings.Repeat("k", maxKey+1)), 1, 0, "use 1 to 255"},
		"an empty key":      {run(""), 1, 0, "use 1 to 255"},
		"the delivery":      {run(metadataDelivery), 1, 0, "reserved"},
		"three secrets":     {run(), maxHookSecrets, 0, ""},
		"four secrets":      {run(), maxHookSecrets + 1, 0, "secret has 4"},
		"no secret":         {run(), 0, 0, "secret is missing"},
		"a high rate":       {run(), 1, maxRate, ""},
		"a higher rate":     {run(), 1, maxRate + 1, "max_per_minute"},
		"a negative rate":   {run(), 1, -1, "max_per_minute"},
		"a run of no agent": {&api.HookRun{}, 1, 0, "run.agent"},
	} {
		_, hook := compileHook(api.HookSettings{Verify: "github", Secret: secrets(test.secrets), Run: test.run, MaxPerMinute: test.rate})
		_, trigger := (&Triggers{}).compile(api.TriggerSettings{Stream: "S", Run: test.run, MaxPerMinute: test.rate})
		if strings.Contains(test.refused, "secret") {
			trigger = hook
		}
		for of, err := range map[string]error{"hook": hook, "trigger": trigger} {
			if (err != nil) != (test.refused != "") || err != nil && !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%s of a %s: %v, want %q", name, of, err, test.refused)
			}
		}
	}
	_, hook := compileHook(api.HookSettings{Verify: "github", Secret: secrets(1), Run: run("hook")})
	_, trigger := (&Triggers{}).compile(api.TriggerSettings{Stream: "S", Run: run("trigger")})
	if hook == nil || trigger == nil {
		t.Errorf("the name of the receiver is accepted as metadata: %v", errors.Join(hook, trigger))
	}
}
