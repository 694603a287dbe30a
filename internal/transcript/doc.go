// Package transcript carries histories to and from the message formats of OpenAI (chat completions) and
// Anthropic, so that a run can be continued elsewhere, and what was said elsewhere can begin a run.
//
// A [Document] is a history in one [Format]. [Export] writes one, [Import] reads it:
//
//	doc, err := transcript.Export(transcript.OpenAI, messages)
//	if err != nil {
//		return err
//	}
//	again, err := transcript.Import(doc)
//
// # Guarantees
//
//   - Text, calls and results survive a round trip. What a format has no word for is left out;
//     [Export] says what.
//   - A mistake in a document is refused with its position in it. Whether every call has its result is for whoever
//     takes the messages to check; a gateway does.
package transcript
