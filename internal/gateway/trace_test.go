package gateway_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

const callerIn = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// newGateway returns a gateway without workers.
func newGateway(t *testing.T, cfg gateway.Config) (url string, store state.Store) {
	t.Helper()
	store = memstore.New(memstore.Config{})
	cfg.Logger = slog.New(slog.DiscardHandler)
	g, err := gateway.New(store, membus.New(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	if _, err := api.New(server.URL).PutAgent(t.Context(), "a", []byte(`{"name":"a","model":{"provider":"scripted","responses":[{"text":"x"}]}}`)); err != nil {
		t.Fatal(err)
	}
	return server.URL, store
}

// post sends a request under a trace context and returns the path of the created object.
func post(t *testing.T, url, body, parent string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Traceparent", parent)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.Header.Get("Location")
}

func traceOf(t *testing.T, store state.Store, path string) string {
	t.Helper()
	st, err := store.Load(context.WithoutCancel(t.Context()), state.RunID(strings.TrimPrefix(path, "/v1/runs/")))
	if err != nil {
		t.Fatal(err)
	}
	return st.TraceSpan
}

// A gateway without a tracer passes on the caller's trace context if it is valid.
func TestTraceIsKept(t *testing.T) {
	t.Parallel()
	url, store := newGateway(t, gateway.Config{})
	for sent, want := range map[string]string{callerIn: callerIn, "": "", "not a trace": "", callerIn + strings.Repeat("0", 4000): ""} {
		if got := traceOf(t, store, post(t, url+"/v1/runs", `{"agent":"a","input":"x"}`, sent)); got != want {
			t.Errorf("sent %.80q, kept %q", sent, got)
		}
	}
}

// A submission span is a child of the caller's span, and the run a child of the submission. The caller's
// sampling decision holds. Failures record their class and no text (F6).
func TestSubmissionSpans(t *testing.T) {
	t.Parallel()
	recorder := tracetest.NewSpanRecorder()
	url, store := newGateway(t, gateway.Config{Tracer: trace.NewTracerProvider(trace.WithSpanProcessor(recorder))})
	path := post(t, url+"/v1/runs", `{"agent":"a","input":"x"}`, callerIn)
	if got := traceOf(t, store, path); got[:35] != callerIn[:35] || got[36:52] == callerIn[36:52] {
		t.Errorf("the run has trace %q", got)
	}
	post(t, url+path+"/fork", `{"turn":0}`, "")
	post(t, url+path+"/cancel", `{}`, "")
	post(t, url+"/v1/runs", `{"agent":"canary","input":"x"}`, "")
	unsampled := strings.TrimSuffix(callerIn, "1") + "0"
	if got := traceOf(t, store, post(t, url+"/v1/runs", `{"agent":"a","input":"x"}`, unsampled)); got[:35] != callerIn[:35] || !strings.HasSuffix(got, "-00") {
		t.Errorf("the run whose caller is not sampled has trace %q", got)
	}
	names := map[string]string{"b7ad6b7169203331": "caller", "0000000000000000": "nothing"}
	for _, s := range recorder.Ended() {
		names[s.SpanContext().SpanID().String()] = s.Name()
	}
	var got []string
	for _, s := range recorder.Ended() {
		line := s.Name() + " < " + names[s.Parent().SpanID().String()]
		for _, link := range s.Links() {
			line += " ~ " + names[link.SpanContext.SpanID().String()]
		}
		got = append(got, line)
		for _, kv := range s.Attributes() {
			if strings.Contains(kv.Value.String(), "canary") {
				t.Errorf("%s says %s", s.Name(), kv.Value.String())
			}
		}
	}
	slices.Sort(got)
	want := []string{
		"POST /v1/runs < caller", "POST /v1/runs < nothing", "POST /v1/runs/{id}/cancel < nothing ~ submit a",
		"POST /v1/runs/{id}/fork < nothing ~ submit a", "PUT /v1/agents/{name} < nothing",
		"submit a < POST /v1/runs", "submit a < POST /v1/runs/{id}/fork",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans:\n%s", diff)
	}
}

// The span of a request has its method, its route, its path, how it arrived and the status of the response. Only a
// status of 500 or more marks it as failed.
func TestSpanOfARequest(t *testing.T) {
	t.Parallel()
	for scheme, status := range map[string]string{"http": "404", "https": "503"} {
		recorder := tracetest.NewSpanRecorder()
		store := &unreadable{Store: memstore.New(memstore.Config{}), fails: status == "503"}
		g, err := gateway.New(store, membus.New(), gateway.Config{Tracer: trace.NewTracerProvider(trace.WithSpanProcessor(recorder)), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, scheme+"://localhost/v1/runs/run_01J0000000000000000000000A/cancel", strings.NewReader("{}"))
		g.Handler().ServeHTTP(httptest.NewRecorder(), r)
		ended := recorder.Ended()
		if len(ended) != 1 {
			t.Fatalf("%d spans, want 1", len(ended))
		}
		got := map[string]string{}
		for _, kv := range ended[0].Attributes() {
			got[string(kv.Key)] = kv.Value.String()
		}
		want := map[string]string{
			"http.request.method": "POST", "http.route": "/v1/runs/{id}/cancel", "url.path": "/v1/runs/run_01J0000000000000000000000A/cancel", "url.scheme": scheme, "http.response.status_code": status,
		}
		if status == "503" {
			want["error.type"] = "503"
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", scheme, diff)
		}
	}
}

// unreadable is a store that fails to read runs, if fails is true.
type unreadable struct {
	state.Store

	fails bool
}

func (u *unreadable) Load(ctx context.Context, id state.RunID) (state.State, error) {
	if u.fails {
		return state.State{}, errors.New("broken")
	}
	return u.Store.Load(ctx, id)
}
