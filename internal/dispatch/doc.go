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
//   - The id of a turn is derived from its run and version. A process that publishes it on
//     behalf of another uses the same id, and the bus drops the duplicate while it remembers the id.
//   - A message that is published again, because the first was lost, has its own id.
//   - The lane of a turn determines when it is taken, never its result.
package dispatch
