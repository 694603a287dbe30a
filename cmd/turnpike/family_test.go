package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A child run is created after the event that names it. Until then the gateway does not know it, and a watcher of the
// parent waits for it.
func TestWatchAwaitsAChild(t *testing.T) {
	t.Parallel()
	at, err := url.Parse(workedAt(t))
	if err != nil {
		t.Fatal(err)
	}
	c := api.New(at.String())
	if _, err := c.PutAgent(t.Context(), "helper", []byte("model: {provider: scripted, responses: [{tool_calls: [{name: echo, arguments: {from: child}}]}, {text: helped}]}\ntools: [{name: echo}]")); err != nil {
		t.Fatal(err)
	}
	run := submit(t, c, "model: {provider: scripted, responses: [{tool_calls: [{name: ask, arguments: {task: go}}]}, {text: done}]}\ntools: [{name: ask, kind: agent, agent: helper}]")
	var early atomic.Int64
	pass := httputil.NewSingleHostReverseProxy(at)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, run.ID) || early.Add(1) > 2 {
			pass.ServeHTTP(w, r)
			return
		}
		problem(w, http.StatusNotFound, api.CodeRunNotFound)
	}))
	t.Cleanup(server.Close)
	out, err := says(t, api.New(server.URL), "watch", run.ID)
	if err != nil || !strings.Contains(out, `{"from":"child"}`) || early.Load() <= 2 {
		t.Errorf("%v after %d requests for the child; printed\n%s\nwant its tool call", err, early.Load(), out)
	}
}

// A watcher does not wait for a child run that the gateway refuses to show, or when the user has left.
func TestChildThatDoesNotAppear(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if strings.HasSuffix(r.URL.Path, "/run_refused") {
			problem(w, http.StatusForbidden, api.CodeForbidden)
			return
		}
		problem(w, http.StatusNotFound, api.CodeRunNotFound)
		leave()
	}))
	t.Cleanup(server.Close)
	e := newEnv(io.Discard, io.Discard, false, false)
	e.client = api.New(server.URL)
	f := &family{env: e, ctx: ctx}
	err := f.appears("run_refused")
	if p, ok := errors.AsType[*api.Problem](err); !ok || p.Code != api.CodeForbidden || asked.Load() != 1 {
		t.Errorf("%v after %d requests, want forbidden after 1", err, asked.Load())
	}
	if err := f.appears("run_missing"); err == nil {
		t.Error("a run that does not exist has appeared")
	}
}

// problem answers a request with a problem.
func problem(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.Problem{Status: status, Code: code, Detail: code})
}
