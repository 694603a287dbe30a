// Package bus is the contract for messages between gateways, workers and the services around them.
// The state in the store is authoritative; a message is only a hint to look at it.
//
//   - [Turns] is the durable queue of turns, with two [QueueKey]s per lane: one for noisy tenants.
//   - [Events] are hints that a log has grown, and live events; [Feed] stores events for consumers
//     on the bus, if a deployment enables it.
//   - [Control] carries aborts, [Intake] submissions, [Membership] heartbeats.
//
// A worker takes turns from a queue:
//
//	queue, err := b.Turns(ctx, bus.QueueKey{Lane: state.Normal})
//	if err != nil {
//		return err
//	}
//	for {
//		d, err := queue.Next(ctx)
//		if err != nil {
//			return err
//		}
//		take(ctx, d.Turn())
//		err = d.Ack()
//	}
//
// Package natsbus is the bus on NATS JetStream, package membus one in memory for tests.
//
// # Guarantees
//
//   - Loss, duplication or reordering of messages costs time and never correctness.
//   - A turn message is delivered until it is acknowledged, to one worker at a time while that worker
//     restarts the ack wait before it ends (TurnDelivery.InProgress).
//   - Only internal/dispatch publishes turns.
//   - Implementations pass turnpiketest.Bus.
package bus
