// Package api holds the types of the HTTP API: what gateway, clients and the event stream send
// each other. Their JSON is the contract; docs/reference/http.md describes it.
//
//   - [SubmitRequest], [SignalRequest], [BatchRequest] and [ForkRequest] are what clients send.
//   - [Run], [Turn], [Message], [Batch] and [DeadLetter] are what a gateway answers.
//   - [Event] is one event of a run, committed (it has a number) or live.
//   - [Problem] is an error, as application/problem+json with a code.
//
// A program that does not use package client reads answers like this:
//
//	var run api.Run
//	if err := json.Unmarshal(body, &run); err != nil {
//		return err
//	}
//	done := run.Terminal()
//
// # Guarantees
//
//   - A field is never renamed and never changes its meaning. New ones may come, so readers
//     ignore those that they do not know.
//   - Requests are read by [Decode]: unknown keys are refused, and the place of a mistake is named.
package api
