// Package tools holds example tools in several languages.
package tools

import "embed"

// Python is a tool in Python with all that it needs in addition to the language:
// convert.py and mininats.py, in the folder python.
//
//go:embed python/*.py
var Python embed.FS
