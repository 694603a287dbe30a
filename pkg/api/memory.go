package api

import "github.com/turnpike-dev/turnpike/pkg/state"

// MemoryFile is a file that agents keep for later runs, in its latest version.
type MemoryFile struct {
	Path  string `json:"path"`  // below the directory /memories, in which models see it
	Bytes int    `json:"bytes"` // of the content

	// Version grows with each change of the memory. It is also the ETag of the file.
	Version int64 `json:"version"`

	// RunID is the run whose call wrote the version. It is empty if the principal UpdatedBy wrote the version.
	RunID     string     `json:"run_id,omitempty"`
	UpdatedBy string     `json:"updated_by,omitempty"`
	UpdatedAt state.Time `json:"updated_at"`

	// Origin is the least trusted source of what the run had read when it wrote the version, or of the version that it
	// edited: tool, agent or web. It is empty without such a source.
	Origin state.Origin `json:"origin,omitempty"`

	// Content is UTF-8. Lists leave it out.
	Content *string `json:"content,omitempty"`
}

// MemoryScope names a memory: tenant, agent:NAME or metadata.KEY:VALUE.
type MemoryScope struct {
	Scope string `json:"scope"`
}

// PutMemoryRequest is the new content of a file.
type PutMemoryRequest struct {
	Content *string `json:"content"` // required: UTF-8 without control characters other than tab and line ends
}
