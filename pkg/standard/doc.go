// Package standard has the model providers, kinds of tools and kinds of hooks that the
// worker command has. Importing it links the SDKs of all providers, MCP and A2A; a program
// that needs few of them names those few in turnpike.Options instead.
//
//	set, err := standard.New(standard.Config{})
//	if err != nil {
//		return err
//	}
//	defer set.Close()
//	d, err := turnpike.Open(ctx, turnpike.Options{Models: set.Models, Kinds: set.Kinds, HookKinds: set.HookKinds})
//
// # Guarantees
//
//   - Tools, and models with a base_url, reach public addresses and those of [Config] only.
//   - A program of an MCP tool starts only if [Config.MCPCommands] names it, confined as
//     [Config.Confinement] says.
package standard
