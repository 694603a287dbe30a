// Package gateway assembles a gateway from the packages below it. A gateway takes runs, signals, aborts and
// agents over HTTP, and submissions and aborts over the bus, and serves the events of runs from the
// store. Its packages authenticate callers, decode requests, and encode the results of package service,
// which makes every check and change.
//
// A [Gateway] needs a store and a bus, and is configured by [Config]. Programs that want connections to
// both use package turnpike instead.
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
//   - No state of a run is in memory only, so a deployment may have any number of gateways, and each of
//     them can answer any request.
//   - A reader of events misses no committed event and gets none twice, whichever gateway it resumes at.
//   - It links no model SDK and makes no tool calls.
package gateway
