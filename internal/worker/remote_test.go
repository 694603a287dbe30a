package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/tool/a2atool"
	"github.com/turnpike-dev/turnpike/internal/tool/httptool"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// partner is a remote agent that echoes its input.
type partner struct{}

func (partner) Execute(_ context.Context, c *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("done: "+c.Message.Parts[0].Text())), nil)
	}
}

func (partner) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(func(a2a.Event, error) bool) {}
}

// A two_phase run delegates to a remote agent over A2A, with a token from the environment (K7).
func TestRemoteAgent(t *testing.T) {
	t.Setenv("TURNPIKE_SECRET_PARTNER_TOKEN", "sesame")
	mux := http.NewServeMux()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer sesame" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	defer server.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(a2asrv.NewHandler(partner{})))
	mux.Handle(a2asrv.WellKnownAgentCardPath, a2asrv.NewStaticAgentCardHandler(&a2a.AgentCard{
		Name: "partner", SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface(server.URL+"/rpc", a2a.TransportProtocolJSONRPC)},
	}))

	s := newDeployment(t)
	cfg := s.config()
	cfg.Getenv = os.Getenv
	cfg.Kinds[toolspec.A2A] = a2atool.New(http.DefaultClient)
	stop := s.work(cfg)
	id := s.submitTo(agent.Definition{
		Name: "a", Loop: agent.Loop{Type: "two_phase"},
		Tools: []agent.Tool{{Name: "partner", Kind: toolspec.A2A, Own: tool.EncodeSettings(toolspec.Remote{URL: server.URL, Token: "secret://PARTNER_TOKEN"})}},
		Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: `{"agent":"partner","task":"the work"}`}, {Text: "{}"}, {Text: "It is done."}}},
	})
	s.awaitReason(id, state.EndCompleted)
	stop()
	log, err := s.store.Log(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	var session []string
	for _, e := range state.Session(log) {
		session = append(session, e.Type+": "+e.Content)
	}
	want := []string{"user_message: hello", `delegation_request: {"task":"the work"}`, "delegation_response: done: the work", "agent_response: It is done."}
	for i := range want {
		if i >= len(session) || session[i] != want[i] {
			t.Fatalf("session = %q, want %q", session, want)
		}
	}
}

// A tool of kind http sends a request with the arguments of the call and a secret. The secret appears in no
// log, event or transcript.
func TestHTTPTool(t *testing.T) {
	t.Setenv("TURNPIKE_SECRET_WEATHER_KEY", "c4n4ry")
	t.Setenv("WEATHER_KEY", "c4n4ry of the environment")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path+" with "+r.Header.Get("X-Key"))
	}))
	defer server.Close()
	place := strings.TrimPrefix(server.URL, "http://")
	guard, err := guard.New([]string{place})
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	s := newDeployment(t)
	cfg := s.config()
	cfg.Getenv = os.Getenv
	cfg.Kinds[toolspec.HTTP] = httptool.New(guard)
	cfg.Logger = slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	stop := s.work(cfg)
	weather := agent.Tool{Name: "weather", Kind: toolspec.HTTP, Own: tool.EncodeSettings(toolspec.Request{URL: server.URL + "/in/{city}", Headers: map[string]string{"X-Key": "secret://WEATHER_KEY"}})}
	id := s.submitTo(agent.Definition{
		Name: "a", Tools: []agent.Tool{weather, {Name: "metadata", Kind: toolspec.HTTP, Own: tool.EncodeSettings(toolspec.Request{URL: "https://169.254.169.254/latest"})}},
		Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{
			{ToolCalls: []model.ScriptedCall{{Name: "weather", Arguments: []byte(`{"city":"Lisbon"}`)}, {Name: "metadata"}, {Name: "weather"}}}, {Text: "done"},
		}},
	})
	s.awaitReason(id, state.EndCompleted)
	stop()
	var got []string
	for _, m := range s.view(id) {
		if m.Role == state.RoleTool {
			got = append(got, m.Parts[0].Content)
		}
	}
	if len(got) != 3 || got[0] != "/in/Lisbon with [redacted]" || !strings.Contains(got[1], "not a public one") || !strings.Contains(got[2], "city") {
		t.Errorf("results = %q", got)
	}
	log, err := s.store.Log(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	all, err := json.Marshal(log)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(all)+logged.String(), "c4n4ry") {
		t.Error("the secret is in the log of the run or of the worker")
	}
}

// The author of an agent may name a secret, but not one of the worker's own credentials.
func TestOwnCredentialsAreNoSecrets(t *testing.T) {
	t.Setenv("TURNPIKE_NATS_URL", "nats://user:c4n4ry@nats.example")
	asked := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked <- r.Header.Get("X-Key") }))
	defer server.Close()
	guard, err := guard.New([]string{strings.TrimPrefix(server.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	s := newDeployment(t)
	cfg := s.config()
	cfg.Getenv = os.Getenv
	cfg.Kinds[toolspec.HTTP] = httptool.New(guard)
	s.work(cfg)
	id := s.submitTo(agent.Definition{
		Name: "a", Tools: []agent.Tool{{Name: "spy", Kind: toolspec.HTTP, Own: tool.EncodeSettings(toolspec.Request{URL: server.URL, Headers: map[string]string{"X-Key": "secret://TURNPIKE_NATS_URL"}})}},
		Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{call("spy", "c1"), {Text: "done"}}},
	})
	s.awaitReason(id, state.EndCompleted)
	select {
	case key := <-asked:
		t.Errorf("a foreign server received %q", key)
	default:
	}
	if got := s.transcript(id)[2]; !strings.Contains(got, "secret TURNPIKE_NATS_URL is not set") {
		t.Errorf("result = %s", got)
	}
}
