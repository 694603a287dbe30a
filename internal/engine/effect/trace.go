package effect

import (
	"cmp"
	"context"
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// spans makes one span for each model call, with its retries, each tool call and each call of a probe. Prompts,
// answers, arguments and results, also those that report an error, are in them only if content is set. Other texts of
// errors are never in them.
type spans struct {
	tracer  trace.Tracer // nil: none
	content bool
}

// model starts the span of a model call, its retries included.
func (sp spans) model(ctx context.Context, t *Turn, m *agent.Model, effect *loop.CallModel) (context.Context, trace.Span) {
	if sp.tracer == nil {
		return ctx, noop.Span{}
	}
	set := append(asked(m), span.ConversationID.String(string(t.Run.ID)), span.AgentName.String(t.Run.Definition().Name))
	if m.Provider != "scripted" {
		set = append(set, span.RequestStream.Bool(true))
	}
	if m.MaxOutputTokens > 0 {
		set = append(set, span.RequestMaxTokens.Int64(m.MaxOutputTokens))
	}
	if len(effect.Schema) > 0 {
		set = append(set, span.OutputType.String("json"))
	}
	if effect.Purpose != loop.ForTurn {
		set = append(set, span.ModelPurpose.String(string(effect.Purpose)))
	}
	ctx, call := sp.tracer.Start(ctx, strings.TrimSpace("chat "+m.Name), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(set...))
	if sp.content && call.IsRecording() {
		instructions, input := span.Input(effect.Messages)
		call.SetAttributes(span.InputMessages.String(input))
		if instructions != "" {
			call.SetAttributes(span.SystemInstruction.String(instructions))
		}
	}
	return ctx, call
}

// asked returns the model of a call as attributes of spans and metrics.
func asked(m *agent.Model) []attribute.KeyValue {
	set := []attribute.KeyValue{span.OperationName.String("chat"), span.ProviderName.String(providerName(m.Provider))}
	if m.Name != "" {
		set = append(set, span.RequestModel.String(m.Name))
	}
	// Its host only: user, path and query may hold a secret.
	u, err := url.Parse(m.BaseURL)
	if err != nil || u.Host == "" {
		return set
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		port = map[string]int{"http": 80, "https": 443}[u.Scheme]
	}
	return append(set, span.ServerAddress.String(u.Hostname()), span.ServerPort.Int(port))
}

// builtin are the providers that ship with Turnpike.
var builtin = model.BuiltinSpecs()

// providerName returns a provider's name in the OpenTelemetry conventions.
func providerName(name string) string { return cmp.Or(builtin[name].System, name) }

// traceFailure adds a failed call of the provider to the span. A retry stays in the same span.
func traceFailure(ctx context.Context, e *model.Error, call int) {
	chat := trace.SpanFromContext(ctx)
	if !chat.IsRecording() {
		return
	}
	set := []attribute.KeyValue{span.ErrorType.String(string(e.Class)), span.ModelCall.Int(call)}
	if e.Status != 0 {
		set = append(set, span.HTTPStatus.Int(e.Status))
	}
	chat.AddEvent("turnpike.model.call_failed", trace.WithAttributes(set...))
}

// endModel ends the span of a model call with its outcome.
func (sp spans) endModel(call trace.Span, ev loop.Event) {
	if !call.IsRecording() {
		return
	}
	switch ev := ev.(type) {
	case loop.ModelResponded:
		r := ev.Response
		reason := finishReason(r.Stop)
		call.SetAttributes(
			span.ResponseModel.String(r.Model), span.FinishReasons.StringSlice([]string{reason}),
			span.UsageInput.Int64(r.Usage.InputTokens), span.UsageOutput.Int64(r.Usage.OutputTokens),
			span.FailedCalls.Int(ev.Failed),
		)
		if n := r.Usage.CacheReadTokens; n > 0 {
			call.SetAttributes(span.UsageCacheRead.Int64(n))
		}
		if n := r.Usage.CacheWriteTokens; n > 0 {
			call.SetAttributes(span.UsageCacheWrite.Int64(n))
		}
		if sp.content {
			call.SetAttributes(span.OutputMessages.String(span.Output(r.Parts, reason)))
		}
	case loop.ModelFailed:
		call.SetAttributes(span.FailedCalls.Int(ev.Failed))
		span.Fail(call, string(ev.Err.Class))
	case loop.ModelDelayed:
		call.SetAttributes(span.ModelDelayed.Bool(true))
	default:
		span.Fail(call, string(model.Cancelled))
	}
	call.End()
}

// finishReason returns a stop reason by its name in the OpenTelemetry conventions, if it has one.
func finishReason(s model.Stop) string {
	switch s {
	case model.StopEnd:
		return "stop"
	case model.StopToolCalls:
		return "tool_call"
	case model.StopMaxOutputTokens:
		return "length"
	default:
		return string(s)
	}
}

// tool starts the span of a tool call. The name of a tool that the agent does not have comes from
// the model, so the span does not contain it.
func (sp spans) tool(ctx context.Context, t *Turn, a *agent.Agent, c state.OpenCall) (context.Context, trace.Span) {
	if sp.tracer == nil {
		return ctx, noop.Span{}
	}
	name := c.Name
	if a.Tool(name) == nil {
		name = "_OTHER"
	}
	ctx, call := sp.tracer.Start(ctx, "execute_tool "+name, trace.WithAttributes(
		span.OperationName.String("execute_tool"), span.ToolName.String(name), span.ToolType.String("function"), span.ToolCallID.String(c.ID),
		span.ConversationID.String(string(t.Run.ID)), span.AgentName.String(t.Run.Definition().Name),
	))
	if sp.content && call.IsRecording() {
		call.SetAttributes(span.ToolArguments.String(span.Text(c.Arguments)))
	}
	return ctx, call
}

// endTool ends the span of a tool call.
func (sp spans) endTool(call trace.Span, o outcome) {
	if !call.IsRecording() {
		return
	}
	switch {
	case o.result == nil:
		span.Fail(call, string(model.Cancelled))
	case o.result.IsError:
		span.Fail(call, "tool_error")
	}
	if sp.content && o.result != nil {
		call.SetAttributes(span.ToolResult.String(span.Text(o.result.Content)))
	}
	call.End()
}

// probe starts the span of a call of a probe.
func (sp spans) probe(ctx context.Context, t *Turn, l lost) (context.Context, trace.Span) {
	if sp.tracer == nil {
		return ctx, noop.Span{}
	}
	return sp.tracer.Start(ctx, "execute_tool "+l.spec.ProbeTool.Name, trace.WithAttributes(
		span.OperationName.String("execute_tool"), span.ToolName.String(l.spec.ProbeTool.Name), span.ToolType.String("function"), span.ToolCallID.String(l.call.ID),
		span.ConversationID.String(string(t.Run.ID)), span.AgentName.String(t.Run.Definition().Name),
	))
}
