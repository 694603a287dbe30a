package api_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Who waits for a batch asks again where the gateway has too many to answer.
func TestWaitBatchWhileBusy(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(`{"status":429,"code":"too_many_reads","detail":"4 lists are being answered"}`))
			return
		}
		_, _ = w.Write([]byte(`{"id":"batch_x","done":true}`))
	}))
	t.Cleanup(server.Close)
	if b, err := api.New(server.URL).WaitBatch(t.Context(), "batch_x", nil); err != nil || !b.Done {
		t.Errorf("batch %+v, %v, want one that is done", b, err)
	}
}
