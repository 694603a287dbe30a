package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slack-go/slack"
	"go.uber.org/goleak"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	tt "github.com/turnpike-dev/turnpike/turnpiketest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	secret  = "the signing secret"
	channel = "C1"
)

// pay is a tool that a person must approve.
var pay = turnpike.NewTool("pay", "Pays.", func(context.Context, amount) (string, error) { return "paid", nil }, turnpike.Approval("always"), turnpike.Risk("pays"))

type amount struct{ Euros int }

// gate is a provider that streams words until the test opens it.
type gate chan struct{}

func (g gate) Generate(ctx context.Context, _ model.Request, onDelta func(model.Delta)) (model.Response, error) {
	words := time.NewTicker(10 * time.Millisecond)
	defer words.Stop()
	text := ""
	say := func(piece string) {
		text += piece
		onDelta(model.Delta{Text: piece})
	}
	for {
		select {
		case <-words.C:
			say("and ")
		case <-g:
			say("that is all.")
			return model.Response{Provider: "gate", Model: "gate", Stop: model.StopEnd, Parts: []state.Part{{Type: state.PartText, Text: text}}}, nil
		case <-ctx.Done():
			return model.Response{}, model.Interrupted("gate", ctx.Err())
		}
	}
}

// bench is a Turnpike with a gateway that requires keys, a Slack, and the app between the two.
type bench struct {
	*tt.Kit

	t     *testing.T
	slack *fakeSlack
	gate  gate
	c     config
	url   string // of the app
	end   func()
}

// newBench starts everything for an agent, whose model is scripted unless it has one.
func newBench(t *testing.T, a turnpike.Agent, script ...tt.Reply) *bench {
	b := &bench{t: t, slack: newFakeSlack(), gate: make(gate)}
	b.Kit = tt.New(t, turnpike.Options{Tools: []turnpike.Tool{pay}, Models: turnpike.Models{"gate": b.gate}})
	a.Name = "clerk"
	if a.Model.Provider == "" {
		a.Model = turnpike.Model{Provider: "scripted", Responses: script}
	}
	if _, err := b.PutAgent(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	key, err := api.New(b.gateway(turnpike.NoAuth())).CreateKey(t.Context(), api.KeyRequest{Name: "slack", Roles: []string{"submitter", "issuer"}})
	if err != nil {
		t.Fatal(err)
	}
	b.c = config{
		slackToken: botToken, slackSecret: secret, slackURL: b.serve(b.slack) + "/",
		gateway: b.gateway(b.KeyAuth()), token: key.Key, agent: a.Name, answerTimeout: patience,
	}
	b.start()
	t.Cleanup(func() { b.end() })
	return b
}

// serve serves a handler until the test ends.
func (b *bench) serve(h http.Handler) string {
	s := httptest.NewServer(h)
	b.t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

func (b *bench) gateway(auth turnpike.Auth) string {
	b.t.Helper()
	g, err := b.NewGateway(turnpike.GatewayOptions{Auth: auth})
	if err != nil {
		b.t.Fatal(err)
	}
	return b.serve(g)
}

// start starts the app; b.end ends it.
func (b *bench) start() {
	b.t.Helper()
	a, err := newApp(b.c, slog.New(slog.DiscardHandler))
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.run(ctx) }()
	s := httptest.NewServer(a.routes())
	b.url = s.URL
	b.end = func() {
		s.Close()
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
		b.end = func() {}
	}
}

// post sends a request signed by Slack at a time, and returns the status and the response.
func (b *bench) post(path, body, secret string, at time.Time) (int, string) {
	b.t.Helper()
	mac := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(mac, "v0:%d:%s", at.Unix(), body)
	r, _ := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.url+path, strings.NewReader(body))
	r.Header.Set("X-Slack-Request-Timestamp", fmt.Sprint(at.Unix()))
	r.Header.Set("X-Slack-Signature", "v0="+hex.EncodeToString(mac.Sum(nil)))
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	var text strings.Builder
	_, _ = io.Copy(&text, resp.Body)
	return resp.StatusCode, text.String()
}

// event delivers an event of the Events API.
func (b *bench) event(event map[string]any) {
	b.t.Helper()
	event["channel"] = channel
	body, _ := json.Marshal(map[string]any{"type": "event_callback", "event_id": fmt.Sprint("Ev", event["ts"]), "event": event})
	if status, answer := b.post("/slack/events", string(body), secret, time.Now()); status != http.StatusOK {
		b.t.Errorf("event %s: %d %s", body, status, answer)
	}
}

func (b *bench) mention(ts, text string) {
	b.t.Helper()
	b.event(map[string]any{"type": "app_mention", "user": "U1", "ts": ts, "text": "<@UBOT> " + text})
}

func (b *bench) reply(thread, ts, text string) {
	b.t.Helper()
	b.event(map[string]any{"type": "message", "channel_type": "channel", "user": "U2", "thread_ts": thread, "ts": ts, "text": text})
}

// click clicks a button of a message.
func (b *bench) click(m posted, action, user string) {
	b.t.Helper()
	payload, _ := json.Marshal(map[string]any{
		"type": "block_actions", "user": map[string]any{"id": user}, "channel": map[string]any{"id": channel},
		"message": map[string]any{"ts": m.Timestamp, "thread_ts": m.Thread},
		"actions": []any{map[string]any{"type": "button", "block_id": "b", "action_id": action, "value": buttonOf(m, action)}},
	})
	if status, answer := b.post("/slack/actions", url.Values{"payload": {string(payload)}}.Encode(), secret, time.Now()); status != http.StatusOK {
		b.t.Errorf("click: %d %s", status, answer)
	}
}

// buttonOf returns the value of a button of a message; empty if it has none.
func buttonOf(m posted, action string) string {
	var blocks []struct {
		Elements []struct {
			Action string `json:"action_id"`
			Value  string `json:"value"`
		} `json:"elements"`
	}
	json.Unmarshal([]byte(m.blocks), &blocks)
	for _, block := range blocks {
		for _, e := range block.Elements {
			if e.Action == action {
				return e.Value
			}
		}
	}
	return ""
}

// runs returns all runs.
func (b *bench) runs() (all []turnpike.Info) {
	b.t.Helper()
	for i, err := range b.Runs(b.t.Context(), turnpike.Filter{}) {
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, i)
	}
	return all
}

// said returns the users' messages in the only run.
func (b *bench) said() (texts []string) {
	b.t.Helper()
	runs := b.runs()
	if len(runs) != 1 {
		b.t.Fatalf("%d runs, want 1", len(runs))
	}
	all, err := b.RunByID(runs[0].ID).History(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, m := range all {
		if m.Role == state.RoleUser {
			texts = append(texts, m.Text())
		}
	}
	return texts
}

func TestAnswerGrows(t *testing.T) {
	t.Parallel()
	b := newBench(t, turnpike.Agent{Model: turnpike.Model{Provider: "gate", Name: "gate"}})
	b.mention("1.0", "How &lt; why?")
	b.slack.await(t, "growth", func() bool { m := b.slack.all(); return len(m) > 0 && m[0].edits > 0 })
	b.mention("1.0", "How &lt; why?") // Slack got no response in time
	b.gate <- struct{}{}
	b.awaitAnswers(1)
	if got := b.said(); !slices.Equal(got, []string{"How < why?"}) {
		t.Errorf("users said %q", got)
	}
}

// awaitAnswers waits until thread 1.0 has exactly n answers of the gate, all of them complete.
func (b *bench) awaitAnswers(n int) {
	b.t.Helper()
	whole := regexp.MustCompile(`^(and )*that is all\.$`)
	b.slack.await(b.t, "answers", func() bool {
		texts := b.slack.thread("1.0")
		return len(texts) == n && !slices.ContainsFunc(texts, func(text string) bool { return !whole.MatchString(text) })
	})
}

func TestThreadContinues(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]turnpike.Agent{"ends": {}, "waits": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a.Loop.Converse = name == "waits"
			b := newBench(t, a, tt.Says("Hello."), tt.Says("<!channel> again."), tt.Says("Bye."), tt.Says("Yes?"))
			b.reply("0.0", "0.1", "this thread has no mention of the app")
			b.mention("1.0", "Hi.")
			b.slack.awaitThread(t, "1.0", "Hello.")
			b.reply("1.0", "1.1", "And?")
			b.slack.awaitThread(t, "1.0", "Hello.", "&lt;!channel&gt; again.")
			// A mention in a thread is two events.
			b.event(map[string]any{"type": "app_mention", "user": "U1", "thread_ts": "1.0", "ts": "1.2", "text": "<@UBOT> Well."})
			b.reply("1.0", "1.2", "<@UBOT> Well.")
			b.slack.awaitThread(t, "1.0", "Hello.", "&lt;!channel&gt; again.", "Bye.")
			if got := b.said(); !slices.Equal(got, []string{"Hi.", "And?", "Well."}) {
				t.Errorf("users said %q", got)
			}
			b.end()
			b.start()
			b.reply("1.0", "1.3", "Wait!")
			b.slack.awaitThread(t, "1.0", "Hello.", "&lt;!channel&gt; again.", "Bye.", "Yes?")
		})
	}
}

func TestApprovals(t *testing.T) {
	t.Parallel()
	for action, want := range map[string]struct{ said, answer string }{
		approve: {":white_check_mark: `pay` was approved by <@U1>.", "Done."},
		deny:    {":no_entry: `pay` was denied by <@U1>.", "Done."},
	} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, turnpike.Agent{Tools: turnpike.Use(pay)}, tt.Calls("pay", amount{7}), tt.Says(want.answer), tt.Says("Bye."))
			b.end()
			b.c.approvers = []string{"U1", "U2"}
			b.start()
			b.mention("1.0", "Pay.")
			b.slack.awaitThread(t, "1.0", "May I call `pay`? It pays.")
			asked := b.slack.all()[0]
			b.click(asked, action, "U3")
			b.click(asked, action, "U1")
			b.slack.await(t, "decision", func() bool { return slices.Equal(b.slack.thread("1.0"), []string{want.said, want.answer}) })
			b.click(asked, deny, "U2")
			var told []string
			for _, m := range b.slack.all() {
				if m.Text == want.said && (buttonOf(m, approve) != "" || !strings.Contains(m.blocks, "Euros")) {
					t.Errorf("the decided call has %s", m.blocks)
				}
				if m.user != "" {
					told = append(told, m.user+": "+m.Text)
				}
			}
			if want := []string{"U3: You may not decide about this call.", "U2: Thank you, but this call no longer waits for a decision."}; !slices.Equal(told, want) {
				t.Errorf("users read %q, want %q", told, want)
			}
			b.end()
			b.start()
			b.reply("1.0", "1.1", "Thank you.")
			b.slack.awaitThread(t, "1.0", want.said, want.answer, "Bye.")
			if m := b.slack.all()[0]; m.edits != 1 {
				t.Errorf("after a restart %q has %d edits, want 1", m.Text, m.edits)
			}
		})
	}
}

// When a run ends, its undecided calls lose their buttons.
func TestCancel(t *testing.T) {
	t.Parallel()
	b := newBench(t, turnpike.Agent{Tools: turnpike.Use(pay)}, tt.Calls("pay", amount{7}), tt.Says("Done."))
	b.mention("1.0", "Pay.")
	b.slack.awaitThread(t, "1.0", "May I call `pay`? It pays.")
	asked := b.slack.all()[0]
	if err := b.RunByID(b.runs()[0].ID).Cancel(t.Context(), "a mistake"); err != nil {
		t.Fatal(err)
	}
	b.slack.awaitThread(t, "1.0", "`pay` is no longer needed.", ":warning: The run is cancelled (aborted_waiting).")
	b.click(asked, approve, "U1")
	if m := b.slack.all(); buttonOf(m[0], approve) != "" || m[len(m)-1].user != "U1" {
		t.Errorf("Slack has %+v", m)
	}
}

// A gateway without authentication issues no tokens for users.
func TestApprovalWithoutKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t, turnpike.Agent{Tools: turnpike.Use(pay)}, tt.Calls("pay", amount{7}), tt.Says("Done."))
	b.end()
	b.c.gateway, b.c.token = b.gateway(turnpike.NoAuth()), ""
	b.start()
	b.mention("1.0", "Pay.")
	b.slack.awaitThread(t, "1.0", "May I call `pay`? It pays.")
	b.click(b.slack.all()[0], approve, "U1")
	b.slack.awaitThread(t, "1.0", ":white_check_mark: `pay` was approved.", "Done.")
}

func TestQuestion(t *testing.T) {
	t.Parallel()
	b := newBench(t, turnpike.Agent{Tools: []tool.Definition{{Name: "ask_user", Kind: "human"}}}, tt.Calls("ask_user", map[string]string{"question": "For how many?"}), tt.Says("Booked."))
	b.mention("1.0", "Book a table.")
	b.slack.awaitThread(t, "1.0", "For how many?")
	b.reply("1.0", "1.1", "Four.")
	b.slack.awaitThread(t, "1.0", "For how many?", "Booked.")
}

func TestRestart(t *testing.T) {
	t.Parallel()
	b := newBench(t, turnpike.Agent{Model: turnpike.Model{Provider: "gate", Name: "gate"}})
	b.mention("1.0", "How?")
	b.slack.await(t, "beginning", func() bool { return len(b.slack.all()) > 0 })
	b.end()
	b.gate <- struct{}{}
	b.WaitIdle(b.RunByID(b.runs()[0].ID))
	b.start()
	b.awaitAnswers(1)
	b.end()
	edits := b.slack.all()[0].edits
	b.start()
	b.reply("1.0", "1.1", "Why?")
	b.gate <- struct{}{}
	b.awaitAnswers(2)
	if m := b.slack.all()[0]; m.edits != edits {
		t.Errorf("an existing answer was edited: %+v", m)
	}
}

// A message may arrive when its run has ended and Slack does not have the answer yet.
func TestMessageAtTheEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t, turnpike.Agent{}, tt.Says("Hello."), tt.Says("Again."))
	b.slack.hold = make(chan struct{})
	b.mention("1.0", "Hi.")
	b.WaitIdle(b.RunByID(b.runs()[0].ID))
	b.reply("1.0", "1.1", "And?")
	close(b.slack.hold)
	b.slack.awaitThread(t, "1.0", "Hello.", "Again.")
}

// After rate limits and unknown outcomes, each message is in Slack once.
func TestSlackFails(t *testing.T) {
	t.Parallel()
	for name, set := range map[string]func(*fakeSlack){
		"limited": func(f *fakeSlack) { f.limits = 2 },
		"lost":    func(f *fakeSlack) { f.lose = 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFakeSlack()
				set(f)
				th := newTestThread(f, time.Second)
				th.answer("a", "Hello.", 1)
				close(th.read)
				if err := th.write(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := f.thread("1.0"); !slices.Equal(got, []string{"Hello."}) || f.violations > 0 {
					t.Errorf("Slack has %q, and got %d calls too early", got, f.violations)
				}
			})
		})
	}
}

// A message is edited at most once a second, however many deltas arrive. A long text is split into several
// messages.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFakeSlack()
		th := newTestThread(f, time.Second)
		written := make(chan error, 1)
		go func() { written <- th.write(t.Context()) }()
		text := ""
		for range 100 {
			text += strings.Repeat("word ", 10)
			th.answer("a", text, 0)
			time.Sleep(50 * time.Millisecond)
		}
		th.answer("a", text, 7)
		close(th.read)
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		last := map[string]time.Time{}
		for _, c := range f.calls {
			if c.method == "chat.update" {
				if passed := c.at.Sub(last[c.ts]); passed < time.Second {
					t.Errorf("an edit came %s after the previous one", passed)
				}
				last[c.ts] = c.at
			}
		}
		if got := strings.Join(f.thread("1.0"), ""); got != strings.TrimSpace(text) || len(f.calls) > 10 || len(f.messages) != 2 {
			t.Errorf("%d calls, %d messages: %q", len(f.calls), len(f.messages), got)
		}
	})
}

// newTestThread returns a thread that calls f without a network.
func newTestThread(f *fakeSlack, editInterval time.Duration) *thread {
	s := slack.New(botToken, slack.OptionAPIURL("http://slack.test/"), slack.OptionHTTPClient(direct{f}))
	return newThread(s, &turnpike.Client{}, conversation{channel, "1.0", "run_1"}, editInterval, slog.New(slog.DiscardHandler))
}

type direct struct{ http.Handler }

func (d direct) Do(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result(), nil
}

// Slack repeats an event that cannot reach a run.
func TestGatewayAway(t *testing.T) {
	t.Parallel()
	b := newBench(t, turnpike.Agent{}, tt.Says("Hello."))
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	b.c.gateway, b.c.answerTimeout = gone.URL, time.Millisecond
	a, err := newApp(b.c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	b.url = b.serve(a.routes())
	event := `{"type":"event_callback","event":{"type":"app_mention","channel":"C1","user":"U1","ts":"1.0","text":"Hi."}}`
	if status, answer := b.post("/slack/events", event, secret, time.Now()); status != http.StatusServiceUnavailable {
		t.Errorf("%d %s, want 503", status, answer)
	}
}

func TestSignatures(t *testing.T) {
	t.Parallel()
	b := newBench(t, turnpike.Agent{}, tt.Says("Hello."))
	challenge := `{"type":"url_verification","token":"x","challenge":"c-1"}`
	for name, c := range map[string]struct {
		secret string
		age    time.Duration
		status int
		answer string
	}{
		"good": {secret, 0, http.StatusOK, "c-1"}, "old": {secret, 6 * time.Minute, http.StatusUnauthorized, "the signature of Slack"},
		"from the future": {secret, -6 * time.Minute, http.StatusUnauthorized, "the signature of Slack"}, "of a stranger": {"guess", 0, http.StatusUnauthorized, "the signature of Slack"},
	} {
		for _, path := range []string{"/slack/events", "/slack/actions"} {
			status, answer := b.post(path, challenge, c.secret, time.Now().Add(-c.age))
			if path == "/slack/events" && (status != c.status || !strings.HasPrefix(answer, c.answer)) || (status == http.StatusUnauthorized) != (c.status == http.StatusUnauthorized) {
				t.Errorf("%s, %s: %d %q, want %d %q", path, name, status, answer, c.status, c.answer)
			}
		}
	}
}

// The hint about a failed call names the gateway only if the gateway is known to be the cause.
func TestHintNamesSlack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   error
		slack bool
	}{
		{fmt.Errorf("submit: %w", turnpike.ErrUnavailable), false},
		{fmt.Errorf("token: %w", turnpike.ErrForbidden), false},
		{slack.SlackErrorResponse{Err: "not_in_channel"}, true},
		{errors.New(`Post "https://slack.com/api/chat.postEphemeral": connection refused`), true},
	} {
		if hint := reach(c.err); strings.Contains(hint, "Slack") != c.slack {
			t.Errorf("%v: %s", c.err, hint)
		}
	}
}
