// Package api holds the types of the HTTP API and a client. Their JSON is the contract;
// docs/reference/http.md describes it. The package links neither worker nor broker.
//
//   - [SubmitRequest], [SignalRequest], [BatchRequest] and [ForkRequest] are what clients send.
//   - [Run], [Turn], [Message], [Batch] and [DeadLetter] are what a gateway returns.
//   - [Event] is one event of a run, committed (it has a number) or live.
//   - [Problem] is an error, as application/problem+json with a code.
//
// A [Client] has a method for each request:
//
//	c := api.New("http://127.0.0.1:7070")
//	run, err := c.Submit(ctx, api.SubmitRequest{Agent: "hello", Input: api.Text("Hi")}, "order-17")
//	if err != nil {
//		return err
//	}
//	for event, err := range c.Events(ctx, run.ID, 0) {
//		if err != nil {
//			return err
//		}
//		fmt.Println(event.Seq, event.Type)
//	}
//
// Most Go programs use turnpike.Dial of the module root instead, which returns typed results and retries.
//
// # Guarantees
//
//   - A field is never renamed and never changes its meaning. New ones may appear, so readers
//     must ignore fields that they do not know.
//   - Gateways read requests with [Decode]: it refuses unknown keys, and its error names the place of a mistake.
//   - A submission with a key may be repeated: the same key and content return the same run.
//   - [Client.Events] reconnects by itself. It returns every committed event once, in order; live events
//     that occur while it reconnects are missed.
//   - [Client.Changes] reconnects by itself. It then reports the runs that changed in between, or that it
//     cannot ([ChangesLost]).
//   - An error of the gateway is a *[Problem], with a code from docs/reference/errors.md.
//   - A Client is safe for concurrent use. Except for reconnections it makes each request once.
package api
