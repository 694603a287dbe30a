// Package dispatch owns a turn on the bus: its message, its id, its lane, and the ways
// in which it is published again.
//
// A turn message is a hint "look at run R, the turn that follows version V". Gateways and
// workers publish one in the same way:
//
//	d := dispatch.New(bus, nil)
//	err := d.Publish(ctx, dispatch.Turn{Run: run.ID, Version: run.Version, Priority: run.Priority, Tenant: run.Tenant})
//
// # Guarantees
//
//   - The id of a turn follows from its run and version. Whoever publishes it on behalf of
//     another process uses the same, and the bus keeps one message.
//   - A message that is published again, because the first was lost, has an id of its own.
//   - Which lane a turn waits in decides when it is taken, never what comes of it.
package dispatch
