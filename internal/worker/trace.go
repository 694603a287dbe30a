package worker

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Spans, one a turn, one a model call, one a tool call, nested (F6). What was said
// is in them only where the configuration asks for it, and what an error says never.

const tracerName = "github.com/turnpike-dev/turnpike/internal/worker"

// traceTurn starts the span of a turn. It stands below the submission of the run,
// which the header names, so that a turn whose message was lost is in the same trace
// as the others; the message tells who sent it, which is a link. A run whose gateway
// makes no spans gets its place in a trace here.
func (t *turn) traceTurn(ctx context.Context, msg bus.Turn) (context.Context, trace.Span) {
	if t.w.tracer == nil {
		return ctx, noop.Span{}
	}
	if t.s.TraceSpan == "" {
		t.s.TraceSpan = span.Clean(msg.TraceParent)
	}
	ctx = span.Under(ctx, t.s.TraceSpan)
	ctx, turn := span.Process(ctx, t.w.tracer, t.s.Agent, span.Links(ctx, msg.TraceParent))
	if t.s.TraceSpan == "" {
		t.s.TraceSpan = span.Parent(ctx)
	}
	if turn.IsRecording() {
		turn.SetAttributes(span.Run(t.s)...)
		turn.SetAttributes(span.RunVersion.Int64(t.claim.Version), span.Turn.Int(t.s.CurrentTurn()), span.TurnAttempt.Int(t.claim.Attempt), span.Worker.String(t.w.cfg.ID))
	}
	return ctx, turn
}

// endSpan ends the span of a turn with what it came to.
func (t *turn) endSpan() {
	defer t.span.End()
	turn := t.span
	if !turn.IsRecording() {
		return
	}
	switch {
	case errors.Is(t.gaveUp, errRelease):
		turn.SetAttributes(span.TurnReason.String("released"))
	case t.gaveUp != nil:
		// Its work is lost, or will be done again; the log says why.
		span.Fail(turn, "turn_dropped")
	default:
		turn.SetAttributes(span.Turn.Int(t.s.Turn), span.TurnReason.String(string(t.s.Transition.Reason)))
		if t.s.Status == state.Failed {
			span.Fail(turn, string(t.s.Transition.Reason))
		}
	}
}

// traceModel starts the span of a model call, its retries included.
func (t *turn) traceModel(ctx context.Context, m agent.Model, effect loop.CallModel) (context.Context, trace.Span) {
	if t.w.tracer == nil {
		return ctx, noop.Span{}
	}
	set := append(asked(m), span.ConversationID.String(string(t.s.ID)), span.AgentName.String(t.s.Agent))
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
	ctx, call := t.w.tracer.Start(ctx, strings.TrimSpace("chat "+m.Name), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(set...))
	if t.w.cfg.TraceContent && call.IsRecording() {
		instructions, input := span.Input(effect.Messages)
		call.SetAttributes(span.InputMessages.String(input))
		if instructions != "" {
			call.SetAttributes(span.SystemInstruction.String(instructions))
		}
	}
	return ctx, call
}

// asked returns which model a call asks, as spans and metrics say it.
func asked(m agent.Model) []attribute.KeyValue {
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

// traceFailure notes a call of the provider that failed. What follows, if anything
// does, is a retry within the same span.
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
func (t *turn) endModel(call trace.Span, ev loop.Event) {
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
		if t.w.cfg.TraceContent {
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

// finishReason is a stop reason in the words of the conventions, as far as they have
// one.
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

// traceTool starts the span of a tool call. A tool that the agent does not have is a
// word of the model, and not in the span.
func (t *turn) traceTool(ctx context.Context, a *agent.Agent, c state.OpenCall) (context.Context, trace.Span) {
	if t.w.tracer == nil {
		return ctx, noop.Span{}
	}
	name := c.Name
	if a.Tool(name) == nil {
		name = "_OTHER"
	}
	ctx, call := t.w.tracer.Start(ctx, "execute_tool "+name, trace.WithAttributes(
		span.OperationName.String("execute_tool"), span.ToolName.String(name), span.ToolType.String("function"), span.ToolCallID.String(c.ID),
		span.ConversationID.String(string(t.s.ID)), span.AgentName.String(t.s.Agent),
	))
	if t.w.cfg.TraceContent && call.IsRecording() {
		call.SetAttributes(span.ToolArguments.String(span.Text(c.Arguments)))
	}
	return ctx, call
}

// endTool ends the span of a tool call.
func (t *turn) endTool(call trace.Span, o outcome) {
	if !call.IsRecording() {
		return
	}
	switch {
	case o.result == nil:
		span.Fail(call, string(model.Cancelled))
	case o.result.IsError:
		span.Fail(call, "tool_error")
	}
	if t.w.cfg.TraceContent && o.result != nil {
		call.SetAttributes(span.ToolResult.String(span.Text(o.result.Content)))
	}
	call.End()
}
