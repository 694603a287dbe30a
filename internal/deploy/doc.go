// Package deploy connects a process to a deployment, and makes its workers and gateways. The root
// package and the commands are built on it.
//
//	d, err := deploy.Open(ctx, deploy.Config{RedisURL: "redis://127.0.0.1:6379"})
//	if err != nil {
//		return err
//	}
//	defer d.Close()
//	w, err := d.NewWorker(worker.Config{ID: "w1"})
//
// # Guarantees
//
//   - [Open] refuses servers that cannot keep or execute runs correctly, with one line for each finding.
//   - The package links no provider's SDK and no kind of tool that needs one: those are values in
//     [worker.Config]. TestProcessesLinkWhatTheyUse fails otherwise.
package deploy
