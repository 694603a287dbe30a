//go:build browser

package browser

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

const idsFile = "testdata/layout/ids.json"

// recordedScreens are the screens of the recorded deployment of which screenshots are taken.
func recordedScreens(t *testing.T) []screen {
	t.Helper()
	text, err := os.ReadFile(idsFile)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	if err := json.Unmarshal(text, &ids); err != nil {
		t.Fatal(err)
	}
	conversation := `.conversation .bubble`
	return []screen{
		{"runs", "#/runs", ".row", nil},
		{"runs-selected", "#/runs?status=waiting", ".row", func(b *browser) {
			b.key("j")
			b.key("x")
			b.shows("what can be done", `document.querySelector(".bulk")`)
		}},
		{"runs-none", "#/runs?agent=nobody", ".state", nil},
		{"approval", "#" + ids["refund"], ".needs", nil},
		{"question", "#" + ids["question"], ".needs", nil},
		{"research", "#" + ids["research"], ".tl-death", nil},
		{"detail", "#" + ids["research"] + "?at=" + ids["call"], ".side .detail", nil},
		{"failed", "#" + ids["failed"], ".outcome.bad", nil},
		{"working", "#" + ids["working"], conversation, nil},
		{"fork", "#" + ids["counted"] + "?fork=1", ".side .fork-changes", func(b *browser) {
			b.write(".side [name=instructions]", "Count in miles, and say how sure you are.")
			b.text(".fork-changes .d-new", "miles")
		}},
		{"beside", "#" + ids["counted"] + "?beside=" + ids["fork"], ".aligned-row", nil},
		{"agents", "#/agents", "[data-agent]", nil},
		{"agent", "#/agents/support", ".figures", nil},
		{"review", "#/agents/booking", ".review .d-new", nil},
		{"editor", "#/new-agent", ".editor-host", func(b *browser) { b.shows("the editor", inEditor+`?.querySelector(".cm-line")`) }},
		{"figures", "#/figures", "[data-series]", nil},
		{"triggers", "#/triggers", "tr[data-trigger]", nil},
		{"trigger", "#/triggers/orders", ".trigger-state", nil},
		{"hooks", "#/hooks", "tr[data-hook]", nil},
		{"hook", "#/hooks/damaged-parcels", "[data-delivery]", func(b *browser) {
			// The port differs each time.
			b.shows("the address", `(() => { const e = document.querySelector(".hook-address code"); if (e) e.textContent = "https://turnpike.example.com/v1/hooks/damaged-parcels"; return e })()`)
		}},
		{"memory", "#/memory?scope=metadata.customer:C-8821", "[data-file]", nil},
		{"memory-file", "#/memory?scope=metadata.customer:C-8821&file=preferences.md", ".memory-text", nil},
		{"evaluations", "#/evaluations", "tr[data-evaluation]", nil},
		{"evaluation", "#/evaluations/eval_nightly", "[data-case]", func(b *browser) { b.unfold() }},
		{"batches", "#/batches", "table.list tbody tr", nil},
		{"batch", "#/batches/" + ids["batch"], ".progress", nil},
		{"workers", "#/workers", "table.list tbody tr", nil},
		{"dead", "#/dead", ".letter", nil},
		{"access", "#/access", "table.list tbody tr", nil},
		{"tokens", "#/access?tab=tokens", ".tokens button", nil},
		{"audit", "#/access?tab=audit", "table.list tbody tr", nil},
	}
}

// recordScreens creates a deployment with a day's work, opens each of its screens, and records the gateway's
// responses.
func recordScreens(t *testing.T) {
	prices, err := filepath.Abs("testdata/layout/prices.yaml")
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"TURNPIKE_AUTH=keys", "TURNPIKE_PRICES=" + prices, "TURNPIKE_SECRET_HOOK=" + hookSecret}
	s, address := start(t, env...)
	key := firstKey(t, address)
	s.client = api.New(s.url, api.WithToken(key))
	serveShop(t, address)
	ids := map[string]string{}
	put := func(name, text string) {
		t.Helper()
		if _, err := s.client.PutAgent(t.Context(), name, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("testdata/layout/agents/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, "testdata/agents/counts.yaml")
	texts := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(f), ".yaml")
		texts[name] = string(text)
		put(name, texts[name])
	}
	put("support", strings.Replace(texts["support"], "amount > 100", "amount > 150", 1))
	put("support", texts["support"])

	for i := range 8 {
		s.reaches(s.submit("sort-mail", fmt.Sprintf("Letter %d: the second cup was broken, too.", i+1), "source", "mail"), "completed")
	}
	ids["failed"] = s.submit("nightly-report", "Write the report of Friday.", "title", "Report of Friday, 13 March")
	s.reaches(ids["failed"], "failed")
	ids["counted"] = s.submit("counts", "How far is it from the harbour to the old lighthouse?")
	s.reaches(ids["counted"], "completed")
	turn, says := 1, "Count in miles."
	fork, err := s.client.Fork(t.Context(), ids["counted"], api.ForkRequest{Turn: &turn, Instructions: &says})
	if err != nil {
		t.Fatal(err)
	}
	ids["fork"] = fork.ID
	s.reaches(fork.ID, "completed")

	ids["research"] = s.submit("research", "What does a berth for a boat of twelve metres cost, and where is it cheap?", "title", "Harbour fees")
	s.killAt(ids["research"], 4)
	env = append(env, "TURNPIKE_NATS_URL="+address)
	s.workers["worker-3"] = s.spawn("worker", env, "--id", "worker-3")
	s.reaches(ids["research"], "completed")
	for e, err := range s.client.Events(t.Context(), ids["research"], 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == "tool.finished" && e.Name == "fetch_page" {
			ids["call"] = e.CallID
		}
		if e.Type == "run.finished" {
			break
		}
	}

	ids["question"] = s.submit("booking", "Book a table for Saturday.", "ticket", "T-2207")
	ids["refund"] = s.submit("support", "Order A-17 came far too late, and two of the cups are broken. I want my money back.", "title", "refund-4711", "customer", "C-8821")
	cancelled := s.submit("booking", "A table, please.")
	for _, id := range []string{ids["question"], ids["refund"], cancelled} {
		s.reaches(id, "waiting")
	}
	if _, err := s.client.Cancel(t.Context(), cancelled, "The guest called: they stay at home."); err != nil {
		t.Fatal(err)
	}
	limited, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "support", Input: []byte(`"Where is my parcel?"`), Limits: &api.SubmitLimits{MaxTurns: 1}}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.reaches(limited.ID, "incomplete")
	var runs []api.SubmitRequest
	for i := range 9 {
		agent := "sort-mail"
		if i%4 == 3 {
			agent = "booking"
		}
		runs = append(runs, api.SubmitRequest{Agent: agent, Input: []byte(fmt.Sprintf(`"Letter %d"`, i))})
	}
	made, err := s.client.SubmitBatch(t.Context(), api.BatchRequest{Runs: runs}, "")
	if err != nil {
		t.Fatal(err)
	}
	ids["batch"] = made.BatchID
	for i, id := range made.RunIDs {
		s.reaches(id, map[bool]string{true: "waiting", false: "completed"}[i%4 == 3])
	}
	ids["working"] = s.submit("import-catalogue", "Read the catalogue of Porcelain & Sons.", "title", "Catalogue, spring")
	eventually(t, "the import is at work", func() error {
		run, err := s.client.Get(t.Context(), ids["working"])
		if err != nil {
			return err
		}
		if run.Status != "running" || run.TurnCount < 2 {
			return errors.New(run.Status)
		}
		return nil
	})
	s.refusals(address)
	s.keeps(address)
	s.delivers()
	s.drafts(texts["booking"])

	end := time.Now()
	text, err := json.MarshalIndent(ids, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(idsFile, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	rec, proxy := record(t, s.url)
	b := open(t, proxy)
	b.goTo("#/runs")
	b.write("input[name=key]", key)
	b.press(".login", "Log in with an API key")
	b.text("#who", "key:")
	script, err := os.ReadFile("testdata/layout/measure.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, sc := range recordedScreens(t) {
		b.show(sc)
		b.still(string(script))
	}
	b.goTo("#/runs")
	b.text(".row", "refund-4711")
	rec.write(t, end)
}

// killAt kills the worker that holds the run once its turn has begun.
func (s *deployment) killAt(run string, turn int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 90*time.Second)
	defer cancel()
	for e, err := range s.client.Events(ctx, run, 0) {
		if err != nil {
			s.t.Fatal(err)
		}
		if e.Type != "turn.started" || e.Turn != turn {
			continue
		}
		if err := s.workers[e.Worker].Process.Kill(); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	s.t.Fatalf("turn %d of %s did not begin", turn, run)
}

// refusals are submissions that are refused.
func (s *deployment) refusals(address string) {
	s.t.Helper()
	nc, err := nats.Connect(address)
	if err != nil {
		s.t.Fatal(err)
	}
	defer nc.Close()
	for _, m := range [][2]string{{"turnpike.submit.supprot", `{"agent": "supprot", "input": "Where is my parcel?"}`}, {"turnpike.submit.support", `{"agent": "support", "inpt": "Hello"}`}} {
		if _, err := nc.Request(m[0], []byte(m[1]), 20*time.Second); err != nil {
			s.t.Fatal(err)
		}
	}
	eventually(s.t, "the refusals are reported", func() error {
		page, err := s.client.Dead(s.t.Context(), 0, 10)
		if err != nil {
			return err
		}
		if len(page.Items) < 2 {
			return fmt.Errorf("%d are", len(page.Items))
		}
		return nil
	})
}

// keeps creates triggers, memory files, and an evaluation.
func (s *deployment) keeps(address string) {
	s.t.Helper()
	nc, err := nats.Connect(address)
	if err != nil {
		s.t.Fatal(err)
	}
	defer nc.Close()
	js, err := nc.JetStream()
	if err != nil {
		s.t.Fatal(err)
	}
	for name, subject := range map[string]string{"ORDERS": "orders.paid", "PARCELS": "parcels.sent"} {
		if _, err := js.AddStream(&nats.StreamConfig{Name: name, Subjects: []string{subject}}); err != nil {
			s.t.Fatal(err)
		}
	}
	for name, settings := range map[string]api.TriggerSettings{
		"orders":  {Stream: "ORDERS", Subjects: []string{"orders.paid"}, From: api.FromAll, Run: &api.HookRun{Agent: "support", Input: `"Order " + string(event.number) + " was paid."`}},
		"parcels": {Stream: "PARCELS", Run: &api.HookRun{Agent: "sort-mail"}, Paused: true},
	} {
		if _, err := s.client.PutTrigger(s.t.Context(), name, settings); err != nil {
			s.t.Fatal(err)
		}
	}
	s.evaluates()
	for path, text := range map[string]string{"preferences.md": "Wants refunds to the card.\nIs at home in the morning.\n", "notes/deliveries.md": "The parcel of March came late.\n"} {
		if _, err := s.client.PutMemoryFile(s.t.Context(), "metadata.customer:C-8821", path, text, api.AnyVersion); err != nil {
			s.t.Fatal(err)
		}
	}
}

// delivers creates hooks, and runs of one of them.
func (s *deployment) delivers() {
	s.t.Helper()
	for name, settings := range map[string]api.HookSettings{
		"damaged-parcels": {
			Verify: "github", Filter: `event.action == "opened"`, Run: &api.HookRun{Agent: "sort-mail", Input: `"Parcel " + string(event.number) + " came damaged."`},
		},
		"desk": {Verify: "slack", Signal: &api.HookSignal{Run: "event.run", Message: "event.text"}},
	} {
		settings.Secret = api.SecretReferences{"secret://HOOK"}
		if _, err := s.client.PutHook(s.t.Context(), name, settings); err != nil {
			s.t.Fatal(err)
		}
	}
	for n := range 2 {
		status, run := github(s.t, s.url+"/v1/hooks/damaged-parcels", fmt.Sprintf("72d3162e-cc78-11e3-81ab-%012d", n), fmt.Sprintf(`{"action": "opened", "number": %d}`, n))
		if status != http.StatusAccepted {
			s.t.Fatalf("a delivery returns %d", status)
		}
		s.reaches(run, "completed")
	}
}

// evaluates creates an evaluation.
func (s *deployment) evaluates() {
	s.t.Helper()
	data, err := os.ReadFile("testdata/layout/evaluation.json")
	if err != nil {
		s.t.Fatal(err)
	}
	var report api.EvaluationReport
	if err := api.Decode(data, &report); err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.client.PutEvaluation(s.t.Context(), "eval_nightly", report); err != nil {
		s.t.Fatal(err)
	}
}

// drafts creates a draft by another author for review.
func (s *deployment) drafts(text string) {
	s.t.Helper()
	if _, err := s.client.PutTenant(s.t.Context(), "default", api.TenantSettings{Review: true}); err != nil {
		s.t.Fatal(err)
	}
	for _, k := range []api.KeyRequest{{Name: "ann", Roles: []string{"author", "submitter"}}, {Name: "shop-frontend", Roles: []string{"submitter"}}, {Name: "night-desk", Roles: []string{"viewer", "approver"}}} {
		k.Tenant = "default"
		made, err := s.client.CreateKey(s.t.Context(), k)
		if err != nil {
			s.t.Fatal(err)
		}
		if k.Name != "ann" {
			continue
		}
		text = strings.Replace(text, "Books tables.", "Books tables, and moves them if it rains.", 1)
		if _, err := api.New(s.url, api.WithToken(made.Key)).PutAgent(s.t.Context(), "booking", []byte(text)); err != nil {
			s.t.Fatal(err)
		}
	}
}

type anything map[string]any

// serveShop serves the tools of a shop.
func serveShop(t *testing.T, address string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	takes := func(d time.Duration) { <-time.After(d) }
	go func() {
		served <- toolkit.Run(ctx, toolkit.Config{URL: address},
			toolkit.Func("lookup", "Looks an order up.", func(context.Context, toolkit.Call, anything) (anything, error) {
				takes(70 * time.Millisecond)
				return anything{"order": "A-17", "customer": "C-8821", "total": 312.5, "items": []string{"6 cups, porcelain", "1 pot"}, "delivered": "2026-03-11", "promised": "2026-02-28"}, nil
			}),
			toolkit.Func("search", "Searches what was written down.", func(context.Context, toolkit.Call, anything) (string, error) {
				takes(120 * time.Millisecond)
				return "Fragile goods that come broken or more than seven days late are paid back within fourteen days, if the customer asks for it.", nil
			}),
			toolkit.Func("fetch_page", "Reads a page of the web.", func(context.Context, toolkit.Call, anything) (string, error) {
				takes(90 * time.Millisecond)
				return "", errors.New("harbour.example answered 410: gone")
			}),
			toolkit.Func("slow_import", "Takes a page of a catalogue in.", func(ctx context.Context, _ toolkit.Call, _ anything) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			}),
			toolkit.Func("refund", "Pays money back.", func(context.Context, toolkit.Call, anything) (string, error) { return "Paid.", nil }),
			toolkit.Func("convert", "Converts kilometres to metres.", func(_ context.Context, _ toolkit.Call, l length) (map[string]any, error) {
				return map[string]any{"metres": l.Value * 1000}, nil
			}))
	}()
	t.Cleanup(func() {
		stop()
		<-served
	})
}
