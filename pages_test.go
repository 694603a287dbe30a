package turnpike_test

import (
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/turnpike-dev/turnpike"
)

// Runs and Files read the pages of a gateway one by one, with the same filter, and continue after an empty page. They
// stop when the caller does, and end with the error of the gateway.
func TestListsInPages(t *testing.T) {
	t.Parallel()
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		switch r.FormValue("cursor") {
		case "":
			fmt.Fprint(w, `{"items":[{"id":"i1"},{"id":"i2"}],"next_cursor":"a"}`)
		case "a":
			fmt.Fprint(w, `{"items":[],"next_cursor":"b"}`)
		case "b":
			fmt.Fprint(w, `{"items":[{"id":"i3"}],"next_cursor":"c"}`)
		default:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"code":"forbidden","title":"no","status":403}`)
		}
	}))
	t.Cleanup(server.Close)
	c, err := turnpike.Dial(server.URL, turnpike.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for what, list := range map[string]struct {
		ids   iter.Seq2[string, error]
		first string
		rest  string
	}{
		"runs":  {ids(c.Runs(t.Context(), turnpike.Filter{Agent: "clerk"}), func(i turnpike.Info) string { return i.ID }), "/v1/runs?agent=clerk", "/v1/runs?agent=clerk&cursor="},
		"files": {ids(c.Files(t.Context()), func(f turnpike.File) string { return f.ID }), "/v1/files?", "/v1/files?cursor="},
	} {
		asked = nil
		var got []string
		var failed error
		for id, err := range list.ids {
			if failed = err; err == nil {
				got = append(got, id)
			}
		}
		if !slices.Equal(got, []string{"i1", "i2", "i3"}) || failed == nil {
			t.Errorf("%s: %q, %v; want three and an error", what, got, failed)
		}
		if want := []string{list.first, list.rest + "a", list.rest + "b", list.rest + "c"}; !slices.Equal(asked, want) {
			t.Errorf("%s: requests %q, want %q", what, asked, want)
		}
		asked = nil
		for range list.ids {
			break
		}
		if len(asked) != 1 {
			t.Errorf("%s: requests %q for the first item", what, asked)
		}
	}
}

func ids[T any](all iter.Seq2[T, error], id func(T) string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		for item, err := range all {
			if !yield(id(item), err) {
				return
			}
		}
	}
}
