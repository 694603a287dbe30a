package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
)

// burial is a bus that reports dead letters.
type burial struct {
	*membus.Bus

	letters chan bus.DeadLetter
}

func (b burial) DeadLetter(ctx context.Context, d bus.DeadLetter) error {
	b.letters <- d
	return b.Bus.DeadLetter(ctx, d)
}

// A run that exceeds the store's size limit is refused. It is not retried forever as in an outage.
func TestTooLargeForTheStore(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	store, err := natsstore.Open(t.Context(), nc, natsstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	b := burial{membus.New(), make(chan bus.DeadLetter, 8)}
	g, err := gateway.New(store, b, gateway.Config{MaxBody: 4 * nc.MaxPayload(), StoreBudget: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = g.Run(ctx) })
	server := httptest.NewServer(g.Handler())
	t.Cleanup(func() { cancel(); server.Close(); running.Wait() })
	c := api.New(server.URL)
	if _, err := c.PutAgent(ctx, "hello", []byte(`{model: {provider: scripted, responses: [{text: hi}]}}`)); err != nil {
		t.Fatal(err)
	}
	long := fmt.Sprintf(`{"agent":"hello","input":%q}`, strings.Repeat("x", int(nc.MaxPayload())))

	_, err = c.Submit(ctx, api.SubmitRequest{Agent: "hello", Input: []byte(long[len(`{"agent":"hello","input":`) : len(long)-1])}, "key")
	var p *api.Problem
	if !errors.As(err, &p) || p.Status != http.StatusRequestEntityTooLarge || !strings.Contains(p.Detail, "max_payload") {
		t.Errorf("submit = %.200v", err)
	}

	b.Submit("default", "hello", []byte(long), nil)
	select {
	case d := <-b.letters:
		if !strings.Contains(d.Cause, "max_payload") {
			t.Errorf("cause = %s", d.Cause)
		}
	case <-time.After(2 * time.Minute):
		t.Error("a submission that can never be stored is retried")
	}
}
