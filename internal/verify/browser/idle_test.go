//go:build browser

package browser

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// replayed responds as if the only run had failed three hours ago and was replayed since.
func replayed(w http.ResponseWriter, r *http.Request, on http.Handler) {
	if r.Method != http.MethodGet || r.URL.Path == "/v1/events" {
		on.ServeHTTP(w, r)
		return
	}
	r.Header.Del("Accept-Encoding")
	rec := httptest.NewRecorder()
	on.ServeHTTP(rec, r)
	body := rec.Body.Bytes()
	var answer map[string]any
	if json.Unmarshal(body, &answer) == nil {
		age := func(run map[string]any) {
			for _, name := range []string{"created_at", "started_at"} {
				if at, err := time.Parse(time.RFC3339Nano, run[name].(string)); err == nil {
					run[name] = state.At(at.Add(-3 * time.Hour))
				}
			}
			run["idle_ms"] = (3 * time.Hour).Milliseconds()
		}
		if answer["started_at"] != nil {
			age(answer)
		}
		items, _ := answer["items"].([]any)
		for _, item := range items {
			if run, ok := item.(map[string]any); ok && run["started_at"] != nil {
				age(run)
			}
		}
		body, _ = json.Marshal(answer)
	}
	maps.Copy(w.Header(), rec.Header())
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(rec.Code)
	_, _ = w.Write(body)
}

// The page excludes the time between a failure and its replay from the duration of a run.
func TestIdleTimeOnPage(t *testing.T) {
	s := deploy(t)
	id := s.submit("hello", "Hi")
	s.reaches(id, "completed")
	p := s.between(t)
	p.set(replayed)
	b := open(t, p.url)
	b.goTo("")
	b.shows("the row without hours", `/\d (ms|s)$/.test(document.querySelector(".row .r-dur")?.textContent ?? "")`)
	b.goTo("#" + id)
	b.shows("the facts without hours", `/turn/.test(document.querySelector(".facts")?.innerText ?? "") && !/\d h/.test(document.querySelector(".facts").innerText.split("submitted")[0])`)
	b.goTo("#/agents")
	b.shows("the agent without hours", `[...document.querySelectorAll("td.num")].some(e => /\d (ms|s)$/.test(e.textContent)) && ![...document.querySelectorAll("td.num")].some(e => /\d h/.test(e.textContent))`)
}
