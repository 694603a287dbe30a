// Package span is what gateway and workers agree on about traces: how the position of a run in its trace
// is written down, and which words its spans use. The words are those of the OpenTelemetry conventions
// for messaging and for generative AI, as of semconv 1.41; what the conventions have no word for begins
// with "turnpike.".
//
// [Submit] starts the span of a submission, the parent of all turns of the run. [Parent] writes it down
// for the next process, where [Under] takes it up:
//
//	ctx, submit := span.Submit(ctx, tracer, "hello")
//	defer submit.End()
//	message.TraceParent = span.Parent(ctx)
//
//	ctx = span.Under(ctx, message.TraceParent) // in another process
//
// # Guarantees
//
// A trace never carries correctness: what is missing or malformed here costs a line in a picture and
// nothing else. Text in spans is cut to [MaxContent].
package span
