package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A request that reads ends if the gateway sends no response, and others wait for theirs.
func TestSilentGateway(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-released:
		case <-r.Context().Done():
		}
		_, _ = w.Write([]byte("{}"))
	}))
	t.Cleanup(listener.Close)
	c := api.NewWithHTTP(listener.URL, &http.Client{Transport: newTransport(nil, 50*time.Millisecond)})
	cancelled := make(chan error, 1)
	go func() {
		_, err := c.Cancel(t.Context(), "run_1", "enough")
		cancelled <- err
	}()
	_, err := c.Get(t.Context(), "run_1")
	if !errors.Is(err, errSilent) {
		t.Errorf("Get = %v, want %v", err, errSilent)
	}
	if text := explain(err, listener.URL); !strings.Contains(text, listener.URL) || !strings.Contains(text, "sends no response") {
		t.Errorf("explain = %q", text)
	}
	close(released)
	if err := <-cancelled; err != nil {
		t.Errorf("Cancel = %v", err)
	}
}
