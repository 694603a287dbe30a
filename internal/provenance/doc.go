// Package provenance tells whether the arguments of a tool call came out of what tools, the
// web or other agents have said in a run: texts that a stranger may have written.
//
//	if provenance.FromUntrusted(run.Log, call.Arguments) {
//		return "a person must approve it"
//	}
//
// It compares texts and numbers, whatever their spelling, and knows nothing of what they mean. A model that rewrites
// what it has read is not found out; [Seen] is for those who cannot accept that.
//
// # Guarantees
//
//   - What is compared is bounded in bytes and in values, and so is the time.
//   - Where more would have to be compared, or where there is an image or a use of a provider's tool, the answer is yes.
//   - All functions may be called from any goroutine.
package provenance
