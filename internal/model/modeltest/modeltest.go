package modeltest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Key is the API key of requests, which no error may repeat.
const Key = "sk-test-do-not-show-1234567890"

// Features describes the capabilities of a provider.
type Features struct {
	Name string // Response.Provider

	// Wire means that responses arrive over a connection that can break.
	Wire bool

	// Signed means that thinking has a signature that must be sent back, on the thinking itself or on what
	// follows it.
	Signed bool

	WholeCalls bool // a tool call arrives in one piece

	// CacheRead and CacheWrite mean that usage counts cached tokens separately.
	CacheRead, CacheWrite bool
}

// Script is the behavior of the model behind a provider: the n-th call of a run gets the n-th response.
type Script struct {
	Responses []model.Scripted
	Pace      time.Duration // between the pieces of a stream, on a wire
	CutAfter  int64         // number of bytes after which the connection breaks; 0: never
}

// Open returns a provider whose model follows a script, and the request that reaches
// it, with Key as API key. Exercise fills in Run, Call and the messages.
type Open func(t *testing.T, s Script) (model.Provider, model.Request)

// Exercise runs the suite.
func Exercise(t *testing.T, f Features, open Open) {
	e := exercise{f, open}
	for name, test := range map[string]func(*testing.T){
		"text": e.text, "tool calls": e.toolCalls, "call without arguments": e.noArguments, "thinking": e.thinking,
		"usage": e.usage, "stops": e.stops, "output limit inside a call": e.cutCall, "errors": e.failures,
		"call counts failures": e.counts, "exhausted": e.exhausted, "cancelled before": e.cancelledBefore,
		"cancelled while waiting": e.cancelledWaiting, "cancelled mid-stream": e.cancelledStreaming,
		"deadline": e.deadline, "together": e.parallelCalls, "cut": e.cut,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

type exercise struct {
	f    Features
	open Open
}

// one makes a single call and returns the result, including deltas.
func (e exercise) one(t *testing.T, ctx context.Context, s model.Scripted) (model.Response, []model.Delta, error) {
	t.Helper()
	p, r := e.open(t, Script{Responses: []model.Scripted{s}})
	return generate(ctx, p, ask(r, 0))
}

// ask completes a request as a run would.
func ask(r model.Request, call int) model.Request {
	r.Run, r.Call = "run_01JD3X9K3W8Q4V5N6M7P8R9S0T", call
	r.Messages = []state.Message{
		{Role: state.RoleSystem, Parts: []state.Part{{Type: state.PartText, Text: "Be brief."}}},
		state.UserText("Hello"),
	}
	r.Tools = []model.ToolSpec{{Name: "weather", Description: "Tells the weather.", Schema: json.RawMessage(`{"type":"object"}`)}}
	r.MaxOutputTokens = 100
	return r
}

func generate(ctx context.Context, p model.Provider, r model.Request) (model.Response, []model.Delta, error) {
	var deltas []model.Delta
	resp, err := p.Generate(ctx, r, func(d model.Delta) { deltas = append(deltas, d) })
	return resp, deltas, err
}

func text(s string) state.Part { return state.Part{Type: state.PartText, Text: s} }

func call(id, name, args string) state.Part {
	return state.Part{Type: state.PartToolCall, ID: id, Name: name, Arguments: args}
}

// plain removes provider-specific data from parts.
func plain(parts []state.Part) []state.Part {
	var out []state.Part
	for _, p := range parts {
		p.Opaque, p.OpaqueBy = nil, ""
		out = append(out, p)
	}
	return out
}

func (e exercise) want(t *testing.T, resp model.Response, err error, stop model.Stop, parts ...state.Part) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(parts, plain(resp.Parts)); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	if resp.Stop != stop || resp.Provider != e.f.Name || resp.Model == "" {
		t.Errorf("the response has stop %q, provider %q and model %q; want stop %q, provider %q and a model that is not empty", resp.Stop, resp.Provider, resp.Model, stop, e.f.Name)
	}
}

// class checks that err is a classified error that does not contain the key, and returns it.
func (e exercise) class(t *testing.T, err error, want model.Class) *model.Error {
	t.Helper()
	var m *model.Error
	if !errors.As(err, &m) {
		t.Fatalf("error %v is not classified", err)
	}
	if m.Class != want {
		t.Errorf("class %q, want %q: %v", m.Class, want, err)
	}
	if m.Provider != e.f.Name || m.Message == "" {
		t.Errorf("error of provider %q with message %q", m.Provider, m.Message)
	}
	if shown := fmt.Sprintf("%v %+v %#v", err, err, m.Err); strings.Contains(shown, Key) {
		t.Errorf("the error shows the API key: %s", shown)
	}
	return m
}

func (e exercise) text(t *testing.T) {
	const said = "Grüße aus Köln — it is 21 °C 🌤 <b>&amp;</b>\n  \"quoted\""
	resp, deltas, err := e.one(t, t.Context(), model.Scripted{Text: said})
	e.want(t, resp, err, model.StopEnd, text(said))
	var streamed string
	for _, d := range deltas {
		streamed += d.Text
	}
	if streamed != said {
		t.Errorf("streamed %q", streamed)
	}
	p, r := e.open(t, Script{Responses: []model.Scripted{{Text: said}}})
	resp, err = p.Generate(t.Context(), ask(r, 0), nil)
	e.want(t, resp, err, model.StopEnd, text(said))
}

// twoCalls is a response with parallel calls. The unusual spacing must be preserved.
func twoCalls() (model.Scripted, []state.Part) {
	first, second := `{"city": "Köln",  "days": [1, 2]}`, `{"city":"a \"b\" \\ c"}`
	quote := func(s string) json.RawMessage { b, _ := json.Marshal(s); return b }
	return model.Scripted{Text: "Let me see.", ToolCalls: []model.ScriptedCall{
			{ID: "call_a", Name: "weather", Arguments: quote(first)}, {ID: "call_b", Name: "weather", Arguments: quote(second)},
		}},
		[]state.Part{text("Let me see."), call("call_a", "weather", first), call("call_b", "weather", second)}
}

func (e exercise) toolCalls(t *testing.T) {
	script, want := twoCalls()
	resp, deltas, err := e.one(t, t.Context(), script)
	e.want(t, resp, err, model.StopToolCalls, want...)
	got := make([]state.Part, 2)
	for _, d := range deltas {
		if d.Index > 1 {
			t.Fatalf("delta for call %d", d.Index)
		}
		if d.Text != "" || d.Thinking != "" {
			continue
		}
		c := &got[d.Index]
		c.Type = state.PartToolCall
		c.ID += d.CallID
		c.Name += d.Name
		c.Arguments += d.Arguments
	}
	if diff := cmp.Diff(want[1:], got); diff != "" {
		t.Errorf("streamed calls (-want +got):\n%s", diff)
	}
}

func (e exercise) noArguments(t *testing.T) {
	resp, _, err := e.one(t, t.Context(), model.Scripted{ToolCalls: []model.ScriptedCall{{ID: "call_a", Name: "now"}, {Name: "now"}}})
	if err != nil {
		t.Fatal(err)
	}
	calls := state.Message{Parts: resp.Parts}.Calls()
	if len(calls) != 2 || calls[0].Arguments != "{}" || calls[1].ID == "" || calls[1].ID == calls[0].ID {
		t.Errorf("calls %+v", calls)
	}
}

func (e exercise) thinking(t *testing.T) {
	p, r := e.open(t, Script{Responses: []model.Scripted{{Thinking: "Hm, let me think.", Text: "Yes."}}})
	resp, deltas, err := generate(t.Context(), p, ask(r, 0))
	e.want(t, resp, err, model.StopEnd, state.Part{Type: state.PartThinking, Text: "Hm, let me think."}, text("Yes."))
	sealed := func(p state.Part) bool { return len(p.Opaque) > 0 && p.OpaqueBy == model.SealedBy(e.f.Name, r.Model) }
	if signed := slices.ContainsFunc(resp.Parts, sealed); signed != e.f.Signed {
		t.Errorf("signed %t, want %t", signed, e.f.Signed)
	}
	var streamed string
	for _, d := range deltas {
		streamed += d.Thinking
	}
	if streamed != "Hm, let me think." {
		t.Errorf("streamed thinking %q", streamed)
	}
}

func (e exercise) usage(t *testing.T) {
	u := &model.ScriptedUsage{InputTokens: 1000, OutputTokens: 20}
	want := state.Usage{InputTokens: 1000, OutputTokens: 20}
	if e.f.CacheRead {
		u.CacheReadTokens, want.CacheReadTokens = 600, 600
	}
	if e.f.CacheWrite {
		u.CacheWriteTokens, want.CacheWriteTokens = 100, 100
	}
	resp, _, err := e.one(t, t.Context(), model.Scripted{Text: "ok", Usage: u})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, resp.Usage); diff != "" {
		t.Errorf("usage (-want +got):\n%s", diff)
	}
}

func (e exercise) stops(t *testing.T) {
	for _, stop := range []model.Stop{model.StopMaxOutputTokens, model.StopRefusal} {
		resp, _, err := e.one(t, t.Context(), model.Scripted{Text: "I", Stop: stop})
		e.want(t, resp, err, stop, text("I"))
	}
	resp, _, err := e.one(t, t.Context(), model.Scripted{})
	e.want(t, resp, err, model.StopEnd, text(""))
}

// A call that the output limit cut off would fail or, worse, run (A7).
func (e exercise) cutCall(t *testing.T) {
	resp, _, err := e.one(t, t.Context(), model.Scripted{Stop: model.StopMaxOutputTokens, Text: "So", ToolCalls: []model.ScriptedCall{
		{ID: "call_a", Name: "weather", Arguments: json.RawMessage(`{"city":"Rome"}`)},
		{ID: "call_b", Name: "weather", Arguments: json.RawMessage(`"{\"city\":\"Ro"`)},
	}})
	e.want(t, resp, err, model.StopMaxOutputTokens, text("So"), call("call_a", "weather", `{"city":"Rome"}`))
}

func (e exercise) failures(t *testing.T) {
	classes := []model.Class{
		model.RateLimited, model.Overloaded, model.PromptTooLong, model.InvalidRequest, model.Auth, model.Transport,
	}
	if e.f.Wire {
		classes = append(classes, model.Quota, model.ContentFilter, model.Timeout)
	}
	for _, class := range classes {
		resp, deltas, err := e.one(t, t.Context(), model.Scripted{Error: class})
		m := e.class(t, err, class)
		if len(resp.Parts) > 0 || len(deltas) > 0 || m.Streamed || m.RetryAfter != 0 {
			t.Errorf("%s: response %+v, deltas %v, error %+v", class, resp, deltas, m)
		}
	}
	for _, class := range []model.Class{model.RateLimited, model.Overloaded} {
		_, _, err := e.one(t, t.Context(), model.Scripted{Error: class, RetryAfter: model.Duration(1500 * time.Millisecond)})
		if m := e.class(t, err, class); m.RetryAfter != 1500*time.Millisecond {
			t.Errorf("%s: retry after %s, want 1.5s", class, m.RetryAfter)
		}
	}
}

func (e exercise) counts(t *testing.T) {
	p, r := e.open(t, Script{Responses: []model.Scripted{{Text: "one"}, {Error: model.Overloaded}, {Text: "three"}}})
	resp, _, err := generate(t.Context(), p, ask(r, 0))
	e.want(t, resp, err, model.StopEnd, text("one"))
	_, _, err = generate(t.Context(), p, ask(r, 1))
	e.class(t, err, model.Overloaded)
	resp, _, err = generate(t.Context(), p, ask(r, 2))
	e.want(t, resp, err, model.StopEnd, text("three"))
}

func (e exercise) exhausted(t *testing.T) {
	p, r := e.open(t, Script{})
	_, _, err := generate(t.Context(), p, ask(r, 0))
	if m := e.class(t, err, model.Exhausted); m.Class.Retryable() {
		t.Error("an exhausted script is retryable")
	}
}

func (e exercise) cancelledBefore(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	resp, deltas, err := e.one(t, ctx, model.Scripted{Text: "never"})
	if m := e.class(t, err, model.Cancelled); !errors.Is(m, context.Canceled) {
		t.Errorf("error %v does not wrap context.Canceled", m)
	}
	if len(resp.Parts) > 0 || len(deltas) > 0 {
		t.Errorf("response %+v, deltas %v", resp, deltas)
	}
}

// An abort reaches a waiting call (A5).
func (e exercise) cancelledWaiting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	timer := time.AfterFunc(10*time.Millisecond, cancel)
	defer timer.Stop()
	_, _, err := e.one(t, ctx, model.Scripted{Text: "never", Delay: model.Duration(time.Hour)})
	e.class(t, err, model.Cancelled)
}

// Only the parts that had arrived completely are returned (A4).
func (e exercise) cancelledStreaming(t *testing.T) {
	long := `{"text":"` + strings.Repeat("word ", 500) + `"}`
	p, r := e.open(t, Script{Pace: 5 * time.Millisecond, Responses: []model.Scripted{{Text: "Well", ToolCalls: []model.ScriptedCall{
		{ID: "call_a", Name: "weather", Arguments: json.RawMessage(`{"city":"Rome"}`)},
		{ID: "call_b", Name: "write", Arguments: json.RawMessage(long)},
	}}}})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp, err := p.Generate(ctx, ask(r, 0), func(d model.Delta) {
		if d.Index == 1 {
			cancel()
		}
	})
	if m := e.class(t, err, model.Cancelled); !m.Streamed {
		t.Error("the error does not say that deltas were shown")
	}
	want := []state.Part{call("call_a", "weather", `{"city":"Rome"}`)}
	if e.f.WholeCalls {
		want = append(want, call("call_b", "write", long)) // its first piece is its last
	}
	if diff := cmp.Diff(want, plain(resp.Parts)); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

func (e exercise) deadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, _, err := e.one(t, ctx, model.Scripted{Text: "never", Delay: model.Duration(time.Hour)})
	if m := e.class(t, err, model.Timeout); !errors.Is(m, context.DeadlineExceeded) {
		t.Errorf("a call whose context expired returned %v, want an error that wraps context.DeadlineExceeded", m)
	}
}

func (e exercise) parallelCalls(t *testing.T) {
	script, want := twoCalls()
	p, r := e.open(t, Script{Responses: []model.Scripted{script}})
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			r := ask(r, 0)
			r.Run = state.RunID(fmt.Sprintf("run_01JD3X9K3W8Q4V5N6M7P8R9S%02d", i))
			resp, _, err := generate(t.Context(), p, r)
			if err != nil || !cmp.Equal(want, plain(resp.Parts)) {
				t.Errorf("parts %+v, error %v", resp.Parts, err)
			}
		})
	}
	wg.Wait()
}

// cut breaks the connection at places throughout a response: the result is an error, or the complete response,
// and nothing between. Replay does so at every byte of short streams.
func (e exercise) cut(t *testing.T) {
	if !e.f.Wire {
		return
	}
	script, want := twoCalls()
	script.Text, want[0].Text = "Hm", "Hm"
	whole, n, step := 0, int64(1), int64(5)
	if testing.Short() {
		step = 35
	}
	// The end marker has few bytes; a cut after it is harmless.
	for ; whole < 10 && n < 20_000; n += step {
		p, r := e.open(t, Script{Responses: []model.Scripted{script}, CutAfter: n})
		resp, deltas, err := generate(t.Context(), p, ask(r, 0))
		if err == nil {
			whole++
			e.want(t, resp, err, model.StopToolCalls, want...)
			continue
		}
		if whole > 0 {
			t.Errorf("the stream was cut after %d bytes: the call returned %v, want a response, since a cut after fewer bytes returned one", n, err)
		}
		if m := e.class(t, err, model.Transport); m.Streamed != (len(deltas) > 0) || len(resp.Parts) > 0 {
			t.Errorf("the stream was cut after %d bytes: Streamed = %t after %d deltas, with parts %+v; want true if there were deltas, and no parts", n, m.Streamed, len(deltas), resp.Parts)
		}
		if t.Failed() {
			t.Fatalf("cut after %d bytes", n)
		}
	}
	if whole == 0 {
		t.Errorf("no response was complete in %d bytes", n)
	}
}
