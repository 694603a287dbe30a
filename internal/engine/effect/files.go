package effect

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Files opens the contents of uploaded files. *file.Files implements it.
type Files interface {
	Open(ctx context.Context, tenant, id string) (io.ReadCloser, error)
}

// copiesOfFile is how often the content of a file is in memory during a call: in base64, a third more, in
// the request and in its encoded body.
const copiesOfFile = 3

// load puts the contents of uploaded files into the request, once for all tries. It waits until the worker
// has the memory. The error is a *model.Error; a file that does not exist makes it one that no retry
// helps.
func (c *modelCall) load(ctx context.Context) error {
	ids := state.FileIDs(c.req.Messages...)
	if len(ids) == 0 || c.files != nil {
		return nil
	}
	fail := func(class model.Class, err error, format string, args ...any) error {
		return &model.Error{Class: class, Provider: c.of.Provider, Message: fmt.Sprintf(format, args...), Err: err}
	}
	if c.cfg.Files == nil {
		return fail(model.InvalidRequest, nil, "this worker has no files")
	}
	size := int64(0)
	for _, m := range c.req.Messages {
		for _, p := range m.Parts {
			if p.FileID != "" {
				size += p.Bytes
			}
		}
	}
	memory, err := c.cfg.Memory.Reserve(ctx, c.t.Run.Tenant, size*copiesOfFile, nil)
	if err != nil {
		return fail(model.Cancelled, err, "ended while the call waited for memory for its files")
	}
	contents := map[string]string{}
	for _, id := range ids {
		contents[id], err = c.contentOf(ctx, id)
		if err == nil {
			continue
		}
		memory.Release()
		if errors.Is(err, file.ErrNotFound) {
			return fail(model.InvalidRequest, err, "file %s does not exist: it was deleted with its tenant", id)
		}
		return fail(model.Transport, err, "read file %s: %v", id, err)
	}
	c.files = memory
	c.req.Messages = slices.Clone(c.req.Messages)
	for i, m := range c.req.Messages {
		if len(state.FileIDs(m)) == 0 {
			continue
		}
		m.Parts = slices.Clone(m.Parts)
		for k := range m.Parts {
			if p := &m.Parts[k]; p.FileID != "" {
				p.Data = contents[p.FileID]
			}
		}
		c.req.Messages[i] = m
	}
	return nil
}

// contentOf returns the content of a file in base64.
func (c *modelCall) contentOf(ctx context.Context, id string) (string, error) {
	r, err := c.cfg.Files.Open(ctx, c.t.Run.Tenant, id)
	if err != nil {
		return "", err
	}
	defer r.Close()
	var b strings.Builder
	for _, m := range c.req.Messages {
		for _, p := range m.Parts {
			if p.FileID == id && b.Cap() == 0 {
				b.Grow(base64.StdEncoding.EncodedLen(int(p.Bytes)))
			}
		}
	}
	encoder := base64.NewEncoder(base64.StdEncoding, &b)
	if _, err := io.Copy(encoder, r); err != nil {
		return "", err
	}
	err = encoder.Close() // writes the last bytes
	return b.String(), err
}

// unload removes the contents from the request, which then has its messages of before.
func (c *modelCall) unload(messages []state.Message) {
	if c.files != nil {
		c.req.Messages = messages
		c.files.Release()
		c.files = nil
	}
}
