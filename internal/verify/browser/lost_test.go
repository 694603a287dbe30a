//go:build browser

package browser

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// A lost response causes no duplicate: the page repeats the request itself, and says that the outcome is
// unknown if that also fails.
func TestAnswerIsLost(t *testing.T) {
	s := deploy(t)
	p := s.between(t)
	b := open(t, p.url)
	id := s.submit("hello", "Hi")
	s.reaches(id, "completed")
	var left atomic.Int64
	p.set(func(w http.ResponseWriter, r *http.Request, on http.Handler) {
		if r.Method == http.MethodPost && left.Add(-1) >= 0 {
			lose(w, r, on)
		}
		on.ServeHTTP(w, r)
	})
	runs := func(want int) {
		t.Helper()
		if page, err := s.client.List(t.Context(), nil); err != nil || len(page.Items) != want {
			t.Fatalf("%d runs, want %d, %v", len(page.Items), want, err)
		}
	}
	again := func(from string) string {
		t.Helper()
		b.press(".run-head", "Run again")
		b.shows("the new run", `location.hash.startsWith("#run_") && location.hash !== "#`+from+`" && document.querySelector("[data-run='" + location.hash.slice(1) + "'][data-status=completed]")`)
		return strings.TrimPrefix(eval[string](b, "location.hash"), "#")
	}
	b.goTo("#" + id)
	left.Store(1)
	second := again(id)
	runs(2)
	left.Store(2)
	b.press(".run-head", "Run again")
	b.text("#app", "it is unknown whether it accepted this")
	runs(3)
	again(second)
	runs(3)
}
