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

// Files stores the uploaded files of tenants. *file.Files implements it, and documents the methods.
type Files interface {
	Put(ctx context.Context, tenant string, f file.File, r io.Reader) (file.File, error)
	Get(ctx context.Context, tenant, id string) (file.File, error)
	Open(ctx context.Context, tenant, id string) (io.ReadCloser, error)
	Bind(ctx context.Context, tenant string, u file.User, ids ...string) error
}

// copiesOfFile is the number of times that the content of a file is in memory during a call: in base64, which
// is a third more, in the request and in its encoded body.
const copiesOfFile = 3

// resultFileBytes is the maximum of all files of one request, in bytes, for providers without a limit of their
// own. Files of tool results beyond it are left out.
const resultFileBytes = 20_000_000

// eachFile calls f for the uploaded files that messages name, also in tool results.
func eachFile(messages []state.Message, f func(p *state.Part, inResult bool)) {
	for i := range messages {
		parts := messages[i].Parts
		for k := range parts {
			if parts[k].FileID != "" {
				f(&parts[k], false)
			}
			for n := range parts[k].Files {
				if parts[k].Files[n].FileID != "" {
					f(&parts[k].Files[n], true)
				}
			}
		}
	}
}

// loaded returns the sizes of the uploaded files that a request to a provider contains, by id: all files in messages
// of users, and as many files of tool results as fit in addition. It goes through those from the latest backwards, and
// stops at the first that does not fit. Adapters replace the other files with a remark.
func loaded(provider string, messages []state.Message) map[string]int64 {
	room := builtin[provider].FileBytes
	if room == 0 {
		room = resultFileBytes
	}
	sizes := map[string]int64{}
	var results []*state.Part
	eachFile(messages, func(p *state.Part, inResult bool) {
		if inResult {
			results = append(results, p)
		} else if _, known := sizes[p.FileID]; !known {
			sizes[p.FileID] = p.Bytes
			room -= p.Bytes
		}
	})
	for _, p := range slices.Backward(results) {
		if _, known := sizes[p.FileID]; known {
			continue
		}
		if room -= p.Bytes; room < 0 {
			break
		}
		sizes[p.FileID] = p.Bytes
	}
	return sizes
}

// load puts the contents of uploaded files into the request, once for all tries: of the files in messages of users, and
// of those in tool results that fit in addition (see loaded). It waits until the worker has the memory. The error is a
// *model.Error: of class InvalidRequest if the worker has no storage for files or a file does not exist, Cancelled if
// ctx ended during the wait, and Transport if a file cannot be read, also because ctx ended.
func (c *modelCall) load(ctx context.Context) error {
	if c.files != nil {
		return nil
	}
	sizes := loaded(c.of.Provider, c.req.Messages)
	if len(sizes) == 0 {
		return nil
	}
	fail := func(class model.Class, err error, format string, args ...any) error {
		return &model.Error{Class: class, Provider: c.of.Provider, Message: fmt.Sprintf(format, args...), Err: err}
	}
	if c.cfg.Files == nil {
		return fail(model.InvalidRequest, nil, "this worker has no storage for files: connect the worker to NATS with JetStream")
	}
	size := int64(0)
	for _, n := range sizes {
		size += n
	}
	need := size * copiesOfFile
	memory, err := c.cfg.Memory.Reserve(ctx, c.t.Run.Tenant, need, nil)
	if err != nil {
		return fail(model.Cancelled, err, "the turn ended while the model call waited for %d bytes of memory for its files; the worker has %d for all calls, and half of it for one tenant: if this repeats, raise TURNPIKE_FILE_MEMORY_MIB of the worker (in Go, FileMemory)", need, c.cfg.Memory.Limit())
	}
	contents := map[string]string{}
	for id, n := range sizes {
		contents[id], err = c.contentOf(ctx, id, n)
		if err == nil {
			continue
		}
		memory.Release()
		if errors.Is(err, file.ErrNotFound) {
			return fail(model.InvalidRequest, err, "file %s does not exist any more, for example because its tenant was deleted: upload it again, and submit a new run", id)
		}
		return fail(model.Transport, err, "the worker cannot read file %s (%v): submit the run again; if this repeats, ask the operator to run `turnpike doctor`", id, err)
	}
	c.files, c.unloaded = memory, c.req.Messages
	c.req.Messages = slices.Clone(c.req.Messages)
	for i, m := range c.req.Messages {
		if len(state.FileIDs(m)) == 0 {
			continue
		}
		m.Parts = slices.Clone(m.Parts)
		for k := range m.Parts {
			m.Parts[k].Files = slices.Clone(m.Parts[k].Files)
		}
		c.req.Messages[i] = m
	}
	eachFile(c.req.Messages, func(p *state.Part, _ bool) { p.Data = contents[p.FileID] })
	return nil
}

// contentOf returns the content of a file of size bytes in base64.
func (c *modelCall) contentOf(ctx context.Context, id string, size int64) (string, error) {
	r, err := c.cfg.Files.Open(ctx, c.t.Run.Tenant, id)
	if err != nil {
		return "", err
	}
	defer r.Close()
	var b strings.Builder
	b.Grow(base64.StdEncoding.EncodedLen(int(size)))
	encoder := base64.NewEncoder(base64.StdEncoding, &b)
	if _, err := io.Copy(encoder, r); err != nil {
		return "", err
	}
	err = encoder.Close() // writes the last bytes
	return b.String(), err
}

// unload removes the contents from the request, which then has the messages without them again, and returns the
// memory.
func (c *modelCall) unload() {
	if c.files != nil {
		c.req.Messages = c.unloaded
		c.files.Release()
		c.files = nil
	}
}
