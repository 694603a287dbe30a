// Package memory keeps files that agents write for later runs: the memories of a tenant, each a
// directory /memories of its own.
//
// A memory belongs to a [Scope]: the tenant, one agent, or the runs with one value of a metadata key.
// It is one document of the store, so that every change is one compare-and-set:
//
//	memories := memory.New(store)
//	err := memories.Change(ctx, scope, func(d *memory.Directory) error {
//		return d.Put("/memories/notes.md", memory.File{Content: "likes tea"}, limit)
//	})
//
// [Command] has the six commands that models know from Claude's memory tool, with its results word for
// word. The workers' tool kind and the gateways' API share this package.
package memory
