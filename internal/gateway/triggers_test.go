package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/streamin"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// triggered is a set of gateways that share a store, and a JetStream server with users' streams.
type triggered struct {
	*guarded

	js jetstream.JetStream
}

func newTriggered(t *testing.T, gateways int) *triggered {
	t.Helper()
	return newTriggeredOn(t, memstore.New(memstore.Config{}), gateways)
}

func newTriggeredOn(t *testing.T, inner state.Store, gateways int) *triggered {
	t.Helper()
	nc := testbed.NATS(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	streams, err := streamin.New(nc, "", "turnpike")
	if err != nil {
		t.Fatal(err)
	}
	store, b := &countingStore{Store: inner}, membus.New()
	keys := access.NewKeys(store)
	s := &triggered{&guarded{t: t, store: store, keys: keys, bus: b}, js}
	for range gateways {
		g, err := gateway.New(store, b, gateway.Config{Auth: access.Chain{Keys: keys}, Streams: impatient{streams}, HookSecret: func(string, string, policy.Policy) (string, error) { return "a secret", nil }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := g.Run(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
		t.Cleanup(func() { stop(); running.Wait() })
		server := httptest.NewServer(g.Handler())
		t.Cleanup(server.Close)
		s.url = server.URL
	}
	return s
}

// stream creates a stream with the subjects orders.> or the given ones.
func (s *triggered) stream(name string, subjects ...string) {
	s.t.Helper()
	if len(subjects) == 0 {
		subjects = []string{"orders.>"}
	}
	if _, err := s.js.CreateStream(s.t.Context(), jetstream.StreamConfig{Name: name, Subjects: subjects}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *triggered) publish(subject, body string, headers ...string) {
	s.t.Helper()
	m := nats.NewMsg(subject)
	m.Data = []byte(body)
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	if _, err := s.js.PublishMsg(s.t.Context(), m); err != nil {
		s.t.Fatal(err)
	}
}

// tenant stores a tenant with an agent a that may read streams, and returns a client of its author.
func (s *triggered) tenant(name string, streams ...api.TenantStream) *api.Client {
	s.t.Helper()
	if _, err := s.client("*", access.Admin).PutTenant(s.t.Context(), name, api.TenantSettings{Streams: streams}); err != nil {
		s.t.Fatal(err)
	}
	author := s.client(name, access.Author)
	if _, err := author.PutAgent(s.t.Context(), "a", []byte(talker)); err != nil {
		s.t.Fatal(err)
	}
	return author
}

func (s *triggered) put(c *api.Client, name, settings string) api.Trigger {
	s.t.Helper()
	t, err := s.tryPut(c, name, settings)
	if err != nil {
		s.t.Fatal(err)
	}
	return t
}

func (s *triggered) tryPut(c *api.Client, name, settings string) (api.Trigger, error) {
	s.t.Helper()
	var t api.TriggerSettings
	if err := api.Decode([]byte(settings), &t); err != nil {
		s.t.Fatal(err)
	}
	return c.PutTrigger(s.t.Context(), name, t)
}

// each calls fn with the runs of a tenant.
func (s *triggered) each(tenant string, fn func(state.State)) {
	s.t.Helper()
	for cursor := ""; ; {
		page, err := s.store.List(s.t.Context(), state.Filter{Tenant: tenant, Cursor: cursor, Limit: 500})
		if err != nil {
			s.t.Fatal(err)
		}
		for _, st := range page.Runs {
			fn(st)
		}
		if cursor = page.Next; cursor == "" {
			return
		}
	}
}

// runs returns the metadata of a tenant's runs, by delivery id.
func (s *triggered) runs(tenant string) map[string]map[string]string {
	s.t.Helper()
	found := map[string]map[string]string{}
	s.each(tenant, func(st state.State) {
		if _, twice := found[st.Metadata["delivery"]]; twice {
			s.t.Errorf("two runs of delivery %s", st.Metadata["delivery"])
		}
		found[st.Metadata["delivery"]] = st.Metadata
	})
	return found
}

const orders = `{"stream": "ORDERS", "from": "all", "max_per_minute": 60000, "run": {"agent": "a", "input": "'Order ' + string(event.n)", "metadata": {"subject": "subject", "kind": "headers.kind"}}}`

// Each message creates one run, whichever gateway takes it, with the values of the expressions.
func TestTriggerMakesOneRun(t *testing.T) {
	t.Parallel()
	s := newTriggered(t, 2)
	s.stream("ORDERS")
	s.publish("orders.old", `{"n":0}`, "Kind", "old")
	c := s.tenant("default")
	made := s.put(c, "orders", orders)
	if made.From != api.FromAll || made.UpdatedBy == "" {
		t.Errorf("stored: %+v", made)
	}
	s.put(c, "new", strings.Replace(orders, `"all"`, `"new"`, 1))
	const messages = 200
	for i := 1; i < messages; i++ {
		s.publish("orders.eu", fmt.Sprintf(`{"n":%d}`, i), "Kind", "web")
	}
	s.idle(c, "orders")
	s.idle(c, "new")
	byTrigger := map[string]int{}
	s.each("default", func(st state.State) {
		byTrigger[st.Metadata["trigger"]]++
		byTrigger[st.Metadata["trigger"]+" "+st.Metadata["delivery"]]++
		if st.Metadata["subject"] == "orders.old" && (st.Metadata["trigger"] != "orders" || st.Metadata["kind"] != "old") {
			t.Errorf("the first message created a run with %v", st.Metadata)
		}
		log, err := s.store.Log(t.Context(), st.ID, 0, 1)
		if err != nil || log[0].By == nil || !strings.HasPrefix(log[0].By.Principal, "trigger:") || log[0].By.Via != "trigger" || !strings.HasPrefix(log[0].Messages[0].Parts[0].Text, "Order ") {
			t.Fatalf("log: %+v, %v", log, err)
		}
	})
	if byTrigger["orders"] != messages || byTrigger["new"] != messages-1 || len(byTrigger) != 2+2*messages-1 {
		t.Errorf("runs: %d of all, %d of new, %d deliveries", byTrigger["orders"], byTrigger["new"], len(byTrigger)-2)
	}
	audit, err := s.client("default", access.Admin).Audit(t.Context(), "", 0)
	if err != nil || !slices.ContainsFunc(audit.Items, func(a api.AuditEntry) bool {
		return a.Action == "trigger.deliver" && strings.HasPrefix(a.By.Principal, "trigger:")
	}) {
		t.Errorf("the audit lacks the deliveries: %v", err)
	}
	// A trigger that is deleted and stored again rereads all messages, without further effect.
	if err := c.DeleteTrigger(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if err := c.DeleteTrigger(t.Context(), "new"); err != nil {
		t.Fatal(err)
	}
	s.untilNoConsumers("ORDERS")
	s.put(c, "orders", orders)
	s.idle(c, "orders")
	if n, err := s.store.Counts(t.Context()); err != nil || n[state.Queued] != 2*messages-1 {
		t.Errorf("runs: %v, %v", n, err)
	}
	// A stream that is deleted and created again has new messages.
	if err := s.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
		t.Fatal(err)
	}
	s.stream("ORDERS")
	s.publish("orders.eu", `{"n":1}`, "Kind", "web")
	testbed.Eventually(t, "the message of the new stream", func() error {
		if n, err := s.store.Counts(t.Context()); err != nil || n[state.Queued] != 2*messages {
			return fmt.Errorf("runs: %v, %w", n, err)
		}
		return nil
	})
}

// consumers returns the names of the consumers of a stream.
func (s *triggered) consumers(stream string) []string {
	s.t.Helper()
	st, err := s.js.Stream(s.t.Context(), stream)
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	list := st.ConsumerNames(s.t.Context())
	for name := range list.Name() {
		names = append(names, name)
	}
	if err := list.Err(); err != nil {
		s.t.Fatal(err)
	}
	return names
}

// untilNoConsumers waits until the consumers of deleted triggers are gone: a late gateway may create one, and
// removes it when it finds the trigger deleted.
func (s *triggered) untilNoConsumers(stream string) {
	s.t.Helper()
	testbed.Eventually(s.t, "consumers of deleted triggers", func() error {
		if left := s.consumers(stream); len(left) > 0 {
			return fmt.Errorf("there are %v", left)
		}
		return nil
	})
}

// A tenant can read only the streams and subjects that its settings list, and never those of Turnpike.
func TestTriggersOfHostileTenant(t *testing.T) {
	t.Parallel()
	s := newTriggered(t, 1)
	s.stream("ORDERS")
	s.stream("SHARED", "shared.>")
	s.stream("TURNPIKE_STATE", "turnpike.state.>")
	s.stream("OTHER_STATE", "other.state.>")
	if _, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER_TURNS", Subjects: []string{"other.turn.>"}, Retention: jetstream.WorkQueuePolicy}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "COPY", Mirror: &jetstream.StreamSource{Name: "TURNPIKE_STATE"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "MERGED", Sources: []*jetstream.StreamSource{{Name: "COPY"}, {Name: "ORDERS"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "users"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.js.CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "files"}); err != nil {
		t.Fatal(err)
	}
	none := s.tenant("none")
	acme := s.tenant("acme", api.TenantStream{Name: "*", Subjects: []string{"shared.acme.>", "shared.all"}}, api.TenantStream{Name: "TURNPIKE_STATE"}, api.TenantStream{Name: "OTHER_*"}, api.TenantStream{Name: "KV_users"})
	byDefault := s.client("default", access.Author)
	settings := func(stream string, subjects ...string) string {
		list := ""
		if len(subjects) > 0 {
			list = `"subjects": ["` + strings.Join(subjects, `","`) + `"], `
		}
		return `{"stream": "` + stream + `", ` + list + `"run": {"agent": "a"}}`
	}
	unknown := ""
	for _, c := range []struct {
		name     string
		client   *api.Client
		settings string
		code     string // empty: allowed
	}{
		{"no list", none, settings("ORDERS"), api.CodeNotPermitted},
		{"no list, and no stream", none, settings("NOWHERE"), api.CodeNotPermitted},
		{"the default tenant beside others", byDefault, settings("ORDERS"), api.CodeNotPermitted},
		{"all of a stream that is listed in part", acme, settings("SHARED"), api.CodeNotPermitted},
		{"too much", acme, settings("SHARED", "shared.>"), api.CodeNotPermitted},
		{"a sibling", acme, settings("SHARED", "shared.acme.x", "shared.other.x"), api.CodeNotPermitted},
		{"a wildcard beside", acme, settings("SHARED", "shared.*.x"), api.CodeNotPermitted},
		{"another stream", acme, settings("ORDERS", "orders.x"), api.CodeNotPermitted},
		{"Turnpike's", acme, settings("TURNPIKE_STATE"), api.CodeNotPermitted},
		{"of another prefix", acme, settings("OTHER_STATE"), api.CodeNotPermitted},
		{"turns of another prefix", acme, settings("OTHER_TURNS"), api.CodeNotPermitted},
		{"a bucket", acme, settings("KV_users"), api.CodeNotPermitted},
		{"objects", acme, settings("OBJ_files", "shared.acme.x"), api.CodeNotPermitted},
		{"a mirror", acme, settings("COPY", "shared.acme.x"), api.CodeNotPermitted},
		{"a mirror's copy", acme, settings("MERGED", "shared.acme.x"), api.CodeNotPermitted},
		{"a stream that is not there", acme, settings("NOWHERE", "shared.all"), api.CodeInvalidRequest},
		{"a subject that the stream lacks", acme, settings("ORDERS", "shared.all"), api.CodeInvalidRequest},
		{"what is listed", acme, settings("SHARED", "shared.acme.*", "shared.all"), ""},
	} {
		_, err := s.tryPut(c.client, "x", c.settings)
		p, _ := errors.AsType[*api.Problem](err)
		if (err == nil) != (c.code == "") || p != nil && p.Code != c.code {
			t.Errorf("%s: %v, want %q", c.name, err, c.code)
		}
		if strings.HasPrefix(c.name, "no list") { // the refusal must not reveal which streams exist
			detail := strings.NewReplacer("ORDERS", "S", "NOWHERE", "S").Replace(p.Detail)
			if unknown != "" && unknown != detail {
				t.Errorf("without a list: %q, and %q", unknown, detail)
			}
			unknown = detail
		}
	}
	// The trigger creates runs from allowed subjects. Once the list excludes them, messages wait.
	s.publish("shared.acme.1", `{}`)
	s.publish("shared.other.1", `{}`)
	s.publish("shared.all", `{}`)
	s.idle(acme, "x")
	if runs := s.runs("acme"); len(runs) != 2 {
		t.Errorf("runs: %v", runs)
	}
	s.tenant("acme", api.TenantStream{Name: "SHARED", Subjects: []string{"shared.all"}})
	s.untilError(acme, "x", "shared.acme.*")
	s.publish("shared.acme.2", `{}`)
	if runs := s.runs("acme"); len(runs) != 2 {
		t.Errorf("runs after the list has changed: %v", runs)
	}
	s.tenant("acme", api.TenantStream{Name: "SHARED"})
	s.idle(acme, "x")
	if runs := s.runs("acme"); len(runs) != 3 {
		t.Errorf("runs once the list allows it again: %v", runs)
	}
	for _, names := range [][]string{s.consumers("TURNPIKE_STATE"), s.consumers("OTHER_STATE"), s.consumers("ORDERS"), s.consumers("COPY"), s.consumers("MERGED")} {
		if len(names) > 0 {
			t.Errorf("consumers: %v", names)
		}
	}
	// Deleting the tenant deletes its consumers.
	if err := s.client("*", access.Admin).DeleteTenant(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	s.untilNoConsumers("SHARED")
}

func (s *triggered) untilError(c *api.Client, name, text string) {
	s.t.Helper()
	s.until(c, name, func(st api.TriggerStatus) bool { return strings.Contains(st.LastError, text) })
}

// A message whose expression fails becomes a dead letter, other messages pass it, and a replay
// delivers it once. A message that is too large is not read.
func TestTriggerDeadLetters(t *testing.T) {
	t.Parallel()
	s := newTriggered(t, 1)
	s.stream("ORDERS")
	c := s.tenant("default")
	s.put(c, "orders", orders)
	s.publish("orders.eu", strings.Repeat("x", 1<<20+1), "Kind", "large")
	s.until(c, "orders", func(st api.TriggerStatus) bool { return st.Dead == 1 })
	s.publish("orders.eu", `{}`, "Kind", "bad") // without n
	s.publish("orders.eu", `{"n":1}`, "Kind", "good")
	s.until(c, "orders", func(st api.TriggerStatus) bool { return st.Dead == 2 })
	s.idle(c, "orders")
	if runs := s.runs("default"); len(runs) != 1 {
		t.Fatalf("runs: %v", runs)
	}
	s.untilError(c, "orders", "run.input")
	operator := s.client("default", access.Operator)
	letters, err := operator.Dead(t.Context(), 0, 0)
	if err != nil || len(letters.Items) != 2 {
		t.Fatalf("dead letters: %+v, %v", letters.Items, err)
	}
	large, bad := letters.Items[0], letters.Items[1]
	if strings.Contains(large.Cause, "run.input") { // the large one takes a while to arrive
		large, bad = bad, large
	}
	if large.Kind != "trigger" || large.Status != api.DeadClosed || !strings.Contains(large.Cause, "1048577 bytes") {
		t.Fatalf("dead letter: %+v", large)
	}
	if bad.Status != api.DeadOpen || !strings.Contains(bad.Cause, "run.input") {
		t.Fatalf("dead letter: %+v", bad)
	}
	if _, err := operator.Replay(t.Context(), bad.Seq); err == nil || !strings.Contains(err.Error(), "run.input") {
		t.Errorf("a replay with the same expression: %v", err)
	}
	s.put(c, "orders", strings.Replace(orders, "string(event.n)", "(has(event.n) ? string(event.n) : '?')", 1))
	for range 2 {
		l, err := operator.Replay(t.Context(), bad.Seq)
		if err != nil || l.Status != api.DeadReplayed || l.Replay == nil {
			t.Errorf("a replay: %+v, %v", l, err)
		}
	}
	if runs := s.runs("default"); len(runs) != 2 {
		t.Errorf("runs: %v", runs)
	}
}

// With a signal, the messages with one key form one conversation, in order.
func TestTriggerContinuesARun(t *testing.T) {
	t.Parallel()
	s := newTriggered(t, 2)
	s.stream("CHAT", "chat.>")
	c := s.tenant("default")
	s.put(c, "chat", `{"stream": "CHAT", "filter": "!subject.endsWith('.bot')", "max_per_minute": 60000,
		"run": {"agent": "a", "input": "event.text", "key": "event.thread"}, "signal": {"message": "event.text"}}`)
	const messages = 30
	for i := range messages {
		s.publish("chat.user", fmt.Sprintf(`{"thread":"t","text":"%d"}`, i))
		s.publish("chat.bot", `{}`)
	}
	s.idle(c, "chat")
	page, err := s.client("default", access.Viewer).List(t.Context(), nil)
	if err != nil || len(page.Items) != 1 {
		t.Fatalf("runs: %+v, %v", page.Items, err)
	}
	pending, err := s.pending(page.Items[0].ID)
	if err != nil || len(pending) != messages-1 {
		t.Fatalf("%d signals, %v", len(pending), err)
	}
	for i, sig := range pending {
		if want := fmt.Sprint(i + 1); sig.Message.Parts[0].Text != want || sig.By.Principal != "trigger:chat" {
			t.Errorf("signal %d says %s by %s", i, sig.Message.Parts[0].Text, sig.By.Principal)
		}
	}
	// A user who knows the ids of deliveries cannot claim them.
	run := page.Items[0].ID
	for _, id := range []string{pending[0].ID, pending[0].Key()} {
		said := api.SignalRequest{SignalID: id, Message: []byte(`"claim"`)}
		if _, err := s.client("default", access.Submitter).Signal(t.Context(), run, said); err != nil {
			t.Error(err)
		}
	}
	if pending, err = s.pending(run); err != nil || len(pending) != messages-1+2 {
		t.Errorf("%d signals with those of a user, %v", len(pending), err)
	}
}

// Messages wait while the tenant is suspended or the trigger paused, and none is lost. Text that is not JSON
// also is an event.
func TestTriggerPauses(t *testing.T) {
	t.Parallel()
	s := newTriggered(t, 2)
	s.stream("ORDERS")
	acme := s.tenant("acme", api.TenantStream{Name: "ORDERS"})
	settings := `{"stream": "ORDERS", "subjects": ["orders.*"], "run": {"agent": "a", "metadata": {"text": "event"}}}`
	paused := strings.Replace(settings, `{`, `{"paused": true, `, 1)
	s.put(acme, "text", settings)
	s.publish("orders.x", "one")
	s.idle(acme, "text")
	s.put(acme, "text", paused)
	s.publish("orders.x", "two")
	s.put(acme, "text", settings)
	s.idle(acme, "text")
	admin := s.client("*", access.Admin)
	if _, err := admin.PutTenant(t.Context(), "acme", api.TenantSettings{Suspended: true, Streams: []api.TenantStream{{Name: "ORDERS"}}}); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, "suspended", func() error {
		if _, err := s.tryPut(acme, "other", settings); err == nil {
			return errors.New("it may store triggers")
		}
		return nil
	})
	s.publish("orders.x", "three")
	s.publish("orders.x.y", "not selected")
	s.tenant("acme", api.TenantStream{Name: "ORDERS"})
	s.idle(acme, "text")
	texts := map[string]bool{}
	for _, m := range s.runs("acme") {
		texts[m["text"]] = true
	}
	if len(texts) != 3 || !texts["one"] || !texts["two"] || !texts["three"] {
		t.Errorf("runs of %v", texts)
	}
}

// A tenant with a long backlog in many triggers does not delay others.
func TestTriggersTakeTurns(t *testing.T) {
	t.Parallel()
	s := newTriggered(t, 1)
	s.stream("ORDERS")
	s.stream("SMALL", "small.>")
	loud, quiet := s.tenant("loud", api.TenantStream{Name: "ORDERS"}), s.tenant("quiet", api.TenantStream{Name: "SMALL"})
	const messages, triggers = 200, 12
	for range messages {
		if _, err := s.js.PublishAsync("orders.x", []byte(`{"n":1}`)); err != nil {
			t.Fatal(err)
		}
	}
	<-s.js.PublishAsyncComplete()
	for i := range triggers {
		s.put(loud, fmt.Sprint("t", i), `{"stream": "ORDERS", "from": "all", "max_per_minute": 60000, "run": {"agent": "a"}}`)
	}
	s.put(quiet, "t", `{"stream": "SMALL", "run": {"agent": "a"}}`)
	s.publish("small.x", "x")
	s.idle(quiet, "t")
	var made time.Time
	s.each("quiet", func(st state.State) { made = st.CreatedAt.Time })
	before := 0 // counted when the other tenant may have all of its runs
	s.each("loud", func(st state.State) {
		if st.CreatedAt.Before(made) {
			before++
		}
	})
	if made.IsZero() || before >= messages*triggers {
		t.Errorf("the other tenant waited for all of %d, its run was created at %v", before, made)
	}
}

// Trigger settings are validated when they are stored.
func TestTriggerSettings(t *testing.T) {
	t.Parallel()
	s := newTriggered(t, 1)
	s.stream("ORDERS")
	if _, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "QUEUE", Subjects: []string{"queue.>"}, Retention: jetstream.WorkQueuePolicy}); err != nil {
		t.Fatal(err)
	}
	c := s.tenant("default")
	run := `"run": {"agent": "a"}`
	for settings, want := range map[string]string{
		`{"run": {"agent": "a"}}`:                                                                   "stream",
		`{"stream": "a.b", ` + run + `}`:                                                            "letters, digits",
		`{"stream": "ORDERS"}`:                                                                      "run and signal are both missing",
		`{"stream": "ORDERS", "from": "old", ` + run + `}`:                                          "use new or all",
		`{"stream": "ORDERS", "subjects": ["a b"], ` + run + `}`:                                    "subjects[0]",
		`{"stream": "ORDERS", "subjects": ["orders.>.x"], ` + run + `}`:                             "subjects[0]",
		`{"stream": "ORDERS", "subjects": ["bills.x"], ` + run + `}`:                                "does not store the subject bills.x",
		`{"stream": "ORDERS", "subjects": ["orders.>", "orders.x"], ` + run + `}`:                   "overlaps",
		`{"stream": "ORDERS", "max_per_minute": 60001, ` + run + `}`:                                "max_per_minute",
		`{"stream": "ORDERS", "filter": "event.", ` + run + `}`:                                     "filter",
		`{"stream": "ORDERS", "run": {"agent": "a", "metadata": {"trigger": "'x'"}}}`:               "is reserved for Turnpike",
		`{"stream": "ORDERS", "run": {"agent": "a", "input": "nothing"}}`:                           "run.input",
		`{"stream": "QUEUE", "from": "new", ` + run + `}`:                                           "NATS refuses the consumer",
		`{"stream": "ORDERS", "subjects": ["` + strings.Repeat("x", 300) + `"], ` + run + `}`:       "256",
		`{"stream": "ORDERS", "filter": "'` + strings.Repeat("x", 1<<16) + `' == ''", ` + run + `}`: "filter",
	} {
		if _, err := s.tryPut(c, "x", settings); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: %v, want %s", settings, err, want)
		}
	}
	if _, err := c.Trigger(t.Context(), "x"); err == nil {
		t.Error("a refused trigger was stored")
	}
	if _, err := s.tryPut(c, "X", `{"stream": "ORDERS", `+run+`}`); err == nil {
		t.Error("a name in capitals is accepted")
	}
	s.put(c, "queue", `{"stream": "QUEUE", "from": "all", `+run+`}`)
	for i := range 199 {
		if err := s.store.PutDocument(t.Context(), state.TriggersOf("default"), fmt.Sprint("t", i), []byte(`{"stream":"ORDERS","paused":true,"id":"x","run":{"agent":"a"}}`)); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.tryPut(c, "more", `{"stream": "ORDERS", `+run+`}`)
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeTooManyTriggers {
		t.Errorf("trigger 201: %v", err)
	}
	// A gateway without NATS has no triggers.
	memory := newGuarded(t)
	_, err = memory.client("default", access.Author).PutTrigger(t.Context(), "x", api.TriggerSettings{Stream: "ORDERS", Run: &api.HookRun{Agent: "a"}})
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeNotSupported {
		t.Errorf("a trigger without NATS: %v", err)
	}
}

// A trigger above its rate waits without delaying others.
func TestTriggerRate(t *testing.T) {
	t.Parallel()
	s := newTriggered(t, 1)
	s.stream("ORDERS")
	c := s.tenant("default")
	const messages = 100
	for i := range messages {
		s.publish("orders.x", fmt.Sprintf(`{"n":%d}`, i), "Kind", "web")
	}
	s.put(c, "slow", strings.Replace(orders, "60000", "1", 1))
	s.put(c, "fast", orders)
	s.idle(c, "fast")
	s.put(c, "later", orders) // in serial order, the slow one would be done at its end
	s.idle(c, "later")
	byTrigger := map[string]int{}
	s.each("default", func(st state.State) { byTrigger[st.Metadata["trigger"]]++ })
	if byTrigger["slow"] == 0 || byTrigger["slow"] > messages/2 || byTrigger["fast"] != messages || byTrigger["later"] != messages {
		t.Errorf("runs: %v", byTrigger)
	}
}
