package worker_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// A response above the worker's size limit is a failed call with an error that names the limit.
func TestResponseOverTheLimit(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	cfg := s.config()
	cfg.ModelOutput = 1000
	s.work(cfg)
	s.awaitReason(s.submit(state.Limits{}, nil, model.Scripted{Text: strings.Repeat("a", 1000)}), state.EndCompleted)
	st := s.awaitReason(s.submit(state.Limits{}, nil, model.Scripted{Text: strings.Repeat("a", 1001)}), state.EndModelError)
	if st.Error == nil || !strings.Contains(st.Error.Message, "1001 bytes, and at most 1000") {
		t.Errorf("the run ended with %+v", st.Error)
	}
}

// What the model sees of a run has a limit, whatever its provider counts: the history is compacted once, and when it has
// grown beyond the limit again, the run ends.
func TestPromptOverTheLimit(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.tools["look"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
		return tool.Result{Content: strings.Repeat("a", 10_000)}, nil
	})
	cfg := s.config()
	cfg.ModelPrompt = 50_000
	s.work(cfg)
	var responses []model.Scripted
	for range 20 {
		responses = append(responses, model.Scripted{ToolCalls: []model.ScriptedCall{{Name: "look"}}})
	}
	id := s.submit(state.Limits{}, []agent.Tool{{Name: "look", Reuse: new(false)}}, responses...)
	st := s.awaitReason(id, state.EndPromptTooLong)
	if st.Error == nil || !strings.Contains(st.Error.Message, "at most 50000 are allowed") {
		t.Errorf("the run ended with %+v", st.Error)
	}
	compacted := 0
	for _, reason := range s.reasons(id) {
		if reason == state.ReactiveCompactRetry {
			compacted++
		}
	}
	if compacted != 1 {
		t.Errorf("the history was compacted %d times, want once", compacted)
	}
}

// A response with too many calls of tools is a failed call: the work for each grows with their number.
func TestResponseWithTooManyCalls(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.work(s.config())
	respond := func(calls int) state.RunID {
		var r model.Scripted
		for range calls {
			r.ToolCalls = append(r.ToolCalls, model.ScriptedCall{Name: "unknown"})
		}
		return s.submit(state.Limits{}, nil, r, model.Scripted{Text: "done"})
	}
	s.awaitReason(respond(effect.MaxCalls), state.EndCompleted)
	st := s.awaitReason(respond(effect.MaxCalls+1), state.EndModelError)
	if st.Error == nil || !strings.Contains(st.Error.Message, "1001 calls of tools, and at most 1000") {
		t.Errorf("the run ended with %+v", st.Error)
	}
}

// Waits and results repeat the id and the name of a call.
func TestResponseWithALongCall(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.work(s.config())
	long := strings.Repeat("a", 1025)
	for _, c := range []model.ScriptedCall{{ID: long, Name: "unknown"}, {Name: long}} {
		st := s.awaitReason(s.submit(state.Limits{}, nil, model.Scripted{ToolCalls: []model.ScriptedCall{c}}), state.EndModelError)
		if st.Error == nil || !strings.Contains(st.Error.Message, "1025 bytes, and at most 1024") {
			t.Errorf("the run ended with %+v", st.Error)
		}
	}
}

// The tool results of one turn may exceed what the store can write at once. A result beyond the limit becomes
// an error for the model, and the run continues (I2, A7).
func TestResultsOverTheLimit(t *testing.T) {
	t.Parallel()
	picture := state.Image{MediaType: "image/png", Data: base64.StdEncoding.EncodeToString(make([]byte, 512<<10))}
	page := strings.Repeat("<p>", 100<<10/3)
	for name, tt := range map[string]struct {
		result      tool.Result
		calls, kept int
		concurrency string
	}{
		"images":        {tool.Result{Content: "a picture", Images: []state.Image{picture}}, 2, 1, ""},
		"serial images": {tool.Result{Content: "a picture", Images: []state.Image{picture}}, 3, 1, "serial"},
		"texts":         {tool.Result{Content: page}, 12, 8, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDeployment(t)
			nc, err := nats.Connect(testbed.NATSWith(t, func(o *server.Options) { o.MaxPayload = 1 << 20 }).ClientURL())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			store, err := natsstore.Open(t.Context(), nc, natsstore.Config{Prefix: "r" + ulid.Make().String()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			s.store = store
			s.tools["get"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tt.result, nil })
			var calls []model.ScriptedCall
			for i := range tt.calls {
				calls = append(calls, model.ScriptedCall{Name: "get", Arguments: json.RawMessage(`{"n":` + string(rune('0'+i%10)) + `}`)})
			}
			cfg := s.config()
			cfg.LeaseDuration = time.Minute // a call whose worker seems lost on a busy machine has another result
			s.work(cfg)
			id := s.submit(state.Limits{}, []agent.Tool{{Name: "get", Concurrency: tt.concurrency}}, model.Scripted{ToolCalls: calls}, model.Scripted{Text: "end"})
			s.awaitReason(id, state.EndCompleted)
			log, err := s.store.Log(t.Context(), id, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			kept, refused := 0, 0
			for _, m := range state.View(log) {
				if m.Role != state.RoleTool {
					continue
				}
				switch p := m.Parts[0]; {
				case p.IsError && strings.Contains(p.Content, "cannot be stored, since") && len(p.Images) == 0:
					refused++
				case !p.IsError && p.Content == tt.result.Content && len(p.Images) == len(tt.result.Images):
					kept++
				default:
					t.Errorf("result = %.200s", p.Content)
				}
			}
			if kept < tt.kept || kept+refused != tt.calls || refused == 0 {
				t.Errorf("%d results are kept and %d refused, of %d", kept, refused, tt.calls)
			}
		})
	}
}
