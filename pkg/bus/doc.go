// Package bus is the contract for what travels between gateways, workers and the services around
// them. The state in the store is the truth; a message is only a hint to look at it.
//
//   - [Turns] is the durable queue of turns, with one [QueueKey] for each lane and kind of tenant.
//   - [Events] are hints that a log has grown, and live events; [Feed] stores events for consumers
//     on the bus, where a deployment has them.
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
//   - Losing, doubling or reordering any message costs time and never correctness.
//   - A turn is delivered until it is acknowledged, to one worker at a time while that one
//     answers within the ack wait.
//   - Only internal/dispatch publishes turns.
//   - Implementations pass bustest.Exercise.
package bus
