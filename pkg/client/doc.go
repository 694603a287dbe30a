// Package client talks to a Turnpike gateway over HTTP. It links neither worker nor broker.
//
// A [Client] has a method for each request of the API, in the types of package api:
//
//	c := client.New("http://127.0.0.1:7070")
//	run, err := c.Submit(ctx, api.SubmitRequest{Agent: "hello", Input: client.Text("Hi")}, "order-17")
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
// # Guarantees
//
//   - A submission with a key may be repeated: the same key gives the same run.
//   - [Client.Events] reconnects by itself. Committed events come without gap or double; live ones
//     of the meantime are missed.
//   - [Client.Changes] reconnects by itself, and tells how the runs stand that have changed
//     meanwhile, or that it cannot (api.ChangesLost).
//   - What a gateway refuses is an *api.Problem, with a code from docs/reference/errors.md.
//   - A Client is safe for concurrent use.
package client
