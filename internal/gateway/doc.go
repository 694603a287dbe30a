// Package gateway takes in what comes from outside: runs, signals, aborts and agents over HTTP, and
// submissions and aborts over the bus. It authenticates callers, decodes requests and encodes what package
// service returns, which makes every check and change. It serves the events of runs from the store.
//
// A [Gateway] is made of a store and a bus, and configured by [Config]. Whoever wants it with the
// connections to both uses package turnpike instead.
//
//	g, err := gateway.New(store, b, gateway.Config{Logger: log})
//	if err != nil {
//		return err
//	}
//	go g.Run(ctx) // submissions over the bus
//	err = http.ListenAndServe(":8080", g.Handler())
//
// # Guarantees
//
//   - A run is durable before its submission is answered. If the message of its first turn is lost,
//     the sweeper of a worker publishes another.
//   - It keeps nothing of a run in memory, so any number may run and any of them answers.
//   - A reader of events misses nothing and sees nothing twice, whichever gateway it comes back to.
//   - It links no model SDK and makes no tool calls.
package gateway
