// Package turnpike puts a deployment together: runs of LLM agents that survive the death
// of any process, with tools, loops, hooks and models in Go.
//
// A deployment is a NATS server with JetStream, which carries one message a turn, a store
// of checkpoints in Redis or JetStream, and any number of two kinds of processes:
//
//	client ── HTTP ──▶ gateway ──▶ NATS ──▶ worker ──▶ model, tools
//	                      │                    │
//	                      └──────▶ store ◀─────┘
//
// A [Deployment] is one process's connection to both servers. From it come parts:
//
//   - a worker ([Deployment.NewWorker]) takes turns: it claims a run, asks the model, calls
//     tools, and commits what came of it. [worker.Config] names its tools, loops, hooks and
//     models.
//   - a gateway ([Deployment.NewGateway]) takes agents and runs over HTTP and streams their
//     events. [client.Client] speaks to it.
//
// A durable worker with a tool of its own:
//
//	d, err := turnpike.Open(ctx, turnpike.Config{RedisURL: "redis://127.0.0.1:6379"})
//	if err != nil {
//		return err
//	}
//	defer d.Close()
//	w, err := d.NewWorker(worker.Config{
//		Providers: map[string]model.Provider{"anthropic": anthropic.New(anthropic.Config{})},
//		Keys:      map[string]string{"anthropic": "secret://ANTHROPIC_API_KEY"},
//		Kinds: toolspec.Kinds(map[string]tool.Tool{"timetable": tool.Func(func(ctx context.Context, c tool.Call) (tool.Result, error) {
//			return tool.Result{Content: "The 9:02 leaves from platform 4."}, nil
//		})}),
//	})
//	if err != nil {
//		return err
//	}
//	return w.Run(ctx)
//
// # Guarantees
//
// A turn is committed once, by one worker, in one atomic step of the store. If a worker
// dies before the commit, another one takes the turn when the lease has ended, and goes on
// from the journal: model responses and tool results in it are not asked for again. A tool
// call whose outcome is unknown after a crash is made again only if the agent declares the
// tool idempotent, and then with the same [tool.Call.IdempotencyKey]. Run returns when its
// context has ended and the turns in flight are committed or released, within
// worker.Config.ShutdownGrace.
//
// # What is linked
//
// This package links no provider's SDK and no kind of tool that needs one: those come as
// values in worker.Config. Package standard has all that the worker command has.
//
// The example in examples/embed is a whole program.
package turnpike
