// Package clients holds the sources of the clients in other languages, which `turnpike init` copies. It is
// for that command alone.
package clients

import "embed"

// Python is the package turnpike in the folder python, and TypeScript the sources of the package in
// typescript/src.
var (
	//go:embed python/turnpike/*.py python/turnpike/py.typed
	Python embed.FS

	//go:embed typescript/src/*.ts
	TypeScript embed.FS
)
