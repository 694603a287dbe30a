// Package start holds the folders that `turnpike init` writes: an agent, and a tool in each language.
package start

import "embed"

// Files has agents/converter.yaml, and the tool in the folder of each language.
//
//go:embed agents python/*.py typescript/* go/*.go
var Files embed.FS
