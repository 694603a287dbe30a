package api

import "github.com/turnpike-dev/turnpike/pkg/state"

// File is an uploaded file without its content.
type File struct {
	ID        string     `json:"id"`
	Name      string     `json:"name,omitempty"`
	MediaType string     `json:"media_type"`
	Bytes     int64      `json:"bytes"`
	SHA256    string     `json:"sha256"` // of the content, in hexadecimal digits
	CreatedAt state.Time `json:"created_at"`
	CreatedBy string     `json:"created_by,omitempty"` // the principal that uploaded it
}
