package worker_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
)

func turnStream(t *testing.T, nc *nats.Conn, name string) jetstream.Stream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// A run whose messages a JetStream store has lost, by a power cut, a purge or a restore, does not keep the
// sweeper from other runs.
func TestRunGoneFromTheStream(t *testing.T) {
	s := newDeployment(t)
	nc := testbed.NATS(t)
	store, err := natsstore.Open(t.Context(), nc, natsstore.Config{Prefix: "ghost"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	s.store = store
	ghost := s.create(state.Limits{}, nil, model.Scripted{Text: "done"})
	stream := turnStream(t, nc, "GHOST_STATE")
	if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("ghost.state.run."+string(ghost))); err != nil {
		t.Fatal(err)
	}
	// The first messages of these runs were lost: the sweeper must find the runs.
	var ids []state.RunID
	for range 20 {
		ids = append(ids, s.create(state.Limits{}, nil, model.Scripted{Text: "done"}))
	}
	s.work(s.config())
	for _, id := range ids {
		s.awaitReason(id, state.EndCompleted)
	}
}
