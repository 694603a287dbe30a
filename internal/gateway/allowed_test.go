package gateway_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// speechless is a store that can stop answering key reads.
type speechless struct {
	state.Store

	quiet atomic.Bool
}

func (m *speechless) Document(ctx context.Context, kind state.DocumentKind, name string) (json.RawMessage, error) {
	if m.quiet.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return m.Store.Document(ctx, kind, name)
}

// An open request ends if its caller can no longer be checked: its key may be revoked.
func TestRequestOfUnknownCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &speechless{Store: memstore.New(memstore.Config{})}
		keys := access.NewKeys(service.Budgeted(store))
		g, err := gateway.New(store, membus.New(), gateway.Config{Auth: access.Chain{Keys: keys}})
		if err != nil {
			t.Fatal(err)
		}
		text, _, err := keys.Create(t.Context(), access.KeySpec{Tenant: "acme", Roles: []access.Role{access.Author, access.Submitter}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		ask := func(method, path, body string) {
			r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
			r.Header.Set("Authorization", "Bearer "+text)
			g.Handler().ServeHTTP(httptest.NewRecorder(), r)
		}
		ask("PUT", "/v1/agents/a", talker)
		done := make(chan struct{})
		go func() { ask("POST", "/v1/runs?wait=10m", `{"agent":"a","input":"x"}`); close(done) }()
		time.Sleep(20 * time.Second) // of simulated time: ten checks
		select {
		case <-done:
			t.Fatal("the request of an authorized caller ended")
		default:
		}
		store.quiet.Store(true)
		<-done
		if ctx.Err() != nil {
			t.Error("a request continues although its caller can no longer be checked")
		}
	})
}
