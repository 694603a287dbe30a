// Package turnpike runs LLM agents durably inside a Go program: runs survive the death of any process.
//
// A program opens a [Deployment], which connects to NATS with JetStream and, if Options names one, to
// Redis. The Deployment makes the parts that the program needs:
//
//   - a [Worker] takes turns: it claims a run, calls the model and the tools, and commits the result.
//   - a [Client] stores agents, submits runs, follows them and answers them. The Client of a
//     Deployment needs no gateway and no network besides NATS and the store; [Dial] returns the same
//     Client over HTTP.
//   - a [Gateway] serves the HTTP API and the page, as an http.Handler.
//
// A worker with a tool in Go:
//
//	type Refund struct {
//		Order string `jsonschema:"its number"`
//		Cents int
//	}
//
//	func pay(ctx context.Context, r Refund) (string, error) {
//		return "paid " + turnpike.IdempotencyKey(ctx), nil
//	}
//
//	func work(ctx context.Context) error {
//		d, err := turnpike.Open(ctx, turnpike.Options{
//			Tools: []turnpike.Tool{
//				turnpike.NewTool("pay", "Pays back.", pay, turnpike.Idempotent(), turnpike.Approval("args.Cents > 900")),
//			},
//			Models: turnpike.Models{"anthropic": anthropic.New(anthropic.Config{})},
//		})
//		if err != nil {
//			return err
//		}
//		defer d.Close()
//		return d.Work(ctx, turnpike.WorkerOptions{})
//	}
//
// A program that submits a run and decodes its output:
//
//	answer, err := turnpike.Do[Answer](ctx, client, turnpike.Submission{Agent: "clerk", Input: "Order 7 broke."})
//
// # Guarantees
//
// A turn is committed once, by one worker, in one atomic step of the store. When a worker dies, or stops
// before a turn ends, another one continues the turn from the journal: it does not repeat model calls and
// tool calls whose results are in the journal. A tool call whose outcome is unknown starts again only if the
// tool is [Idempotent], or if a [Probe] reports that it was not done, and then with the same [IdempotencyKey].
//
// Submit returns when the store has the run. A [Client] makes up to five tries of each change while the
// servers are unavailable, and the change happens at most once per call, except that [Client.PutAgent] may
// store some definitions twice; [Client.Upload] and [Client.DeleteFile] make one try. Without [FromEnv] a
// Deployment reads no setting, secret or API key from the environment.
//
// Open checks most of its options before it connects, and reports all mistakes in those at once. Contexts
// bound the call that they are passed to, never the run. Goroutines end with the call or the loop that started them,
// those of Open with [Deployment.Close].
package turnpike
