// Package toolkit serves tools that agents call over NATS. It does not depend on workers and gateways: a
// program that serves tools links the NATS client and little else.
//
//	func convert(ctx context.Context, c toolkit.Call, in Query) (Answer, error) { return in.convert() }
//
//	func main() {
//		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
//		defer stop()
//		var cfg toolkit.Config
//		toolkit.FromEnv(&cfg)
//		if err := toolkit.Run(ctx, cfg, toolkit.Func("convert", "Converts quantities.", convert)); err != nil {
//			log.Fatal(err)
//		}
//	}
//
// Every tool is a NATS micro service of its name: `nats micro ls` and `turnpike tools ls` find it, with
// its schema and its statistics. docs/how-to/nats-tools.md describes the protocol for other languages.
//
// # Guarantees
//
//   - The schema of a tool made by [Func] is derived from its input type. Arguments that do not match it
//     never reach the function.
//   - During a call the instance sends heartbeats, so a worker need not wait for the deadline of one
//     that has died.
//   - A panic is an error of its call only. [Run] returns when its context has ended and the calls in
//     flight are answered.
package toolkit
