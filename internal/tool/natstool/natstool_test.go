package natstool_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/goleak"

	"github.com/turnpike-dev/turnpike/internal/tool/natstool"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = "tp"

func serve(t *testing.T, nc *nats.Conn, tools ...toolkit.Tool) (stop func() error) {
	t.Helper()
	stop, err := toolkit.Serve(nc, prefix, tools...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// wantError fails t unless r is an error result that contains each of texts (A7).
func wantError(t *testing.T, r tool.Result, err error, texts ...string) {
	t.Helper()
	if err != nil || !r.IsError {
		t.Fatalf("Call = %.300q, %v; want an error result", r.Content, err)
	}
	for _, text := range texts {
		if !strings.Contains(r.Content, text) {
			t.Errorf("Call = %.300q, want %q in it", r.Content, text)
		}
	}
}

func TestCall(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	got := make(chan toolkit.Call, 1)
	serve(t, nc, toolkit.Tool{
		Name: "refund", Description: "Gives money back.", Schema: json.RawMessage(`{"type":"object"}`),
		Handler: func(ctx context.Context, r toolkit.Call) (toolkit.Result, error) {
			if at, ok := ctx.Deadline(); !ok || !at.Equal(r.Deadline) {
				return toolkit.Result{}, errors.New("the context has another deadline")
			}
			got <- r
			return toolkit.Result{Content: "done: \"42\"\n"}, nil
		},
	})
	deadline := time.Now().Add(time.Minute).UTC().Truncate(time.Millisecond)
	r, err := natstool.New(nc, prefix).Call(t.Context(), tool.Call{
		Run: "run_1", ID: "c1", Name: "refund", Arguments: json.RawMessage(`{"amount":7}`), IdempotencyKey: "k", Deadline: deadline,
	})
	if err != nil || !cmp.Equal(r, tool.Result{Content: "done: \"42\"\n"}) {
		t.Fatalf("Call = %+v, %v", r, err)
	}
	want := toolkit.Call{CallID: "c1", RunID: "run_1", Arguments: json.RawMessage(`{"amount":7}`), IdempotencyKey: "k", Deadline: deadline}
	if diff := cmp.Diff(want, <-got); diff != "" {
		t.Errorf("request:\n%s", diff)
	}

	// Any NATS client can find the service, with its description and schema.
	msg, err := nc.RequestWithContext(t.Context(), "$SRV.INFO.refund", nil)
	if err != nil {
		t.Fatal(err)
	}
	var info micro.Info
	if err := json.Unmarshal(msg.Data, &info); err != nil {
		t.Fatal(err)
	}
	if e := info.Endpoints[0]; e.Subject != "tp.tool.refund" || e.Metadata["schema"] != `{"type":"object"}` || info.Metadata["description"] != "Gives money back." {
		t.Errorf("info = %+v", info)
	}
}

// A failing call becomes an error result, and the service continues. A handler's progress reaches the caller in
// order and before the result.
func TestProgress(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	late := make(chan context.Context, 2)
	serve(t, nc, toolkit.Tool{Name: "t", Handler: func(ctx context.Context, _ toolkit.Call) (toolkit.Result, error) {
		toolkit.Progress(ctx, "line 1\nof \"2\": kön")
		toolkit.Progress(ctx, strings.Repeat("x", 2000))
		late <- ctx
		return toolkit.Result{Content: "done"}, nil
	}})
	var got []string
	call := tool.Call{Name: "t", Progress: func(text string) { got = append(got, text) }}
	for range 2 {
		r, err := natstool.New(nc, prefix).Call(t.Context(), call)
		if err != nil || r.Content != "done" {
			t.Fatalf("Call = %+v, %v", r, err)
		}
		call.Progress = nil // a caller that does not show it
		toolkit.Progress(<-late, "too late")
	}
	toolkit.Progress(t.Context(), "no call")
	if len(got) != 2 || got[0] != "line 1\nof \"2\": kön" || len(got[1]) != 1000 {
		t.Errorf("progress: %.100q", got)
	}
}

func TestHandlerFails(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	serve(t, nc, toolkit.Tool{Name: "t", Handler: func(_ context.Context, r toolkit.Call) (toolkit.Result, error) {
		switch r.CallID {
		case "error":
			return toolkit.Result{}, errors.New("no such order\nlook it up first: \u00e9")
		case "silent":
			return toolkit.Result{}, errors.New("")
		case "panic":
			panic("oh")
		case "huge":
			return toolkit.Result{Content: strings.Repeat("x", int(nc.MaxPayload()))}, nil
		}
		return toolkit.Result{Content: "fine"}, nil
	}})
	tools := natstool.New(nc, prefix).WithHeartbeat(time.Minute) // a busy machine takes its time for a megabyte
	for id, want := range map[string]string{
		"error": "no such order\nlook it up first: \u00e9", "silent": `"t" failed`, "panic": "it panicked: oh", "huge": "the NATS server accepts at most",
	} {
		r, err := tools.Call(t.Context(), tool.Call{ID: id, Name: "t"})
		wantError(t, r, err, want)
	}
	if r, err := tools.Call(t.Context(), tool.Call{ID: "good", Name: "t"}); err != nil || r.Content != "fine" {
		t.Errorf("Call = %+v, %v", r, err)
	}
}

// Replies of services in other languages are accepted.
func TestReplies(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	tests := []struct {
		reply  string
		header nats.Header
		want   tool.Result
	}{
		{`{"content":"text"}`, nil, tool.Result{Content: "text"}},
		{`{"content":""}`, nil, tool.Result{}},
		{`{"content":{"b":[1,2.50]}}`, nil, tool.Result{Content: `{"b":[1,2.50]}`}},
		{`{"content":null}`, nil, tool.Result{Content: "null"}},
		{`{"content":"text","error":null,"took":3}`, nil, tool.Result{Content: "text"}},
		{`{"content":"text","error":""}`, nil, tool.Result{Content: "text"}},
		{`{"content":"a map","images":[{"media_type":"image/png","data":"iVBORw=="},{"url":"https://example.com/a.png"}]}`, nil, tool.Result{
			Content: "a map", Images: []state.Image{{MediaType: "image/png", Data: "iVBORw=="}, {URL: "https://example.com/a.png"}},
		}},
		{`{"images":[{"url":"https://example.com/a.png"}]}`, nil, tool.Result{Images: []state.Image{{URL: "https://example.com/a.png"}}}},
		{`{"pending":true}`, nil, tool.Result{Pending: true}},
		{`{"error":"broken"}`, nil, tool.Error("broken")},
		{`{"error":{"code":7}}`, nil, tool.Error(`{"code":7}`)},
		{``, nats.Header{micro.ErrorHeader: {"no stock"}, micro.ErrorCodeHeader: {"409"}}, tool.Error(`Tool "t" failed: no stock (code 409). Call it with other arguments, or continue without its result`)},
		{`plain`, nil, tool.Error(`Tool "t" was called, but its reply is neither {"content": ...} nor {"error": "..."}. Continue without its result; the operator must correct its service. The reply: plain`)},
		{`{}`, nil, tool.Error(`Tool "t" was called, but its reply is neither {"content": ...} nor {"error": "..."}. Continue without its result; the operator must correct its service. The reply: {}`)},
	}
	next := make(chan *nats.Msg, 1)
	sub, err := nc.Subscribe(toolkit.Subject(prefix, "t"), func(m *nats.Msg) { _ = m.RespondMsg(<-next) })
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Unsubscribe() //nolint:errcheck // the connection is about to close
	for _, tt := range tests {
		next <- &nats.Msg{Data: []byte(tt.reply), Header: tt.header}
		got, err := natstool.New(nc, prefix).Call(t.Context(), tool.Call{Name: "t"})
		if err != nil || !cmp.Equal(got, tt.want) {
			t.Errorf("reply %s: Call = %+v, %v; want %+v", tt.reply, got, err, tt.want)
		}
	}
}

// For a call that cannot be made, the model reads that, and the operator gets the remedy.
func TestNotCalled(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	tools := natstool.New(nc, prefix)
	r, err := tools.Call(t.Context(), tool.Call{Name: "nobody"})
	wantError(t, r, err, "tp.tool.nobody", "toolkit.Run")

	// A time limit shorter than the patience gives the same answer, without a second request.
	soon := &lastMoment{Context: t.Context()}
	r, err = tools.Call(soon, tool.Call{Name: "nobody"})
	wantError(t, r, err, "tp.tool.nobody")
	if soon.looks != 2 {
		t.Errorf("the call checked its deadline %d times, want once for each of two attempts", soon.looks)
	}

	for _, name := range []string{"", "a.b", "*", ">", "a b"} {
		r, err := tools.Call(t.Context(), tool.Call{Name: name})
		wantError(t, r, err, "cannot be called")
	}
	serve(t, nc, toolkit.Tool{Name: "t", Handler: func(context.Context, toolkit.Call) (toolkit.Result, error) { return toolkit.Result{}, nil }})
	big := json.RawMessage(`"` + strings.Repeat("x", int(nc.MaxPayload())) + `"`)
	r, err = tools.Call(t.Context(), tool.Call{Name: "t", Arguments: big})
	wantError(t, r, err, "was not called", "the NATS server accepts")
	if _, err := tools.Call(t.Context(), tool.Call{Name: "t", Arguments: json.RawMessage("{")}); err == nil {
		t.Error("Call with invalid arguments succeeds")
	}
}

// lastMoment is a context whose deadline is close whenever a call checks it, however slow the machine is.
type lastMoment struct {
	context.Context

	looks int
}

func (c *lastMoment) Deadline() (time.Time, bool) {
	c.looks++
	return time.Now().Add(100 * time.Millisecond), true
}

// A service that starts while a call waits for it gets the call, once.
func TestServiceComesUp(t *testing.T) {
	t.Parallel()
	server := testbed.NATSServer(t)
	nc, err := server.Conn("caller")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	called := make(chan tool.Result, 1)
	go func() {
		r, err := natstool.New(nc, prefix).Call(t.Context(), tool.Call{Name: "late"})
		if err != nil {
			r = tool.Error(err.Error())
		}
		called <- r
	}()
	runs := make(chan string, 10)
	serve(t, nc, toolkit.Tool{Name: "late", Handler: func(_ context.Context, r toolkit.Call) (toolkit.Result, error) {
		runs <- string(r.Arguments)
		return toolkit.Result{Content: "here"}, nil
	}})
	if r := <-called; r.Content != "here" || len(runs) != 1 || <-runs != "{}" {
		t.Errorf("Call = %+v after %d runs, want one", r, len(runs))
	}
}

// An abort and a time limit end the call at once, and reach the service (A5).
func TestCallEnds(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	started, ended := make(chan struct{}, 1), make(chan error, 1)
	serve(t, nc, toolkit.Tool{Name: "slow", Handler: func(ctx context.Context, _ toolkit.Call) (toolkit.Result, error) {
		started <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return toolkit.Result{}, ctx.Err()
	}})
	tools := natstool.New(nc, prefix)

	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-started; cancel() }()
	if _, err := tools.Call(ctx, tool.Call{Name: "slow"}); !errors.Is(err, context.Canceled) {
		t.Errorf("after an abort: %v", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the service's context: %v", err)
	}

	limited := timeLimit{t.Context(), make(chan struct{})}
	go func() { <-started; close(limited.over) }()
	if _, err := tools.Call(limited, tool.Call{Name: "slow"}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "unknown") {
		t.Errorf("after a time limit: %v", err)
	}
	<-ended
}

// timeLimit is a context whose time limit passes when the test says so.
type timeLimit struct {
	context.Context

	over chan struct{}
}

func (c timeLimit) Done() <-chan struct{} { return c.over }

func (c timeLimit) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Up to Concurrency calls run in parallel, and stop waits for them.
func TestServeConcurrencyAndStop(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	running, release := make(chan string), make(chan struct{})
	stop := serve(t, nc, toolkit.Tool{Name: "t", Concurrency: 2, Handler: func(_ context.Context, r toolkit.Call) (toolkit.Result, error) {
		running <- r.CallID
		<-release
		return toolkit.Result{Content: r.CallID}, nil
	}})
	results := make(chan tool.Result, 3)
	for _, id := range []string{"a", "b", "c"} {
		go func() {
			r, err := natstool.New(nc, prefix).Call(t.Context(), tool.Call{ID: id, Name: "t"})
			if err != nil {
				r = tool.Error(err.Error())
			}
			results <- r
		}()
	}
	<-running
	<-running // two at once, or this blocks
	stopped := make(chan error, 1)
	release <- struct{}{}
	<-running // the third had to wait for a slot
	go func() { stopped <- stop() }()
	close(release)
	if err := <-stopped; err != nil {
		t.Errorf("stop: %v", err)
	}
	seen := map[string]bool{}
	for range 3 {
		r := <-results
		seen[r.Content] = !r.IsError
	}
	if diff := cmp.Diff(map[string]bool{"a": true, "b": true, "c": true}, seen); diff != "" {
		t.Errorf("results:\n%s", diff)
	}
	if _, err := nc.RequestWithContext(t.Context(), toolkit.Subject(prefix, "t"), nil); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("after stop: %v, want no responders", err)
	}
}
