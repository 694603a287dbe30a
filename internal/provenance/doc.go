// Package provenance reports whether the arguments of a tool call contain values from texts of
// tools, the web or other agents in a run: texts that a stranger may have written.
//
//	if provenance.FromUntrusted(run.Log, call.Arguments) {
//		return "a person must approve it"
//	}
//
// It compares texts and numbers, whatever their spelling, and not their meaning. It does not detect values that a model
// has rewritten; callers that cannot accept that use [Seen].
//
// # Guarantees
//
//   - The comparison is bounded in bytes and in values, and so in time.
//   - Where more would have to be compared, or where there is an image or a use of a provider's tool, the answer is yes.
//     So it is if a checkpoint of the log stands for untrusted text that is not in the view any more.
//   - All functions may be called from any goroutine.
package provenance
