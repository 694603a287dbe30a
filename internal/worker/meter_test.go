package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// histograms returns one line per attribute set: the count and, for deterministic values, the sum.
func histograms(t *testing.T, reader *metric.ManualReader) []string {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Histogram[int64]:
				for _, p := range data.DataPoints {
					lines = append(lines, fmt.Sprintf("%s %s %d times %d {%s}", m.Name, m.Unit, p.Count, p.Sum, p.Attributes.Encoded(attribute.DefaultEncoder())))
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					lines = append(lines, fmt.Sprintf("%s %s %d times {%s}", m.Name, m.Unit, p.Count, p.Attributes.Encoded(attribute.DefaultEncoder())))
				}
			default:
				t.Errorf("%s is %T", m.Name, data)
			}
		}
	}
	slices.Sort(lines)
	return lines
}

// answering is a provider whose models answer with their names.
type answering struct {
	model.Provider

	by map[string][]model.Scripted
}

func (a answering) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	r.Responses = a.by[r.Model]
	return a.Provider.Generate(ctx, r, onDelta)
}

// The metrics of the semantic conventions report the duration of model calls, including retries, and the number
// of tokens.
func TestMeters(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	cfg := s.config()
	reader := metric.NewManualReader()
	cfg.Meter = metric.NewMeterProvider(metric.WithReader(reader))
	usage := model.ScriptedUsage{InputTokens: 30, OutputTokens: 4, CacheReadTokens: 20}
	cfg.Providers["openai"] = answering{s.model, map[string][]model.Scripted{
		"gpt":    {{Error: model.Overloaded, RetryAfter: model.Duration(time.Millisecond)}, {Text: "done", Usage: &usage}},
		"closed": {{Error: model.Auth}},
	}}
	s.work(cfg)
	for _, name := range []string{"gpt", "gpt", "closed"} {
		id := s.submitTo(agent.Definition{Name: name, Model: agent.Model{Provider: "openai", Name: name, BaseURL: "https://models.example/v1"}})
		s.awaitReason(id, map[string]state.Reason{"gpt": state.EndCompleted, "closed": state.EndModelError}[name])
	}
	const asked = "gen_ai.operation.name=chat,gen_ai.provider.name=openai,gen_ai.request.model="
	want := []string{
		"gen_ai.client.operation.duration s 1 times {error.type=auth," + asked + "closed,server.address=models.example,server.port=443}",
		"gen_ai.client.operation.duration s 2 times {" + asked + "gpt,server.address=models.example,server.port=443}",
		"gen_ai.client.token.usage {token} 2 times 60 {" + asked + "gpt,gen_ai.token.type=input,server.address=models.example,server.port=443}",
		"gen_ai.client.token.usage {token} 2 times 8 {" + asked + "gpt,gen_ai.token.type=output,server.address=models.example,server.port=443}",
	}
	if diff := gocmp.Diff(want, histograms(t, reader)); diff != "" {
		t.Errorf("metrics:\n%s", diff)
	}
}

// A tenant with a thousand model names and addresses gets few series, and leaves space for the models of other
// tenants. Models with a price always have a series.
func TestMetersOfManyModels(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	cfg := s.config()
	reader := metric.NewManualReader()
	cfg.Meter = metric.NewMeterProvider(metric.WithReader(reader))
	cfg.Providers["openai"] = answering{s.model, map[string][]model.Scripted{"": nil}}
	s.work(cfg)
	ids := make([]state.RunID, 0, 1000)
	for i := range 1000 {
		name := fmt.Sprintf("m%d", i)
		if i == 999 {
			name = "gpt-5"
		}
		def := agent.Definition{Name: name, Model: agent.Model{Provider: "openai", Name: name}}
		if i%2 == 0 {
			def.Model.BaseURL = fmt.Sprintf("https://h%d.example:%d/v1", i, 1000+i)
		}
		ids = append(ids, s.submitTo(def))
		if i == 0 {
			s.awaitReason(ids[0], state.EndModelError)
		}
	}
	for _, id := range ids {
		s.awaitReason(id, state.EndModelError)
	}
	all := histograms(t, reader)
	if len(all) > 10 {
		t.Errorf("a tenant with 1,000 models has %d series:\n%s", len(all), strings.Join(all, "\n"))
	}
	has := func(lines []string, attribute string) bool {
		return slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, attribute) })
	}
	for _, name := range []string{"request.model=m0,server.address=h0.example,server.port=1000}", "request.model=other}", "request.model=gpt-5}"} {
		if !has(all, name) {
			t.Errorf("no series with %s:\n%s", name, strings.Join(all, "\n"))
		}
	}

	definition := []byte(`{"name":"a","model":{"provider":"openai","name":"own"}}`)
	if _, err := s.store.PutAgent(t.Context(), "another", "a", definition, false); err != nil {
		t.Fatal(err)
	}
	run := state.State{ID: state.RunID(state.RunPrefix + ulid.Make().String()), Tenant: "another", Agent: "a", AgentVersion: 1, Loop: "react", Priority: state.Normal}
	run, err := run.Move(state.Submitted, state.Entry{At: state.At(time.Now()), Messages: []state.Message{state.UserText("hi")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Create(t.Context(), state.NewRun{State: run}); err != nil {
		t.Fatal(err)
	}
	s.awaitReason(run.ID, state.EndModelError)
	if all := histograms(t, reader); !has(all, "request.model=own}") {
		t.Errorf("the model of another tenant has no series:\n%s", strings.Join(all, "\n"))
	}
}
