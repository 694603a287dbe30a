package api_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// A run that was in flight since is reported again, also with the same reason. Nothing is reported of a run that has
// ended or was deleted after the batch was read.
func TestWaitBatchReportsWhatStands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const approval, answer, running, completed = `"waiting","reason":"waiting_approval"`, `"waiting","reason":"waiting_human_input"`, `"running"`, `"completed"`
		steps := []struct{ inBatch, itself string }{
			{approval, `"waiting"`}, {approval, `"waiting"`}, {running, running}, {approval, `"waiting"`}, {answer, completed}, {completed, completed}, {completed, completed},
		}
		read := 0
		network := roundTrip(func(r *http.Request) (*http.Response, error) {
			w := httptest.NewRecorder()
			switch r.URL.Path {
			case "/v1/batches/batch_x":
				read++
				done := strconv.FormatBool(read == len(steps))
				_, _ = w.WriteString(`{"id":"batch_x","done":` + done + `,"items":[{"id":"run_gone","status":"completed"},{"id":"run_a","status":` + steps[read-1].inBatch + `}]}`)
			case "/v1/runs/run_a":
				_, _ = w.WriteString(`{"id":"run_a","status":` + steps[read-1].itself + `}`)
			default:
				w.WriteHeader(http.StatusNotFound)
				_, _ = w.WriteString(`{"status":404,"code":"not_found"}`)
			}
			return w.Result(), nil
		})
		var told []int
		_, err := api.NewWithHTTP("", &http.Client{Transport: network}).WaitBatch(t.Context(), "batch_x", func(api.Batch, api.Run) { told = append(told, read) })
		if want := []int{1, 4, 6}; err != nil || !slices.Equal(told, want) {
			t.Errorf("the reads %v of the batch are reported, %v; want %v", told, err, want)
		}
	})
}

// With an error WaitBatch returns the last batch that it has read. It takes a page that is no gateway's for one of a
// proxy if the gateway has answered before.
func TestWaitBatchReturnsTheLast(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		body   string
		want   error
	}{
		"refused":   {http.StatusNotFound, `{"status":404,"code":"batch_not_found"}`, api.ErrNotFound},
		"a proxy":   {http.StatusNotFound, "<html>", context.DeadlineExceeded},
		"cancelled": {http.StatusOK, `{"id":"batch_x","done":false,"total":3}`, context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			read := 0
			network := roundTrip(func(r *http.Request) (*http.Response, error) {
				w := httptest.NewRecorder()
				if read++; read == 1 {
					_, _ = w.WriteString(`{"id":"batch_x","done":false,"total":3}`)
				} else {
					w.WriteHeader(test.status)
					_, _ = w.WriteString(test.body)
				}
				resp := w.Result()
				resp.Request = r
				return resp, nil
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			b, err := api.NewWithHTTP("", &http.Client{Transport: network}).WaitBatch(ctx, "batch_x", nil)
			if !errors.Is(err, test.want) || b.ID != "batch_x" {
				t.Errorf("%s: %+v, %v after %d reads; want the first batch and %v", name, b, err, read, test.want)
			}
		})
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
