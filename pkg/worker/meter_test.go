package worker_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// histograms returns what was measured: a line for each set of attributes, with how
// often and, for numbers that are known beforehand, how much.
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

// answering is a provider whose models answer by their names.
type answering struct {
	model.Provider

	by map[string][]model.Scripted
}

func (a answering) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	r.Responses = a.by[r.Model]
	return a.Provider.Generate(ctx, r, onDelta)
}

// The metrics of the conventions: how long calls of a model take, with their retries,
// and how many tokens.
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
