package exchange

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Reply responds with v as JSON. It has written nothing if it returns an error.
func Reply(w http.ResponseWriter, status int, v any) error {
	b, err := Encode(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b) // the client may have disconnected
	return nil
}

// Done responds with status 204 if err is nil, and returns err.
func Done(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

// Encode returns v as one line of JSON with a line end, with the same escapes as events.
func Encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}

// pageWriter writes a page item by item, because whole encoded copies of a long history, one for each reader, would
// need too much memory.
type pageWriter struct {
	out   *bufio.Writer
	items int
	err   error // the client has disconnected
}

// newPageWriter begins a response with a page.
func newPageWriter(w http.ResponseWriter) *pageWriter {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	p := &pageWriter{out: bufio.NewWriter(w)}
	_, p.err = p.out.WriteString(`{"items":[`)
	return p
}

// write writes a value after a text. If it cannot be encoded, write panics with http.ErrAbortHandler, which ends the
// connection: a partial response must not look complete.
func (p *pageWriter) write(before string, v any) {
	b, err := Encode(v)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	_, _ = p.out.WriteString(before)
	_, p.err = p.out.Write(bytes.TrimSuffix(b, []byte("\n")))
}

func (p *pageWriter) item(v any) {
	before := ","
	if p.items == 0 {
		before = ""
	}
	p.items++
	p.write(before, v)
}

// end writes what follows the items of a page.
func (p *pageWriter) end(cursor *string, examined *int, complete *bool) {
	p.write(`],"next_cursor":`, cursor)
	if examined != nil {
		p.write(`,"examined":`, examined)
		p.write(`,"complete":`, complete)
	}
	_, _ = p.out.WriteString("}\n")
	_ = p.out.Flush() // the client may have disconnected
}

// ReplyPage responds with a page. It encodes the page item by item. It always returns nil. If an item cannot be
// encoded, it panics with http.ErrAbortHandler, which ends the connection.
func ReplyPage[T any](w http.ResponseWriter, p api.Page[T]) error {
	out := newPageWriter(w)
	for i := range p.Items {
		out.item(&p.Items[i])
	}
	out.end(p.NextCursor, p.Examined, p.Complete)
	return nil
}

// Source is a list whose items are read while the response is written.
type Source[T any] struct {
	Items func(skip int) iter.Seq[T] // without the first skip ones
	Err   func() error               // why Items ended early, or nil
}

// ReplySource responds with the page of a list that service.Cut would return. It returns the error of an invalid
// cursor, and that of a source that fails before its first item. If the source fails later, or an item cannot be
// encoded, ReplySource ends the connection as ReplyPage does.
func ReplySource[T any](w http.ResponseWriter, p service.Page, from Source[T]) error {
	skip, err := p.Skip()
	if err != nil {
		return err
	}
	var out *pageWriter
	cursor := ""
	for item := range from.Items(skip) {
		if out == nil {
			out = newPageWriter(w)
		}
		if p.Limited && out.items == p.Limit {
			cursor = strconv.Itoa(skip + out.items)
			break
		}
		if out.item(&item); out.err != nil {
			return nil
		}
	}
	switch err := from.Err(); {
	case err != nil && out == nil:
		return err
	case err != nil:
		panic(http.ErrAbortHandler) // a partial response must not look complete
	case out == nil:
		out = newPageWriter(w)
	}
	out.end(api.NewPage[T](nil, cursor).NextCursor, nil, nil)
	return nil
}

// Lister returns a page of a list that a caller requests.
type Lister[T any] func(ctx context.Context, c access.Caller, p service.Page) (api.Page[T], error)

// PageOf returns the page that the query of a request names. Besides limit, cursor and tenant the query may have the
// given parameters. The error is a problem.
func PageOf(r *http.Request, parameters ...string) (service.Page, error) {
	query := r.URL.Query()
	known := append([]string{"limit", "cursor", ParameterTenant}, parameters...)
	for name := range query {
		if !slices.Contains(known, name) {
			return service.Page{}, Invalid("unknown parameter %q: use %s", name, strings.Join(known, ", "))
		}
	}
	return service.ParsePage(query)
}

// ReplyList responds with the page of a list that the query of a request names: see PageOf.
func ReplyList[T any](w http.ResponseWriter, r *http.Request, list Lister[T], parameters ...string) error {
	p, err := PageOf(r, parameters...)
	if err != nil {
		return err
	}
	page, err := list(r.Context(), access.FromContext(r.Context()), p)
	if err != nil {
		return err
	}
	return ReplyPage(w, page)
}
