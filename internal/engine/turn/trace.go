package turn

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// startSpan starts the span of a turn (F6). Its parent is the submission of the run
// (state.State.TraceSpan), so that a turn whose message was lost is in the same trace as the others.
// The sender of the message is a link. A run whose gateway makes no spans gets its trace here.
func (k *Taker) startSpan(ctx context.Context, t *turn, msg bus.Turn) (context.Context, trace.Span) {
	if k.cfg.Tracer == nil {
		return ctx, noop.Span{}
	}
	if t.s.TraceSpan == "" {
		t.join(span.Clean(msg.TraceParent))
	}
	ctx = span.Under(ctx, t.s.TraceSpan)
	ctx, turn := span.Process(ctx, k.cfg.Tracer, t.s.Definition().Name, span.Links(ctx, msg.TraceParent))
	if t.s.TraceSpan == "" {
		t.join(span.Parent(ctx))
	}
	if turn.IsRecording() {
		turn.SetAttributes(span.Run(*t.s)...)
		turn.SetAttributes(span.RunVersion.Int64(t.claim.Version), span.Turn.Int(t.s.CurrentTurn()), span.TurnAttempt.Int(t.claim.Attempt), span.Worker.String(k.cfg.Worker))
	}
	return ctx, turn
}

// join makes trace the parent of all spans of the run.
func (t *turn) join(trace string) {
	joined := *t.s
	joined.TraceSpan = trace
	t.become(&joined)
}

// endSpan ends the span of a turn with its outcome.
func (t *turn) endSpan() {
	defer t.span.End()
	turn := t.span
	if !turn.IsRecording() {
		return
	}
	switch {
	case errors.Is(t.gaveUp, effect.ErrRelease):
		turn.SetAttributes(span.TurnReason.String("released"))
	case t.gaveUp != nil:
		// Its work is lost, or will be repeated; the log has the cause.
		span.Fail(turn, "turn_dropped")
	default:
		turn.SetAttributes(span.Turn.Int(t.s.Turn), span.TurnReason.String(string(t.s.Transition.Reason)))
		if t.s.Status == state.Failed {
			span.Fail(turn, string(t.s.Transition.Reason))
		}
	}
}
