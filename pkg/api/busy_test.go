package api_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// WaitBatch retries when the gateway has too many requests.
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
		t.Errorf("batch %+v, %v, want it done", b, err)
	}
}

// A run that waits for something else at the next read of the batch is reported again.
func TestWaitBatchReportsSecondWaits(t *testing.T) {
	t.Parallel()
	reasons := []string{"waiting_approval", "waiting_approval", "waiting_human_input"}
	read := 0 // the client has one request at a time
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/runs/") {
			_, _ = w.Write([]byte(`{"id":"run_a","status":"waiting"}`))
			return
		}
		_, _ = w.Write([]byte(`{"id":"batch_x","done":` + strconv.FormatBool(read == 2) + `,"items":[{"id":"run_a","status":"waiting","reason":"` + reasons[read] + `"}]}`))
		read++
	}))
	t.Cleanup(server.Close)
	reports := 0
	if _, err := api.New(server.URL).WaitBatch(t.Context(), "batch_x", func(api.Batch, api.Run) { reports++ }); err != nil {
		t.Fatal(err)
	}
	if reports != 2 {
		t.Errorf("%d reports, want 2", reports)
	}
}

// Who waits for a batch is told of each run that waits for somebody outside, once for each wait.
func TestWaitBatchReportsWaits(t *testing.T) {
	t.Parallel()
	reasons := []string{"waiting_tool", "waiting_approval", "waiting_human_input", "waiting_client_tool", "waiting_child", "waiting_schedule"}
	var items, told []string
	for _, r := range reasons {
		items = append(items, `{"id":"run_`+r+`","status":"waiting","reason":"`+r+`"}`)
	}
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, ok := strings.CutPrefix(r.URL.Path, "/v1/runs/"); ok {
			_, _ = w.Write([]byte(`{"id":"` + id + `","status":"waiting"}`))
			return
		}
		_, _ = w.Write([]byte(`{"id":"batch_x","done":` + strconv.FormatBool(asked.Add(1) > 1) + `,"items":[` + strings.Join(items, ",") + `]}`))
	}))
	t.Cleanup(server.Close)
	if _, err := api.New(server.URL).WaitBatch(t.Context(), "batch_x", func(_ api.Batch, r api.Run) { told = append(told, strings.TrimPrefix(r.ID, "run_")) }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(told, reasons[:4]) {
		t.Errorf("told of %v, want %v", told, reasons[:4])
	}
}
