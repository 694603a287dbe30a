// Package filespec is what gateways must know of tools of kind file. It imports
// nothing that opens files.
package filespec

import (
	"encoding/json"
	"errors"
	"path/filepath"

	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Kind is the name of the kind in definitions.
const Kind = "file"

// Settings are the keys that only tools of kind file have.
type Settings struct {
	// Root is the directory whose files can be read, on the worker.
	Root string `json:"root"`

	// MaxBytes bounds the bytes read from one file; 0 means 64 KiB.
	MaxBytes int64 `json:"max_bytes,omitempty"`
}

// Spec checks definitions of the kind.
var Spec = tool.SpecOf(func(_ tool.Definition, s *Settings) (tool.Needs, error) {
	var errs []error
	if !filepath.IsAbs(s.Root) {
		errs = append(errs, tool.Invalid("root", "%q is not an absolute path: write one such as /srv/notes", s.Root))
	}
	if s.MaxBytes < 0 {
		errs = append(errs, tool.Invalid("max_bytes", "%d is negative: set 0 or more", s.MaxBytes))
	}
	return tool.Needs{Arguments: json.RawMessage(arguments)}, errors.Join(errs...)
})

const arguments = `{"type":"object","required":["path"],"properties":{"path":{"type":"string","description":"File or directory, from the root; . is the root."}}}`
