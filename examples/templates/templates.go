// Package templates holds the folders that `turnpike init --template` writes, one per kind of work.
package templates

import "embed"

// Files has the folder of each template.
//
//go:embed chat extract report research support
var Files embed.FS
