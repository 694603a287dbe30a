package turnpike

import (
	"context"
	"io"
	"iter"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Files of a tenant that models read.
type (
	File       = api.File       // an uploaded file without its content
	FileUpload = api.FileUpload // a file to upload
	Part       = state.Part     // a part of a Message
)

type files interface {
	PutFile(ctx context.Context, f FileUpload) (File, error)
	FileContent(ctx context.Context, id string) (io.ReadCloser, error)
	File(ctx context.Context, id string) (File, error)
	Files(ctx context.Context, cursor string, limit int) (api.Page[File], error)
	DeleteFile(ctx context.Context, id string) error
}

// Upload stores a file while it reads Content. It does not retry, because Content can be read only once. The error is
// ErrFull if the tenant has too many files or bytes of files. The gateways of the deployment delete the file when no
// run and no schedule has named it for a day.
func (c *Client) Upload(ctx context.Context, f FileUpload) (File, error) {
	made, err := c.api.PutFile(ctx, f)
	return made, cause(ctx, err)
}

// Download opens the content of a file, which the caller must close. Reading fails after ctx or the Deployment has
// ended. The error is ErrNotFound if the file does not exist.
func (c *Client) Download(ctx context.Context, id string) (io.ReadCloser, error) {
	content, err := c.api.FileContent(ctx, id)
	return content, cause(ctx, err)
}

// FileByID returns a file without its content, or ErrNotFound.
func (c *Client) FileByID(ctx context.Context, id string) (File, error) {
	f, err := c.api.File(ctx, id)
	return f, cause(ctx, err)
}

// Files yields the files of the tenant, oldest first. If a request fails, the last pair has the error.
func (c *Client) Files(ctx context.Context) iter.Seq2[File, error] {
	return func(yield func(File, error) bool) {
		for cursor := ""; ; {
			page, err := c.api.Files(ctx, cursor, 0)
			if err != nil {
				yield(File{}, cause(ctx, err))
				return
			}
			for _, f := range page.Items {
				if !yield(f, nil) {
					return
				}
			}
			if page.NextCursor == nil {
				return
			}
			cursor = *page.NextCursor
		}
	}
}

// DeleteFile deletes a file. The error is ErrConflict if a run or a schedule names it or is about to, and ErrNotFound
// if it does not exist.
func (c *Client) DeleteFile(ctx context.Context, id string) error {
	return cause(ctx, c.api.DeleteFile(ctx, id))
}

// UserMessage returns a message of the user with a text, which may be empty, and the uploaded files with these ids, for
// [Submission].Messages.
func UserMessage(text string, fileIDs ...string) Message {
	m := Message{Role: state.RoleUser}
	if text != "" {
		m.Parts = append(m.Parts, Part{Type: state.PartText, Text: text})
	}
	for _, id := range fileIDs {
		m.Parts = append(m.Parts, Part{Type: state.PartFile, FileID: id})
	}
	return m
}
