package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/client"
	"github.com/turnpike-dev/turnpike/pkg/gateway"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// interruptedBus is a bus that fails to publish the first turns, and records the rest.
type interruptedBus struct {
	bus.Bus

	mu    sync.Mutex
	fails int
	sent  []string
}

func (b *interruptedBus) PublishTurn(ctx context.Context, t bus.Turn, id string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails > 0 {
		b.fails--
		return errors.New("connection closed")
	}
	b.sent = append(b.sent, id)
	return b.Bus.PublishTurn(ctx, t, id)
}

func (b *interruptedBus) messages() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent
}

// A submission that a client repeats under its key publishes the turn that the first try
// could not publish, without waiting for a sweep. No worker is here that could sweep.
func TestRepeatedSubmissionIsPublished(t *testing.T) {
	t.Parallel()
	b := &interruptedBus{Bus: membus.New(), fails: 1}
	g, err := gateway.New(memstore.New(memstore.Config{}), b, gateway.Config{Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	defer server.Close()
	s := &deployment{t: t, url: server.URL, client: client.New(server.URL)}
	s.put("hello", `{model: {provider: scripted, responses: [{text: hi}]}}`)
	submit := func() string {
		run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: json.RawMessage(`"x"`)}, "order 7")
		if err != nil {
			t.Fatal(err)
		}
		return run.ID
	}
	first := submit()
	if sent := b.messages(); len(sent) != 0 {
		t.Fatalf("the first try published %q", sent)
	}
	if again := submit(); again != first {
		t.Fatalf("the key gives %s and %s", first, again)
	}
	submit()
	// The message has one id however often it is sent, so that the bus stores it once.
	want := []string{first + ":1", first + ":1"}
	if diff := cmp.Diff(want, b.messages()); diff != "" {
		t.Errorf("messages published (-want +got):\n%s", diff)
	}
}
