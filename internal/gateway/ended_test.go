package gateway_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// When Run ends, so do event streams and requests that wait, which would delay the end of the process.
func TestStreamsEndWithRun(t *testing.T) {
	t.Parallel()
	g, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	running, stop := context.WithCancel(t.Context())
	go func() { ran <- g.Run(running) }()
	server := httptest.NewServer(g.Handler())
	t.Cleanup(func() { stop(); server.Close() })
	s := &deployment{t: t, url: server.URL, client: api.New(server.URL)}
	s.put("hello", `{model: {provider: scripted, responses: [{text: hi}]}}`)
	_, _, run := s.call("POST", "/v1/runs", `{"agent": "hello", "input": "x"}`) // stays queued: there is no worker

	patient, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ask := func(method, path, body string) (answer io.Reader, status int) {
		r, err := http.NewRequestWithContext(patient, method, s.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp.Body, resp.StatusCode
	}
	ends := func(when, path string, events io.Reader) {
		t.Helper()
		if _, err := io.Copy(io.Discard, events); err != nil {
			t.Errorf("%s %s: %v", path, when, err)
		}
	}
	streams := []string{"/v1/runs/" + run["id"].(string) + "/events", "/v1/events"}
	var open []io.Reader
	for _, path := range streams {
		events, _ := ask("GET", path, "")
		open = append(open, events)
	}
	stop()
	if err := <-ran; err != nil {
		t.Errorf("Run = %v", err)
	}
	for i, path := range streams {
		ends("that was open", path, open[i])
		later, _ := ask("GET", path, "")
		ends("that came later", path, later)
	}
	if _, status := ask("POST", "/v1/runs?wait=10m", `{"agent": "hello", "input": "x"}`); status != http.StatusAccepted {
		t.Errorf("a request that waits: %d", status)
	}
}
