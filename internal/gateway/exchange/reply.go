package exchange

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
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

// ReplyPage responds with a page. It encodes the page item by item, because whole encoded copies of a long history,
// one for each reader, would need too much memory. It always returns nil. If an item cannot be encoded, it panics
// with http.ErrAbortHandler, which ends the connection.
func ReplyPage[T any](w http.ResponseWriter, p api.Page[T]) error {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	out := bufio.NewWriter(w) // writes may fail: the client may have disconnected
	write := func(before string, v any) {
		b, err := Encode(v)
		if err != nil {
			panic(http.ErrAbortHandler) // a partial response must not look complete
		}
		_, _ = out.WriteString(before)
		_, _ = out.Write(bytes.TrimSuffix(b, []byte("\n")))
	}
	_, _ = out.WriteString(`{"items":[`)
	comma := ""
	for i := range p.Items {
		write(comma, &p.Items[i])
		comma = ","
	}
	write(`],"next_cursor":`, p.NextCursor)
	if p.Examined != nil {
		write(`,"examined":`, p.Examined)
		write(`,"complete":`, p.Complete)
	}
	_, _ = out.WriteString("}\n")
	_ = out.Flush()
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

// ReplyCut responds with a page of items: see service.Cut.
func ReplyCut[T any](w http.ResponseWriter, p service.Page, items []T) error {
	page, err := service.Cut(p, items)
	if err != nil {
		return err
	}
	return ReplyPage(w, page)
}
