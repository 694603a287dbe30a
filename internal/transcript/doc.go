// Package transcript converts histories to and from the message formats of OpenAI (chat
// completions) and Anthropic, so that a run can be continued elsewhere, and a conversation from
// elsewhere can begin a run.
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
//   - Text, calls and results survive a round trip. Content that a format cannot express is left out;
//     [Export] lists it.
//   - A document with a mistake is refused with the mistake's position. The caller must check that every
//     call has its result; a gateway does.
package transcript
