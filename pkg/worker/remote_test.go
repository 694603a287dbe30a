package worker_test

import (
	"context"
	"iter"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool/a2atool"
)

// partner is a remote agent that answers with what it was told.
type partner struct{}

func (partner) Execute(_ context.Context, c *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("done: "+c.Message.Parts[0].Text())), nil)
	}
}

func (partner) Cancel(context.Context, *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(func(a2a.Event, error) bool) {}
}

// K7: a two_phase run delegates to a remote agent, over A2A, with a token that only
// the environment knows.
func TestRemoteAgent(t *testing.T) {
	t.Setenv("PARTNER_TOKEN", "sesame")
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

	s := newSite(t)
	cfg := s.config()
	cfg.RemoteAgents = a2atool.New
	stop := s.work(cfg)
	id := s.submitTo(agent.Definition{
		Name: "a", Loop: agent.Loop{Type: "two_phase"},
		Tools: []agent.Tool{{Name: "partner", Kind: agent.KindA2A, URL: server.URL, Token: "secret://PARTNER_TOKEN"}},
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
