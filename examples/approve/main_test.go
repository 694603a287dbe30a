package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike"
	tt "github.com/turnpike-dev/turnpike/turnpiketest"
)

func TestApprove(t *testing.T) {
	t.Parallel()
	pay := turnpike.NewTool("pay", "Pays.", func(context.Context, struct{}) (string, error) { return "paid", nil }, turnpike.Approval("always"))
	k := tt.New(t, turnpike.Options{Tools: []turnpike.Tool{pay}})
	run := k.Start(turnpike.Agent{Name: "clerk", Tools: turnpike.Use(pay)}, "Order 7", tt.Calls("pay", struct{}{}), tt.Says("Done."))
	call := k.WaitIdle(run).Waiting.Calls[0]
	mux := http.NewServeMux()
	mux.HandleFunc("POST /approve/{run}", approve(k.Deployment))
	post := func(user, hash string) int {
		r := httptest.NewRequest(http.MethodPost, "/approve/"+run.ID(), strings.NewReader(url.Values{"call": {call.ID}, "hash": {hash}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-User", user)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w.Code
	}
	for _, c := range []struct {
		user, hash string
		want       int
	}{{"", call.Hash, 400}, {"ada", strings.Repeat("0", len(call.Hash)), 409}, {"ada", call.Hash, 200}} {
		if got := post(c.user, c.hash); got != c.want {
			t.Errorf("%q approves: %d, want %d", c.user, got, c.want)
		}
	}
	if i, err := run.Wait(t.Context()); err != nil || i.Status != "completed" {
		t.Error(i.Status, err)
	}
}
