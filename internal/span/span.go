package span

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Header is the header of a trace context, in HTTP and NATS.
const Header = "traceparent"

// Parent returns the span of ctx as a W3C traceparent, or "" if ctx has no span.
func Parent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[Header]
}

// Under returns ctx with the span that parent names as the current one. A parent
// that is empty or malformed leaves ctx without a span.
func Under(ctx context.Context, parent string) context.Context {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	if parent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{Header: parent})
}

// Clean returns a traceparent from outside in the form that Parent writes, or "" if it is invalid.
func Clean(parent string) string {
	if parent == "" {
		return ""
	}
	return Parent(Under(context.Background(), parent))
}

// Links returns a link to the span that parent names, unless parent is invalid or names the span of
// ctx.
func Links(ctx context.Context, parent string) []trace.Link {
	if parent == "" {
		return nil
	}
	to := trace.SpanContextFromContext(Under(context.Background(), parent))
	if !to.IsValid() || to.SpanID() == trace.SpanContextFromContext(ctx).SpanID() {
		return nil
	}
	return []trace.Link{{SpanContext: to}}
}

// Keys of attributes. Those of the conventions come first.
const (
	ErrorType         = attribute.Key("error.type")
	AgentName         = attribute.Key("gen_ai.agent.name")
	AgentVersion      = attribute.Key("gen_ai.agent.version")
	ConversationID    = attribute.Key("gen_ai.conversation.id")
	InputMessages     = attribute.Key("gen_ai.input.messages")
	OperationName     = attribute.Key("gen_ai.operation.name")
	OutputMessages    = attribute.Key("gen_ai.output.messages")
	OutputType        = attribute.Key("gen_ai.output.type")
	ProviderName      = attribute.Key("gen_ai.provider.name")
	RequestMaxTokens  = attribute.Key("gen_ai.request.max_tokens")
	RequestModel      = attribute.Key("gen_ai.request.model")
	RequestStream     = attribute.Key("gen_ai.request.stream")
	FinishReasons     = attribute.Key("gen_ai.response.finish_reasons")
	ResponseModel     = attribute.Key("gen_ai.response.model")
	SystemInstruction = attribute.Key("gen_ai.system_instructions")
	ToolArguments     = attribute.Key("gen_ai.tool.call.arguments")
	ToolCallID        = attribute.Key("gen_ai.tool.call.id")
	ToolResult        = attribute.Key("gen_ai.tool.call.result")
	ToolName          = attribute.Key("gen_ai.tool.name")
	TokenType         = attribute.Key("gen_ai.token.type")
	ToolType          = attribute.Key("gen_ai.tool.type")
	UsageCacheWrite   = attribute.Key("gen_ai.usage.cache_creation.input_tokens")
	UsageCacheRead    = attribute.Key("gen_ai.usage.cache_read.input_tokens")
	UsageInput        = attribute.Key("gen_ai.usage.input_tokens")
	UsageOutput       = attribute.Key("gen_ai.usage.output_tokens")
	HTTPMethod        = attribute.Key("http.request.method")
	HTTPStatus        = attribute.Key("http.response.status_code")
	HTTPRoute         = attribute.Key("http.route")
	MessagingSystem   = attribute.Key("messaging.system")
	MessagingName     = attribute.Key("messaging.operation.name")
	MessagingType     = attribute.Key("messaging.operation.type")
	Destination       = attribute.Key("messaging.destination.name")
	ServerAddress     = attribute.Key("server.address")
	ServerPort        = attribute.Key("server.port")
	URLPath           = attribute.Key("url.path")
	URLScheme         = attribute.Key("url.scheme")

	RunID        = attribute.Key("turnpike.run.id")
	RunVersion   = attribute.Key("turnpike.run.version")
	RunExisting  = attribute.Key("turnpike.run.existing") // a submission was repeated under its key
	ParentRunID  = attribute.Key("turnpike.run.parent")
	BatchID      = attribute.Key("turnpike.batch.id")
	Turn         = attribute.Key("turnpike.turn")
	TurnAttempt  = attribute.Key("turnpike.turn.attempt")
	TurnReason   = attribute.Key("turnpike.turn.reason")
	Worker       = attribute.Key("turnpike.worker.id")
	ModelPurpose = attribute.Key("turnpike.model.purpose")
	ModelDelayed = attribute.Key("turnpike.model.delayed")      // no call: the run waits for a rate limit
	ModelCall    = attribute.Key("turnpike.model.call")         // from 1, within the span
	FailedCalls  = attribute.Key("turnpike.model.failed_calls") // before the one that counts
)

// The words for a message of the queue. There is one real bus.
const (
	system      = "nats"
	destination = "turn"
)

// Submit starts the span of the submission of a run: the parent of all its turns.
func Submit(ctx context.Context, tracer trace.Tracer, agent string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	return tracer.Start(ctx, "submit "+agent, append(options, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		MessagingSystem.String(system), MessagingName.String("submit"), MessagingType.String("send"), Destination.String(destination),
		AgentName.String(agent),
	))...)
}

// Process starts the span of a turn, under ctx and with links to whatever else led
// to it.
func Process(ctx context.Context, tracer trace.Tracer, agent string, links []trace.Link) (context.Context, trace.Span) {
	return tracer.Start(ctx, "turn "+agent, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithLinks(links...), trace.WithAttributes(
		MessagingSystem.String(system), MessagingName.String("turn"), MessagingType.String("process"), Destination.String(destination),
		OperationName.String("invoke_agent"), AgentName.String(agent),
	))
}

// Run returns what tells the run of a span.
func Run(s state.State) []attribute.KeyValue {
	set := []attribute.KeyValue{RunID.String(string(s.ID)), ConversationID.String(string(s.ID)), AgentVersion.String(strconv.Itoa(s.AgentVersion))}
	if s.Parent != nil {
		set = append(set, ParentRunID.String(string(s.Parent.RunID)))
	}
	if batch := s.BatchID(); batch != "" {
		set = append(set, BatchID.String(batch))
	}
	return set
}

// Fail marks a span as failed. class must be from a closed set, and not the text of an error, which may
// contain a secret that a provider has repeated.
func Fail(s trace.Span, class string) {
	s.SetAttributes(ErrorType.String(class))
	s.SetStatus(codes.Error, class)
}

// Carried returns the trace context of a run's message: the span of ctx, or else the place of the run in
// its trace, if this process makes no spans.
func Carried(ctx context.Context, place string) string {
	if parent := Parent(ctx); parent != "" {
		return parent
	}
	return place
}
