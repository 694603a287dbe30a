package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// The summary line of a run excludes the run's idle time.
func TestSumWithoutIdleTime(t *testing.T) {
	t.Parallel()
	began := time.Now()
	run := api.Run{CreatedAt: state.At(began), FinishedAt: state.At(began.Add(time.Hour + 2*time.Second)), IdleMS: time.Hour.Milliseconds()}
	if got := sum(run); !strings.HasSuffix(got, " · 2s") {
		t.Errorf("sum = %q", got)
	}
}

// A user who follows a run that no worker takes gets a hint. It names the decision that the deployment waits for, if it
// does.
func TestHintWithoutAWorker(t *testing.T) {
	t.Parallel()
	const restoring = "waiting_restore: the store is about 30s older than NATS: run `turnpike restore status`, then accept or abandon"
	for ready, want := range map[string]string{"ok": "no worker has taken the run yet", restoring: "the run cannot start yet: " + restoring} {
		t.Run(ready[:2], func(t *testing.T) {
			t.Parallel()
			followUntaken(t, ready, want)
		})
	}
}

// followUntaken follows a run at a gateway whose readiness has this state of a restore, and expects a hint.
func followUntaken(t *testing.T, ready, want string) {
	g, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			g.Handler().ServeHTTP(w, r)
		} else if err := json.NewEncoder(w).Encode(api.Readiness{Status: "ok", Restore: ready}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	c := api.New(server.URL)
	if _, err := c.PutAgent(t.Context(), "a", []byte("name: a\nmodel: {provider: scripted, responses: [{text: hi}]}")); err != nil {
		t.Fatal(err)
	}
	run, err := c.Submit(t.Context(), api.SubmitRequest{Agent: "a", Input: api.Text("go")}, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	read, errs := io.Pipe()
	e := newEnv(io.Discard, errs, false, false)
	e.ctx, e.client, e.idleHint = ctx, c, 1
	ended := make(chan error, 1)
	go func() {
		ended <- follow(e, run.ID, following{stopAtWait: true})
		_ = errs.Close()
	}()
	lines := bufio.NewScanner(read)
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), want) {
		t.Errorf("printed %q", lines.Text())
	}
	stop()
	_, _ = io.Copy(io.Discard, read)
	<-ended
}
