package main

import (
	"bufio"
	"context"
	"io"
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

// A user who follows a run that no worker takes gets a hint.
func TestHintWithoutAWorker(t *testing.T) {
	t.Parallel()
	g, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
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
	if !lines.Scan() || !strings.HasPrefix(lines.Text(), "no worker has taken the run yet") {
		t.Errorf("printed %q", lines.Text())
	}
	stop()
	_, _ = io.Copy(io.Discard, read)
	<-ended
}
