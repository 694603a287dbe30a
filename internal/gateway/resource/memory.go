package resource

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

const headerIfMatch = "If-Match"

// Memory reads and changes the files that agents keep for later runs.
type Memory struct{ memory *service.Memory }

// NewMemory returns the handlers of memories.
func NewMemory(m *service.Memory) *Memory { return &Memory{m} }

func place(r *http.Request) service.MemoryAt {
	return service.MemoryAt{Scope: r.URL.Query().Get("scope"), Path: r.PathValue("path")}
}

// Scopes responds with a page of the names of memories.
func (h *Memory) Scopes(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, h.memory.Scopes)
}

// List responds with a page of the files of a memory.
func (h *Memory) List(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, func(ctx context.Context, c access.Caller, p service.Page) (api.Page[api.MemoryFile], error) {
		return h.memory.List(ctx, c, place(r).Scope, p)
	}, "scope")
}

// Get responds with a file.
func (h *Memory) Get(w http.ResponseWriter, r *http.Request) error {
	f, err := h.memory.Get(r.Context(), access.FromContext(r.Context()), place(r))
	return replyFile(w, http.StatusOK, f, err)
}

// Put writes a file, if its version satisfies the header If-Match.
func (h *Memory) Put(w http.ResponseWriter, r *http.Request) error {
	var req api.PutMemoryRequest
	body, err := exchange.Decode(r, &req)
	if err != nil {
		return err
	}
	match, err := condition(r, headerIfMatch, `a version such as "3"`)
	if err != nil {
		return err
	}
	none, err := condition(r, "If-None-Match", "*")
	if err != nil {
		return err
	}
	switch {
	case !utf8.Valid(body):
		return exchange.Problem(http.StatusBadRequest, api.CodeInvalidRequest, "the body is not UTF-8: encode it in UTF-8")
	case req.Content == nil:
		return exchange.Problem(http.StatusBadRequest, api.CodeInvalidRequest, "content is missing: send the text of the file")
	case none == "*" && match == "":
		match = `"0"`
	case none == "*":
		return exchange.Problem(http.StatusBadRequest, api.CodeInvalidRequest, "the headers If-None-Match and If-Match cannot be combined: send one of them")
	case none != "":
		return exchange.Problem(http.StatusBadRequest, api.CodeInvalidRequest, "header If-None-Match is %.40q: send *, or omit it", none)
	}
	f, first, err := h.memory.Put(r.Context(), access.FromContext(r.Context()), place(r), *req.Content, match)
	status := http.StatusOK
	if first {
		status = http.StatusCreated
	}
	return replyFile(w, status, f, err)
}

// condition returns the value of a header that makes a request conditional, or "" without the header. An empty value is
// an error: the request would be unconditional. Several lines of the header are one list.
func condition(r *http.Request, header, send string) (string, error) {
	lines := r.Header.Values(header)
	text := strings.Join(lines, ", ")
	if len(lines) > 0 && strings.Trim(text, ", ") == "" {
		return "", exchange.Problem(http.StatusBadRequest, api.CodeInvalidRequest, "header %s is %.40q: send %s, or omit it", header, text, send)
	}
	return text, nil
}

func replyFile(w http.ResponseWriter, status int, f api.MemoryFile, err error) error {
	if err == nil {
		w.Header().Set("ETag", strconv.Quote(strconv.FormatInt(f.Version, 10)))
	}
	return reply(w, status, f, err)
}

// Delete deletes a file, or all files of a directory, if its version satisfies the header If-Match.
func (h *Memory) Delete(w http.ResponseWriter, r *http.Request) error {
	match, err := condition(r, headerIfMatch, `a version such as "3"`)
	if err != nil {
		return err
	}
	return exchange.Done(w, h.memory.Delete(r.Context(), access.FromContext(r.Context()), place(r), match))
}

// Erase deletes a memory with all its files.
func (h *Memory) Erase(w http.ResponseWriter, r *http.Request) error {
	if len(r.Header.Values(headerIfMatch)) > 0 {
		return exchange.Problem(http.StatusBadRequest, api.CodeInvalidRequest, "header If-Match: a whole memory has no version: name a file, or omit the header")
	}
	return exchange.Done(w, h.memory.Erase(r.Context(), access.FromContext(r.Context()), place(r).Scope))
}
