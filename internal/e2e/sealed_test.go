package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
)

// A model's thinking is stored in the checkpoint unchanged, goes back to the same model family byte for byte,
// and to no other (A12).
func TestSealedThinking(t *testing.T) {
	t.Parallel()
	const thought = "The tool <knows> & tells."
	const foreign = `"thoughtSignature":"c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="` // Google's value for calls of other models
	for name, test := range map[string]struct {
		model    string // of the agent, without its address
		fails    string // pattern of a model that fails in the second turn
		path     string // the path that answers the second turn
		kept     string // expected in the request of the second turn
		withheld string
	}{
		"responses": {`"provider":"openai","api":"responses","name":"gpt-5.1"`, "", "/v1/responses", `"encrypted_content":`, ""},
		"chat":      {`"provider":"openai","name":"qwen3"`, "", "/v1/chat/completions", `"reasoning_content":`, ""},
		"anthropic": {`"provider":"anthropic","name":"claude-opus-5"`, "", "/v1/messages", `"signature":`, ""},
		"gemini":    {`"provider":"gemini","name":"gemini-3-pro-preview"`, "", "/v1/models/gemini-3-pro-preview:streamGenerateContent", `"thoughtSignature":`, foreign},
		"another Gemini": {
			`"provider":"gemini","name":"gemini-3-pro-preview","fallback":[{"provider":"gemini","name":"gemini-3-flash","base_url":"%[1]s"}]`,
			"^gemini-3-pro", "/v1beta/models/gemini-3-flash:streamGenerateContent", foreign, "",
		},
		"another family": {
			`"provider":"openai","api":"responses","name":"gpt-5.1","fallback":[{"provider":"openai","api":"responses","name":"gpt-6","base_url":"%[1]s/v1"}]`,
			"^gpt-5", "/v1/responses", `"function_call"`, "encrypted_content\":",
		},
		"another provider": {
			`"provider":"openai","api":"responses","name":"gpt-5.1","fallback":[{"provider":"anthropic","name":"claude-opus-5","base_url":"%[1]s"}]`,
			"^gpt-5", "/v1/messages", `"tool_use"`, "signature",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := mockmodel.Response{Scripted: model.Scripted{Thinking: thought, ToolCalls: []model.ScriptedCall{{ID: "call_1", Name: "nothing"}}}}
			last := mockmodel.Response{Scripted: model.Scripted{Text: "done"}}
			cfg := mockmodel.Config{Scripts: []mockmodel.Script{{Responses: []mockmodel.Response{first, last}}}}
			if test.fails != "" {
				refused := mockmodel.Response{Scripted: model.Scripted{Error: model.Quota}}
				cfg.Scripts = append([]mockmodel.Script{{Model: test.fails, Responses: []mockmodel.Response{first, refused, refused, refused}}}, cfg.Scripts...)
			}
			mock, err := mockmodel.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var asked [][2]string // path, body
			h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				mu.Lock()
				asked = append(asked, [2]string{r.URL.Path, string(body)})
				mu.Unlock()
				r.Body = io.NopCloser(bytes.NewReader(body))
				mock.ServeHTTP(w, r)
			}))
			t.Cleanup(h.Close)

			store, err := natsstore.Open(t.Context(), testbed.NATS(t), natsstore.Config{Prefix: "s" + ulid.Make().String()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			address := h.URL
			if !strings.Contains(test.model, "anthropic") || strings.Contains(test.model, "openai") {
				address += "/v1"
			}
			definition := `{"name":"a","model":{"base_url":"` + address + `",` + test.model + `}}`
			if strings.Contains(definition, "%[1]s") {
				definition = fmt.Sprintf(definition, h.URL)
			}
			if _, err := store.PutAgent(t.Context(), state.DefaultTenant, "a", []byte(definition), false); err != nil {
				t.Fatal(err)
			}
			run, err := state.State{
				ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: "default",
				Priority: state.Normal, Limits: state.Limits{MaxTurns: 5},
			}.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("hello")}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := store.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: time.Millisecond}); err != nil {
				t.Fatal(err)
			}
			w, err := worker.New(store, membus.New(), worker.Config{
				ID: "w", Slots: 4, ShutdownGrace: time.Second,
				Providers: map[string]model.Provider{"openai": openai.New(openai.Config{}), "anthropic": anthropic.New(anthropic.Config{}), "gemini": gemini.New(gemini.Config{})},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			var group sync.WaitGroup
			t.Cleanup(func() { stop(); group.Wait() })
			group.Go(func() {
				if err := w.Run(ctx); err != nil {
					t.Errorf("Run: %v", err)
				}
			})
			eventually(t, "run", func() error {
				s, err := store.Load(t.Context(), run.ID)
				if err == nil && s.Status != state.Completed {
					err = fmt.Errorf("is %s (%s)", s.Status, s.Transition.Reason)
				}
				return err
			})
			mu.Lock()
			defer mu.Unlock()
			answered := asked[len(asked)-1]
			if !json.Valid([]byte(answered[1])) || answered[0] != test.path || !strings.Contains(answered[1], test.kept) {
				t.Errorf("requested %s with %s, want %s with %s", answered[0], answered[1], test.path, test.kept)
			}
			if test.withheld != "" && strings.Contains(answered[1], test.withheld) {
				t.Errorf("%s is in %s", test.withheld, answered[1])
			}
		})
	}
}
