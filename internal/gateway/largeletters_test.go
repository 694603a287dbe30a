package gateway_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// lettered is a bus that measures the largest list of dead letters that it returns.
type lettered struct {
	*membus.Bus

	largest int
}

func (b *lettered) DeadLetters(ctx context.Context, tenant string, after uint64, limit int) ([]bus.DeadLetter, error) {
	letters, err := b.Bus.DeadLetters(ctx, tenant, after, limit)
	size := 0
	for _, l := range letters {
		size += len(l.Data)
	}
	b.largest = max(b.largest, size)
	return letters, err
}

// A page of large dead letters ends early, and the gateway reads only some of them at a time. Its reads of
// the log of a letter's run have a limit in bytes.
func TestLargeDeadLetters(t *testing.T) {
	t.Parallel()
	const letters, size = 20, 1 << 20
	store, b := &weighed{Store: memstore.New(memstore.Config{}), left: -1}, &lettered{Bus: membus.New()}
	g, err := gateway.New(store, b, gateway.Config{StoreBudget: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	path, log := largeRun(t, store.Store, 1<<20)
	run := state.RunID(strings.TrimPrefix(path, "/v1/runs/"))
	for i := range letters {
		l := bus.DeadLetter{Kind: bus.DeadAbort, Tenant: state.DefaultTenant, Cause: "x", Data: strings.Repeat("x", size)}
		if i == 0 {
			l.Kind, l.Run, l.Version, l.Events = bus.DeadPoisoned, run, 1, int64(len(log)-30)
		}
		if err := b.DeadLetter(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	seen, pages := uint64(0), 0
	for cursor := new(""); cursor != nil; pages++ {
		w := httptest.NewRecorder()
		g.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/v1/dead?limit=1000&cursor="+*cursor, nil))
		var page api.Page[api.DeadLetter]
		if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || len(page.Items) == 0 {
			t.Fatalf("%d letters, %v: %.200s", len(page.Items), err, w.Body)
		}
		if most := 11 << 20; w.Body.Len() > most {
			t.Errorf("a page has %d MiB, want at most %d", w.Body.Len()>>20, most>>20)
		}
		for _, l := range page.Items {
			if l.Seq != seen+1 {
				t.Fatalf("letter %d follows letter %d", l.Seq, seen)
			}
			seen = l.Seq
		}
		cursor = page.NextCursor
	}
	if seen != letters || pages < 2 {
		t.Errorf("%d letters in %d pages, want %d in several", seen, pages, letters)
	}
	if most := 9 * size; b.largest > most {
		t.Errorf("the gateway reads letters of %d MiB at once, want at most %d", b.largest>>20, most>>20)
	}
	if most := int64(4 << 20); store.largest > most {
		t.Errorf("a read of the log returns %d KiB, want at most %d KiB", store.largest>>10, most>>10)
	}
}
