package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// words lists the attributes of the semantic conventions that these spans may have, each with a value of its
// type.
var words = []attribute.KeyValue{
	semconv.GenAIOperationNameChat, semconv.GenAIProviderNameOpenAI, semconv.GenAIOutputTypeJSON,
	semconv.GenAIAgentName("a"), semconv.GenAIAgentVersion("1"), semconv.GenAIConversationID("run"),
	semconv.GenAIRequestModel("gpt"), semconv.GenAIRequestMaxTokens(99), semconv.GenAIRequestStream(true),
	semconv.GenAIResponseModel("gpt"), semconv.GenAIResponseFinishReasons("stop"),
	semconv.GenAIUsageInputTokens(1), semconv.GenAIUsageOutputTokens(1), semconv.GenAIUsageCacheReadInputTokens(1), semconv.GenAIUsageCacheCreationInputTokens(1),
	semconv.GenAIToolName("t"), semconv.GenAIToolType("function"), semconv.GenAIToolCallID("c1"),
	semconv.ErrorTypeOther, semconv.ServerAddress("x"), semconv.ServerPort(443),
	semconv.MessagingSystemKey.String("nats"), semconv.MessagingOperationName("turn"), semconv.MessagingOperationTypeProcess, semconv.MessagingDestinationName("turn"),
}

// Span attributes of the semantic conventions have the required types, and required attributes are present. No
// attribute contains content (F6).
func TestWordsOfTheConventions(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.tools["add"] = tool.Func(func(context.Context, tool.Call) (tool.Result, error) { return tool.Error("no"), nil })
	recorder := tracetest.NewSpanRecorder()
	cfg := s.config()
	cfg.Tracer = trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
	cfg.Providers["openai"] = answering{s.model, map[string][]model.Scripted{"gpt": {
		call("add", "c1"), {Text: "done", Usage: &model.ScriptedUsage{InputTokens: 30, OutputTokens: 4, CacheReadTokens: 10, CacheWriteTokens: 5}},
	}}}
	s.work(cfg)
	id := s.submitTo(agent.Definition{
		Name: "a", Tools: []agent.Tool{{Name: "add"}},
		Model: agent.Model{Provider: "openai", Name: "gpt", BaseURL: "https://models.example/v1", MaxOutputTokens: 99},
	})
	s.awaitReason(id, state.EndCompleted)
	s.await(id, "five spans", func(state.State) bool { return len(recorder.Ended()) == 5 })

	types := map[attribute.Key]attribute.Type{}
	for _, w := range words {
		types[w.Key] = w.Value.Type()
	}
	required := map[string][]string{
		"turn a": {"gen_ai.agent.name=a", "gen_ai.agent.version=1", "gen_ai.conversation.id=" + string(id), "gen_ai.operation.name=invoke_agent"},
		"chat gpt": {
			"gen_ai.agent.name=a", "gen_ai.conversation.id=" + string(id), "gen_ai.operation.name=chat", "gen_ai.provider.name=openai", "gen_ai.request.max_tokens=99",
			"gen_ai.request.model=gpt", "gen_ai.request.stream=true", "server.address=models.example", "server.port=443",
		},
		"execute_tool add": {
			"error.type=tool_error", "gen_ai.agent.name=a", "gen_ai.conversation.id=" + string(id), "gen_ai.operation.name=execute_tool", "gen_ai.tool.call.id=c1",
			"gen_ai.tool.name=add", "gen_ai.tool.type=function",
		},
	}
	for _, span := range recorder.Ended() {
		var has []string
		for _, kv := range span.Attributes() {
			if want, known := types[kv.Key]; known && kv.Value.Type() != want {
				t.Errorf("%s: %s is %s, want %s", span.Name(), kv.Key, kv.Value.Type(), want)
			} else if !known && !strings.HasPrefix(string(kv.Key), "turnpike.") {
				t.Errorf("%s: the conventions do not define %s", span.Name(), kv.Key)
			}
			has = append(has, string(kv.Key)+"="+kv.Value.String())
		}
		missing := slices.DeleteFunc(slices.Clone(required[span.Name()]), func(want string) bool { return slices.Contains(has, want) })
		if required[span.Name()] == nil || len(missing) > 0 {
			t.Errorf("%s: lacks\n%s", span.Name(), gocmp.Diff(missing, has))
		}
	}
}
