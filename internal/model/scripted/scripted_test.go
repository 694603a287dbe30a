package scripted_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/turnpiketest"
)

func TestProvider(t *testing.T) {
	t.Parallel()
	turnpiketest.Provider(t, turnpiketest.ProviderFeatures{Name: "scripted", CacheRead: true, CacheWrite: true},
		func(_ *testing.T, s turnpiketest.ProviderScript) (model.Provider, model.Request) {
			return scripted.New(), model.Request{Responses: s.Responses, APIKey: turnpiketest.ProviderKey}
		})
}

// Ids that the script omits follow from the call and the slot, so that any worker generates the same.
func TestCallIDs(t *testing.T) {
	t.Parallel()
	r := model.Request{Call: 1, Responses: []model.Scripted{{}, {ToolCalls: []model.ScriptedCall{{Name: "a"}, {Name: "b", ID: "mine"}, {Name: "c"}}}}}
	resp, err := scripted.New().Generate(t.Context(), r, nil)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range (state.Message{Parts: resp.Parts}).Calls() {
		ids = append(ids, c.ID)
	}
	if diff := cmp.Diff([]string{"call_1_0", "mine", "call_1_2"}, ids); diff != "" {
		t.Errorf("ids (-want +got):\n%s", diff)
	}
}

// The deltas of a response are spread over its delay. Without a reader of deltas, the response comes after it.
func TestDelayIsSpread(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		response model.Scripted
		want     []string
	}{
		"a text":            {model.Scripted{Text: "One two three four."}, []string{"1s One ", "2s two ", "3s three ", "4s four."}},
		"a call":            {model.Scripted{ToolCalls: []model.ScriptedCall{{Name: "add"}}}, []string{"2s add", "4s {}"}},
		"no text":           {model.Scripted{}, nil},
		"a text that fails": {model.Scripted{Text: "One two.", Error: model.Transport}, []string{"2s One ", "4s two."}},
		"an error":          {model.Scripted{Error: model.Transport}, nil},
	} {
		test.response.Delay = model.Duration(4 * time.Second)
		r := model.Request{Responses: []model.Scripted{test.response}}
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var got []string
			_, err := scripted.New().Generate(t.Context(), r, func(d model.Delta) {
				got = append(got, fmt.Sprint(time.Since(began), " ", d.Text, d.Name, d.Arguments))
			})
			if diff := cmp.Diff(test.want, got); diff != "" || (err != nil) != (test.response.Error != "") {
				t.Errorf("%s (-want +got): %v\n%s", name, err, diff)
			}
			if took := time.Since(began); took != 4*time.Second {
				t.Errorf("%s took %s", name, took)
			}
			began = time.Now()
			if _, err := scripted.New().Generate(t.Context(), r, nil); (err != nil) != (test.response.Error != "") || time.Since(began) != 4*time.Second {
				t.Errorf("%s without deltas took %s, %v", name, time.Since(began), err)
			}
		})
	}
}

// A response that is interrupted before its first delta has shown nothing.
func TestInterruptedBeforeTheFirstPiece(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		after time.Duration
		said  string
	}{{time.Second, ""}, {3 * time.Second, "One "}} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), test.after)
			defer cancel()
			r := model.Request{Responses: []model.Scripted{{Text: "One two.", Delay: model.Duration(4 * time.Second)}}}
			_, err := scripted.New().Generate(ctx, r, func(model.Delta) {})
			if e, ok := errors.AsType[*model.Error](err); !ok || e.Class != model.Timeout || e.Streamed != (test.said != "") || e.Partial != test.said {
				t.Errorf("after %s: %+v", test.after, err)
			}
		})
	}
}

// FromEnv reads scripts from the environment (K8).
func TestFromEnv(t *testing.T) {
	t.Parallel()
	call := func(id, name, args string) model.ScriptedCall {
		return model.ScriptedCall{ID: id, Name: name, Arguments: json.RawMessage(args)}
	}
	for name, test := range map[string]struct {
		value string
		want  []model.Scripted
	}{
		"texts":             {`["one", "", "{}"]`, []model.Scripted{{Text: "one"}, {}, {Text: "{}"}}},
		"none":              {`[]`, []model.Scripted{}},
		"prompted action":   {`["{\"tool\": \"add\", \"arguments\": {\"a\": 1}}"]`, []model.Scripted{{Text: `{"tool": "add", "arguments": {"a": 1}}`}}},
		"no calls":          {`["{\"tool_calls\": []}"]`, []model.Scripted{{Text: `{"tool_calls": []}`}}},
		"broken JSON":       {`["{\"tool_calls\": [" ]`, []model.Scripted{{Text: `{"tool_calls": [`}}},
		"short form":        {`["{\"tool_calls\": [{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"id\": \"x\", \"name\": \"now\"}]}"]`, []model.Scripted{{ToolCalls: []model.ScriptedCall{call("", "add", `{"a": 1}`), {ID: "x", Name: "now"}}}}},
		"form of OpenAI":    {`["{\"content\": \"Hm\", \"tool_calls\": [{\"id\": \"c1\", \"type\": \"function\", \"function\": {\"name\": \"add\", \"arguments\": \"{\\\"a\\\": 1}\"}}]}"]`, []model.Scripted{{Text: "Hm", ToolCalls: []model.ScriptedCall{call("c1", "add", `"{\"a\": 1}"`)}}}},
		"calls inside text": {`["I would say {\"tool_calls\": [{\"name\": \"add\"}]}"]`, []model.Scripted{{Text: `I would say {"tool_calls": [{"name": "add"}]}`}}},
	} {
		got, err := scripted.FromEnv(test.value)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, value := range []string{``, `null`, `"text"`, `{}`, `[1]`, `[{"text": "a"}]`, `["{\"tool_calls\": [{\"arguments\": {}}]}"]`} {
		if got, err := scripted.FromEnv(value); err == nil {
			t.Errorf("%s: no error, got %+v", value, got)
		}
	}
}

// Arguments in OpenAI's form, a string that contains JSON, become that JSON.
func TestFromEnvArguments(t *testing.T) {
	t.Parallel()
	responses, err := scripted.FromEnv(`["{\"tool_calls\": [{\"function\": {\"name\": \"add\", \"arguments\": \"{\\\"a\\\":1}\"}}, {\"name\": \"add\", \"arguments\": {\"a\":1}}]}"]`)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := scripted.New().Generate(t.Context(), model.Request{Responses: responses}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range (state.Message{Parts: resp.Parts}).Calls() {
		if c.Name != "add" || c.Arguments != `{"a":1}` {
			t.Errorf("call %+v", c)
		}
	}
}

func FuzzFromEnv(f *testing.F) {
	f.Add(`["a", "{\"tool_calls\": [{\"name\": \"x\", \"arguments\": {}}]}"]`)
	f.Add(`["{\"tool_calls\": [{\"function\": {\"name\": \"x\", \"arguments\": \"{\"}}]}"]`)
	f.Fuzz(func(t *testing.T, value string) {
		responses, err := scripted.FromEnv(value)
		if err != nil {
			return
		}
		for i := range responses {
			resp, err := scripted.New().Generate(t.Context(), model.Request{Responses: responses, Call: i}, func(model.Delta) {})
			if err != nil || len(resp.Parts) == 0 {
				t.Fatalf("response %d: %+v, %v", i, resp, err)
			}
		}
	})
}
