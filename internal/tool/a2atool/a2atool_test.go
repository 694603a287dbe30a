package a2atool_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"
	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/tool/a2atool"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// executor is an agent that does what the task says.
type executor struct {
	asked   chan *a2a.Message
	working chan struct{} // closed when it hangs
}

func (e *executor) Execute(ctx context.Context, c *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		e.asked <- c.Message
		what := c.Message.Parts[0].Text()
		status := func(s a2a.TaskState, words string) bool {
			return yield(a2a.NewStatusUpdateEvent(c, s, a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart(words))), nil)
		}
		if what == "say" {
			yield(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("said")), nil)
			return
		}
		if !yield(a2a.NewSubmittedTask(c, c.Message), nil) {
			return
		}
		switch what {
		case "work":
			if !yield(a2a.NewArtifactEvent(c, a2a.NewTextPart("first"), a2a.NewDataPart(map[string]any{"n": 1})), nil) {
				return
			}
			status(a2a.TaskStateCompleted, "done")
		case "fail":
			status(a2a.TaskStateFailed, "no ink left")
		case "ask":
			if !yield(a2a.NewArtifactEvent(c, a2a.NewTextPart("a sketch")), nil) {
				return
			}
			status(a2a.TaskStateInputRequired, "which colour?")
		case "login":
			status(a2a.TaskStateAuthRequired, "log in at the shop")
		case "hang":
			if !status(a2a.TaskStateWorking, "wait") {
				return
			}
			close(e.working)
			<-ctx.Done()
		}
	}
}

func (e *executor) Cancel(_ context.Context, c *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(c, a2a.TaskStateCanceled, nil), nil)
	}
}

// serve runs a real A2A server, and returns its address.
func serve(t *testing.T, e *executor, protocol a2a.TransportProtocol) string {
	t.Helper()
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	handler := a2asrv.NewHandler(e)
	if protocol == a2a.TransportProtocolJSONRPC {
		mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(handler))
	} else {
		mux.Handle("/", a2asrv.NewRESTHandler(handler))
	}
	path := map[a2a.TransportProtocol]string{a2a.TransportProtocolJSONRPC: "/rpc"}[protocol]
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(&a2a.AgentCard{
		Name: "test", SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(server.URL+path, protocol)},
	}))
	return server.URL
}

func call(task string) tool.Call {
	args, _ := json.Marshal(map[string]string{"task": task})
	return tool.Call{ID: "c1", Name: "partner", Arguments: args, IdempotencyKey: "key-" + task}
}

// The remote agent receives the trace to which the request belongs (F6).
func TestTraceParent(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	asked := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Traceparent")
		http.NotFound(w, r)
	}))
	defer server.Close()
	for _, want := range []string{parent, ""} {
		c := call("say")
		c.TraceParent = want
		if r, err := a2atool.New(http.DefaultClient).Agent(server.URL, "").Call(t.Context(), c); err != nil || !r.IsError {
			t.Errorf("Call = %+v, %v", r, err)
		}
		if got := <-asked; got != want {
			t.Errorf("traceparent = %q, want %q", got, want)
		}
	}
}

// A remote agent executes a task, over both bindings; its failures become results (K7).
func TestCall(t *testing.T) {
	t.Parallel()
	for _, protocol := range []a2a.TransportProtocol{a2a.TransportProtocolJSONRPC, a2a.TransportProtocolHTTPJSON} {
		e := &executor{asked: make(chan *a2a.Message, 1)}
		partner := a2atool.New(http.DefaultClient).Agent(serve(t, e, protocol), "")
		for task, want := range map[string]tool.Result{
			"say":  {Content: "said"},
			"work": {Content: "first\n{\"n\":1}"},
			"fail": tool.Error("The remote agent ended its task with the state failed. Continue without its result, or call the tool with another " +
				"task. The agent says: no ink left"),
			"ask": tool.Error("The agent asks for more input, which its task cannot get, so the worker asked it to cancel the task. Call the tool again with the whole task and the " +
				"answer to this: which colour?"),
			"login": tool.Error("The agent requires a login that cannot be given here, so the worker asked it to cancel the task. Continue without the tool. " +
				"The agent says: log in at the shop"),
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // no answer is one, too
			got, err := partner.Call(ctx, call(task))
			cancel()
			if err != nil || !cmp.Equal(got, want) {
				t.Errorf("%s over %s = %+v, %v; want %+v", task, protocol, got, err, want)
			}
			if m := <-e.asked; m.ID != "key-"+task {
				t.Errorf("message id = %q, want the idempotency key", m.ID)
			}
		}
	}
}

// An abort ends the call (A5).
func TestAbort(t *testing.T) {
	t.Parallel()
	e := &executor{asked: make(chan *a2a.Message, 1), working: make(chan struct{})}
	partner := a2atool.New(http.DefaultClient).Agent(serve(t, e, a2a.TransportProtocolJSONRPC), "")
	ctx, abort := context.WithCancel(t.Context())
	go func() { <-e.working; abort() }()
	if r, err := partner.Call(ctx, call("hang")); !errors.Is(err, context.Canceled) {
		t.Errorf("Call = %+v, %v; want it cancelled", r, err)
	}
}

// busy is an agent whose task t1 stays in one state. A read of the task reports itself on polled, and gets no answer.
type busy struct {
	a2asrv.RequestHandler

	state     a2a.TaskState
	polled    chan struct{}
	cancelled []a2a.TaskID
}

func (b *busy) SendMessage(context.Context, *a2a.SendMessageRequest) (a2a.SendMessageResult, error) {
	return &a2a.Task{ID: "t1", ContextID: "c", Status: a2a.TaskStatus{State: b.state}}, nil
}

func (b *busy) GetTask(ctx context.Context, _ *a2a.GetTaskRequest) (*a2a.Task, error) {
	b.polled <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (b *busy) CancelTask(ctx context.Context, r *a2a.CancelTaskRequest) (*a2a.Task, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	b.cancelled = append(b.cancelled, r.ID)
	return &a2a.Task{ID: r.ID, ContextID: "c", Status: a2a.TaskStatus{State: a2a.TaskStateCanceled}}, nil
}

// tool returns the tool of the agent, which it reaches without a network.
func (b *busy) tool() tool.Tool {
	mux := http.NewServeMux()
	mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(b))
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(&a2a.AgentCard{
		Name: "x", SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface("http://partner/rpc", a2a.TransportProtocolJSONRPC)},
	}))
	return a2atool.New(&http.Client{Transport: near{mux}}).Agent("http://partner", "")
}

// near sends requests to a handler in the same process.
type near struct{ http.Handler }

func (n near) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := httptest.NewRecorder()
	n.ServeHTTP(answer, r)
	return answer.Result(), nil
}

// A call that ends asks the agent to cancel its task, between two reads of the task as well as within one: otherwise
// the agent would continue work that no run needs.
func TestAbortCancelsTheTask(t *testing.T) {
	t.Parallel()
	for name, reading := range map[string]bool{"between reads": false, "within a read": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				partner := &busy{state: a2a.TaskStateWorking, polled: make(chan struct{}, 1)}
				ctx, abort := context.WithCancel(t.Context())
				defer abort()
				ended := make(chan error)
				go func() {
					_, err := partner.tool().Call(ctx, call("work"))
					ended <- err
				}()
				if reading {
					<-partner.polled
				} else {
					synctest.Wait()
				}
				abort()
				if err := <-ended; !errors.Is(err, context.Canceled) || !slices.Equal(partner.cancelled, []a2a.TaskID{"t1"}) {
					t.Errorf("Call = %v, cancelled tasks %q; want t1 cancelled", err, partner.cancelled)
				}
			})
		})
	}
}

// A task that waits for something which it cannot get is cancelled, and one that has ended is not.
func TestUnansweredTaskIsCancelled(t *testing.T) {
	t.Parallel()
	for state, want := range map[a2a.TaskState][]a2a.TaskID{
		a2a.TaskStateInputRequired: {"t1"}, a2a.TaskStateAuthRequired: {"t1"}, a2a.TaskStateCompleted: nil, a2a.TaskStateFailed: nil,
	} {
		partner := &busy{state: state}
		if r, err := partner.tool().Call(t.Context(), call("work")); err != nil || !slices.Equal(partner.cancelled, want) {
			t.Errorf("%s: Call = %+v, %v, cancelled tasks %q, want %q", state, r, err, partner.cancelled, want)
		}
	}
}

// Errors of a partner become results for the model. A card may not redirect elsewhere, and the token is sent to
// the partner's host only.
func TestPartners(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	card := func(t *testing.T, address string) string {
		t.Helper()
		mux := http.NewServeMux()
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		mux.HandleFunc(a2asrv.WellKnownAgentCardPath, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer sesame" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			a2asrv.NewStaticAgentCardHandler(&a2a.AgentCard{
				Name: "x", SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(address, a2a.TransportProtocolJSONRPC)},
			}).ServeHTTP(w, r)
		})
		return server.URL
	}
	elsewhere := card(t, other.URL)
	mux := http.NewServeMux()
	plain := httptest.NewServer(mux)
	t.Cleanup(plain.Close)
	secure := "https://" + plain.Listener.Addr().String()
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(&a2a.AgentCard{
		Name: "x", SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(secure, a2a.TransportProtocolJSONRPC)},
	}))
	for name, tt := range map[string]struct{ url, token, want string }{
		"nobody":    {"http://127.0.0.1:1", "", "failed: "},
		"no card":   {other.URL, "", "agent card with 404"},
		"no token":  {elsewhere, "", "agent card with 401"},
		"elsewhere": {elsewhere, "sesame", "names the server"},
		"scheme":    {plain.URL, "", "names the server " + secure + ", but the url of the tool is at " + plain.URL},
	} {
		r, err := a2atool.New(http.DefaultClient).Agent(tt.url, tt.token).Call(t.Context(), call("say"))
		if err != nil || !r.IsError || !strings.Contains(r.Content, tt.want) {
			t.Errorf("%s: Call = %+v, %v; want %q", name, r, err, tt.want)
		}
	}
}

// elsewhere starts a server that must get no request, and counts those that it gets.
func elsewhere(t *testing.T) (*httptest.Server, *atomic.Int32) {
	t.Helper()
	strayed := new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		strayed.Add(1)
		http.NotFound(w, r)
	}))
	t.Cleanup(s.Close)
	return s, strayed
}

// Every address in a card must be that of the agent, whatever its place and its protocol: otherwise the task and the
// token would go to another server.
func TestEveryAddressOfACard(t *testing.T) {
	t.Parallel()
	other, strayed := elsewhere(t)
	card := &a2a.AgentCard{Name: "x"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a2asrv.NewStaticAgentCardHandler(card).ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	for _, protocol := range []a2a.TransportProtocol{a2a.TransportProtocolJSONRPC, a2a.TransportProtocolHTTPJSON, a2a.TransportProtocolGRPC} {
		for _, address := range []string{other.URL, other.URL + "/rpc", "http://agent@" + other.Listener.Addr().String(), "/rpc", "http://%zz"} {
			for _, at := range []int{0, 1, 2} {
				addresses := []*a2a.AgentInterface{a2a.NewAgentInterface(server.URL, a2a.TransportProtocolGRPC), a2a.NewAgentInterface(server.URL+"/x", "of the future")}
				addresses = slices.Insert(addresses, at, a2a.NewAgentInterface(address, protocol))
				card.SupportedInterfaces = addresses
				r, err := a2atool.New(http.DefaultClient).Agent(server.URL, "sesame").Call(t.Context(), call("say"))
				if want := "names the server " + address + ", but"; err != nil || !r.IsError || !strings.Contains(r.Content, want) {
					t.Errorf("%s of %s at position %d: Call = %+v, %v; want %q", address, protocol, at, r, err, want)
				}
			}
		}
	}
	if n := strayed.Load(); n > 0 {
		t.Errorf("another server got %d requests", n)
	}
}

// A redirect is not followed, neither from the card nor from the agent: it would carry the task, and the token, to
// another server, which may be one that only the worker can reach.
func TestRedirects(t *testing.T) {
	t.Parallel()
	other, strayed := elsewhere(t)
	for _, from := range []string{a2asrv.WellKnownAgentCardPath, "/rpc"} {
		mux := http.NewServeMux()
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		away := http.RedirectHandler(other.URL+"/inside", http.StatusTemporaryRedirect)
		mux.Handle(from, away)
		if from == "/rpc" {
			mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(&a2a.AgentCard{
				Name: "x", SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(server.URL+"/rpc", a2a.TransportProtocolJSONRPC)},
			}))
		}
		r, err := a2atool.New(&http.Client{}).Agent(server.URL, "sesame").Call(t.Context(), call("say"))
		if err != nil || !r.IsError {
			t.Errorf("redirect of %s: Call = %+v, %v; want an error", from, r, err)
		}
		if strayed.Load() > 0 {
			t.Errorf("the redirect of %s was followed", from)
		}
	}
}

// The error for an address that the guard refuses names the setting that allows it.
func TestRefusedAddress(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	guard, err := guard.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{server.URL, "https://" + server.Listener.Addr().String()} {
		r, err := a2atool.New(guard.Client()).Agent(url, "").Call(t.Context(), call("say"))
		if err != nil || !r.IsError || !strings.Contains(r.Content, "TURNPIKE_HTTP_ALLOW") {
			t.Errorf("%s: Call = %+v, %v", url, r, err)
		}
	}
}
