package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A run that was submitted with a webhook has its end delivered there, signed.
func TestWebhook(t *testing.T) {
	t.Parallel()
	const key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	got := make(chan webhook.Body, 4)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		hook, err := standardwebhooks.NewWebhook(key)
		if err != nil {
			t.Error(err)
			return
		}
		if err := hook.Verify(body, r.Header); err != nil {
			t.Error(err)
		}
		var event webhook.Body
		if err := json.Unmarshal(body, &event); err != nil {
			t.Error(err)
		}
		got <- event
	}))
	t.Cleanup(receiver.Close)
	s := newDeployment(t, func(cfg *worker.Config) {
		cfg.WebhookClient = receiver.Client()
		cfg.Getenv = func(name string) string {
			if name == "TURNPIKE_SECRET_EVENTS" {
				return key
			}
			return ""
		}
	})
	request := func(agent string, events ...state.EntryType) api.SubmitRequest {
		return api.SubmitRequest{Agent: agent, Input: api.Text("x"), Webhook: &state.Webhook{URL: receiver.URL, Events: events, Secret: state.SecretReferences{"secret://EVENTS"}}}
	}
	run, err := s.client.Submit(t.Context(), request("hello"), "")
	if err != nil {
		t.Fatal(err)
	}
	if e := <-got; e.Type != state.EntryFinished || string(e.Data.RunID) != run.ID || e.Data.Output == nil || *e.Data.Output != "hi there" || e.Data.Sequence != 1 {
		t.Errorf("delivered %+v", e)
	}

	// A run that requests events for its waits gets them delivered first.
	run, err = s.client.Submit(t.Context(), request("gated", state.EntryWaiting, state.EntryFinished), "")
	if err != nil {
		t.Fatal(err)
	}
	waits := <-got
	if waits.Type != state.EntryWaiting || waits.Data.Status != state.Waiting || waits.Data.Waiting == nil || waits.Data.Waiting.Reason != state.WaitingApproval || waits.Data.Sequence != 1 {
		t.Fatalf("delivered %+v", waits)
	}
	if _, err := s.client.Signal(t.Context(), run.ID, api.SignalRequest{Approvals: []api.Approval{{CallID: "c1", Decision: "approve"}}}); err != nil {
		t.Fatal(err)
	}
	if e := <-got; e.Type != state.EntryFinished || e.Data.Status != state.Completed || e.Data.Sequence != 2 {
		t.Errorf("delivered %+v", e)
	}
}

// The events of a webhook without a secret are delivered without a signature.
func TestUnsignedWebhook(t *testing.T) {
	t.Parallel()
	got := make(chan http.Header, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
	t.Cleanup(receiver.Close)
	s := newDeployment(t, func(cfg *worker.Config) { cfg.WebhookClient = receiver.Client() })
	code, _, run := s.call("POST", "/v1/runs", `{"agent":"hello","input":"x","webhook":{"url":"`+receiver.URL+`","events":["run.finished"]}}`)
	if code != http.StatusAccepted {
		t.Fatalf("%d %v", code, run)
	}
	h := <-got
	if _, signed := h["Webhook-Signature"]; signed || h.Get("Webhook-Id") == "" || h.Get("Webhook-Timestamp") == "" || h.Get("Ce-Subject") != run["id"] {
		t.Errorf("delivered with %v, want the headers of run %v and no signature", h, run["id"])
	}
}

// An event that the receiver refuses with 410 is a dead letter, and a replay delivers it.
func TestWebhookReplay(t *testing.T) {
	t.Parallel()
	var mended atomic.Bool
	got := make(chan string, 4)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !mended.Load() {
			w.WriteHeader(http.StatusGone)
		}
		got <- r.Header.Get("webhook-id")
	}))
	t.Cleanup(receiver.Close)
	s := newDeployment(t, func(cfg *worker.Config) {
		cfg.WebhookClient, cfg.Getenv = receiver.Client(), func(string) string { return "a secret" }
	})
	request := api.SubmitRequest{Agent: "hello", Input: api.Text("x"), Webhook: &state.Webhook{URL: receiver.URL, Secret: state.SecretReferences{"secret://EVENTS"}}}
	run, err := s.client.Submit(t.Context(), request, "")
	if err != nil {
		t.Fatal(err)
	}
	id := <-got
	var letters api.Page[api.DeadLetter]
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ; len(letters.Items) == 0; <-tick.C {
		if letters, err = s.client.Dead(t.Context(), 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	l := letters.Items[0]
	if l.Kind != "webhook" || l.Status != api.DeadOpen || l.RunID == nil || *l.RunID != run.ID || !strings.Contains(l.Cause, "410") {
		t.Errorf("the dead letter is %+v", l)
	}
	mended.Store(true)
	if _, err := s.client.Replay(t.Context(), l.Seq); err != nil {
		t.Fatal(err)
	}
	if again := <-got; again != id {
		t.Errorf("the replay delivers %s, want %s", again, id)
	}
	testbed.Eventually(t, "the letter after the delivery", func() error {
		l, err = s.client.DeadLetter(t.Context(), l.Seq)
		if err == nil && (l.Status != api.DeadReplayed || l.Replay.RunID != run.ID || l.Replay.At.IsZero()) {
			err = fmt.Errorf("%s, replay %+v", l.Status, l.Replay)
		}
		return err
	})
	if events, err := s.client.PendingEvents(t.Context(), "", 0); err != nil || len(events.Items) > 0 {
		t.Errorf("pending after the delivery: %+v, %v", events.Items, err)
	}
	if _, err := s.client.Replay(t.Context(), l.Seq); err != nil { // explicitly once more
		t.Fatal(err)
	}
	if again := <-got; again != id {
		t.Errorf("the second replay delivers %s, want %s", again, id)
	}
}

// A replay that fails makes another letter of the event, and closes the letters before it for good: one letter of an event
// is open at most, and replaying all that are open delivers it once.
func TestFailedWebhookReplay(t *testing.T) {
	t.Parallel()
	var mended atomic.Bool
	var delivered atomic.Int64
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if mended.Load() {
			delivered.Add(1)
		} else {
			w.WriteHeader(http.StatusGone)
		}
	}))
	t.Cleanup(receiver.Close)
	s := newDeployment(t, func(cfg *worker.Config) {
		cfg.WebhookClient, cfg.Getenv = receiver.Client(), func(string) string { return "a secret" }
		cfg.WebhookTimes = webhook.Times{Look: 5 * time.Millisecond, FirstPause: 20 * time.Millisecond}
	})
	request := api.SubmitRequest{Agent: "hello", Input: api.Text("x"), Webhook: &state.Webhook{URL: receiver.URL, Secret: state.SecretReferences{"secret://EVENTS"}}}
	if _, err := s.client.Submit(t.Context(), request, ""); err != nil {
		t.Fatal(err)
	}
	// statuses waits until the letters have these statuses, and returns them.
	statuses := func(want ...api.DeadStatus) (letters []api.DeadLetter) {
		t.Helper()
		testbed.Eventually(t, "the letters", func() error {
			letters = s.letters(len(want))
			var got []api.DeadStatus
			for _, l := range letters {
				got = append(got, l.Status)
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("they are %v, want %v", got, want)
			}
			return nil
		})
		return letters
	}
	letters := statuses(api.DeadOpen)
	for _, want := range [][]api.DeadStatus{{api.DeadClosed, api.DeadOpen}, {api.DeadClosed, api.DeadClosed, api.DeadOpen}} {
		if _, err := s.client.Replay(t.Context(), letters[len(letters)-1].Seq); err != nil {
			t.Fatal(err)
		}
		letters = statuses(want...)
	}
	mended.Store(true)
	for range 2 { // before and after the last letter is replayed
		for _, l := range letters[:2] {
			_, err := s.client.Replay(t.Context(), l.Seq)
			refused(t, "a replay of an earlier letter", err, api.CodeNotReplayable)
		}
		if delivered.Load() == 0 {
			if _, err := s.client.Replay(t.Context(), letters[2].Seq); err != nil {
				t.Fatal(err)
			}
			statuses(api.DeadClosed, api.DeadClosed, api.DeadReplayed)
		}
	}
	if n := delivered.Load(); n != 1 {
		t.Errorf("%d deliveries, want 1", n)
	}
}

// A run uses the webhook of its submission, or else of its agent, or else of its tenant. A fork uses the
// webhooks of a run submitted without one. A run of a draft uses that of its submission only.
func TestWebhookOfAgentAndTenant(t *testing.T) {
	t.Parallel()
	got := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got <- r.URL.Path + " " + strings.TrimPrefix(r.Header.Get("ce-subject"), "run_")
	}))
	t.Cleanup(receiver.Close)
	s := newDeployment(t, func(cfg *worker.Config) {
		cfg.WebhookClient, cfg.Getenv = receiver.Client(), func(string) string { return "a secret" }
	})
	at := func(path string) *state.Webhook {
		return &state.Webhook{URL: receiver.URL + path, Secret: state.SecretReferences{"secret://EVENTS"}}
	}
	if _, err := s.client.PutTenant(t.Context(), "default", api.TenantSettings{Webhook: at("/tenant")}); err != nil {
		t.Fatal(err)
	}
	const model = "model: {provider: scripted, responses: [{text: Hi.}, {text: Again.}]}\n"
	definition := model + "webhook: {url: " + receiver.URL + "/agent, secret: secret://EVENTS}\n"
	for name, text := range map[string]string{"own": definition, "plain": model} {
		if _, err := s.client.PutAgent(t.Context(), name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(path, run string) {
		t.Helper()
		if have := <-got; have != path+" "+strings.TrimPrefix(run, "run_") {
			t.Errorf("delivered %s, want %s of %s", have, path, run)
		}
	}
	submit := func(r api.SubmitRequest) api.Run {
		t.Helper()
		r.Input = api.Text("x")
		run, err := s.client.Submit(t.Context(), r, "")
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	want("/run", submit(api.SubmitRequest{Agent: "own", Webhook: at("/run")}).ID)
	run := submit(api.SubmitRequest{Agent: "own"})
	want("/agent", run.ID)
	want("/tenant", submit(api.SubmitRequest{Agent: "plain"}).ID)
	turn := 0
	fork, err := s.client.Fork(t.Context(), run.ID, api.ForkRequest{Turn: &turn, Input: api.Text("y")})
	if err != nil {
		t.Fatal(err)
	}
	want("/agent", fork.ID)
	batch, err := s.client.SubmitBatch(t.Context(), api.BatchRequest{Runs: []api.SubmitRequest{{Agent: "plain", Input: api.Text("x")}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	want("/tenant", batch.RunIDs[0])

	draft, err := s.client.SubmitDraft(t.Context(), api.DraftRequest{Definition: api.Text("name: own\n" + definition), SubmitRequest: api.SubmitRequest{Input: api.Text("x")}}, "")
	if err != nil {
		t.Fatal(err)
	}
	if done, err := s.client.Wait(t.Context(), draft.ID); err != nil || done.Status != "completed" {
		t.Fatalf("%+v, %v", done, err)
	}
	want("/run", submit(api.SubmitRequest{Agent: "own", Webhook: at("/run")}).ID) // and not the draft's
}

// An invalid webhook is refused with the location and the remedy.
func TestWebhookRefusals(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	for webhook, want := range map[string]string{
		`{"url":"h","secret":"secret://X"}`:                                               "webhook.url",
		`{"url":"ftp://example.com","secret":"secret://X"}`:                               "webhook.url",
		`{"url":"https://user:word@example.com","secret":"secret://X"}`:                   "webhook.url has a user",
		`{"secret":"secret://X"}`:                                                         "webhook.url",
		`{"url":"https://example.com","secret":""}`:                                       "webhook.secret",
		`{"url":"https://example.com","secret":"my secret"}`:                              "never the secret itself",
		`{"url":"https://example.com","secret":["secret://A","secret://B","secret://C"]}`: "webhook.secret",
		`{"url":"https://example.com","secret":"secret://X","events":["run.done"]}`:       "run.finished or run.waiting",
		`{"url":"https://example.com","secret":7}`:                                        "neither a string nor a list",
	} {
		code, _, p := s.call("POST", "/v1/runs", `{"agent":"hello","input":"x","webhook":`+webhook+`}`)
		if detail, _ := p["detail"].(string); code != http.StatusBadRequest || !strings.Contains(detail, want) {
			t.Errorf("%s: %d %s, want %q", webhook, code, detail, want)
		}
	}
}
