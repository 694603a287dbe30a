// Package span defines what gateway and workers share about traces: how the position of a run in its trace
// is encoded, and the names in its spans. The names are those of the OpenTelemetry conventions
// for messaging and for generative AI, as of semconv 1.41; names outside the conventions begin
// with "turnpike.".
//
// [Submit] starts the span of a submission, the parent of all turns of the run. [Parent] encodes it for the next
// process, which passes it to [Under]:
//
//	ctx, submit := span.Submit(ctx, tracer, "hello")
//	defer submit.End()
//	message.TraceParent = span.Parent(ctx)
//
//	ctx = span.Under(ctx, message.TraceParent) // in another process
//
// # Guarantees
//
// Correctness never depends on a trace: missing or malformed data costs a line in a picture and
// nothing else. Text in spans is cut to [MaxContent].
package span
