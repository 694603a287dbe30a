//go:build browser

package browser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// While the store is older than NATS, every view says that the deployment waits for an operator, and how to decide. It
// says so until the decision, also while the gateway does not answer, and says nothing before and afterwards.
func TestWaitingRestoreOnPage(t *testing.T) {
	t.Parallel()
	s, _ := start(t)
	p := s.between(t)
	b := open(t, p.url)
	var restore atomic.Value // what the gateway says of the store: ok, why it waits, or nothing at all
	var asked atomic.Int64
	restore.Store("ok")
	p.set(func(w http.ResponseWriter, r *http.Request, on http.Handler) {
		if r.URL.Path != "/readyz" {
			on.ServeHTTP(w, r)
			return
		}
		defer asked.Add(1)
		said := restore.Load().(string) //nolint:forcetypeassert // stored here
		if said == "" {
			unavailable(w)
			return
		}
		answer := httptest.NewRecorder()
		on.ServeHTTP(answer, r)
		var ready map[string]any
		if err := json.Unmarshal(answer.Body.Bytes(), &ready); err != nil || ready["restore"] != "ok" {
			t.Errorf("/readyz: %s, %v", answer.Body, err)
		}
		ready["restore"] = said
		changed, err := json.Marshal(ready)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.Copy(w, bytes.NewReader(changed))
	})
	const banner, none = ".waiting-restore[role=alert]", `!document.querySelector(".waiting-restore")`
	says := func() {
		t.Helper()
		for _, text := range []string{"waiting_restore", "No run starts or continues until an operator decides", "turnpike restore status", "turnpike restore accept", "turnpike restore abandon"} {
			b.text(banner, text)
		}
	}
	asksAgain := func() {
		t.Helper()
		from := asked.Load()
		eventually(t, "the page asks twice more", func() error {
			if asked.Load() < from+2 {
				return fmt.Errorf("it asked %d times", asked.Load()-from)
			}
			return nil
		})
	}
	b.goTo("#/runs")
	asksAgain()
	b.shows("no banner", none)
	restore.Store(api.CodeWaitingRestore + ": the store is older than NATS")
	says()
	b.picture("waiting-restore")
	b.goTo("#/agents")
	says()
	restore.Store("")
	asksAgain()
	says()
	restore.Store("ok")
	b.shows("no banner after the decision", none)
}
