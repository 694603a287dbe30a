// Package standard has the model providers, kinds of tools and kinds of hooks that the
// worker command has. Importing it links the SDKs of all providers, MCP and A2A; a
// worker that needs few of them names those few in worker.Config instead.
package standard
