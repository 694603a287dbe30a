package app_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/devserver"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

// The operators' endpoints use the TLS of the process, and include profiles.
func TestAdmin(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	certificate, err := p.cfg.Certificate(t.Context(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector())
	port, err := devserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- app.Admin{
			Addr: addr, Hosts: []string{"worker.example"}, Certificate: certificate, Registry: registry, Ready: func(context.Context) error { return errors.New("not yet") },
		}.Serve(ctx)
	}()
	client := p.client()
	get := func(path, host string) (int, string, http.Header) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+addr+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		resp, err := client.Do(r)
		if err != nil {
			return 0, err.Error(), nil
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body), resp.Header
	}
	p.eventually("it listens", func() bool { code, _, _ := get("/healthz", ""); return code == http.StatusOK })
	for _, c := range []struct {
		path, host string
		code       int
		text       string
	}{
		{"/metrics", "", 200, "go_goroutines"},
		{"/readyz", "", 503, "not yet"},
		{"/debug/pprof/", "", 200, "goroutine"},
		{"/debug/pprof/goroutine?debug=1", "", 200, "goroutine profile"},
		{"/debug/pprof/heap", "", 200, ""},
		{"/debug/pprof/symbol", "", 200, "num_symbols"},
		{"/debug/pprof/profile?seconds=3600", "", 400, "from 0 to 60"},
		{"/debug/pprof/trace?seconds=NaN", "", 400, "from 0 to 60"},
		{"/debug/pprof/heap?seconds=-1", "", 400, "from 0 to 60"},
		{"/debug/pprof/cmdline", "", 404, ""},
		{"/debug/vars", "", 404, ""},
		{"/v1/runs", "", 404, ""},
		{"/metrics", "worker.example:9090", 200, "go_goroutines"},
		{"/metrics", "evil.example:9090", 403, "TURNPIKE_HOSTS"},
		{"/debug/pprof/heap", "evil.example", 403, "TURNPIKE_HOSTS"},
	} {
		code, body, header := get(c.path, c.host)
		if code != c.code || !strings.Contains(body, c.text) {
			t.Errorf("GET %s of host %q = %d %.200q, want %d with %q", c.path, c.host, code, body, c.code, c.text)
		}
		if header.Get("Strict-Transport-Security") == "" || header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("GET %s has the headers %v", c.path, header)
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// The endpoints are there until the work has ended, also after the process was told to stop.
func TestAdminSeesTheEnd(t *testing.T) {
	t.Parallel()
	port, err := devserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("http://127.0.0.1:%d/readyz", port)
	answers := func() (string, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			return "", err
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := errors.New("ended")
	err = app.Admin{
		Addr: strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/readyz"), Registry: prometheus.NewRegistry(),
		Readyz: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "draining") }),
	}.Beside(ctx, func(ctx context.Context) error {
		testbed.Eventually(t, "it listens", func() error { _, err := answers(); return err })
		stop()
		<-ctx.Done()
		if got, err := answers(); err != nil || got != "draining" {
			t.Errorf("at the end /readyz = %q, %v", got, err)
		}
		return ended
	})
	if !errors.Is(err, ended) {
		t.Errorf("it ended with %v", err)
	}
}
