package natsstore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
)

// A store is not ready while the stream of runs refuses writes, although the other streams accept them.
func TestReadyWritesToTheStreamOfRuns(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	s := open(t, nc, "ready")
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	stream, err := js.Stream(t.Context(), "READY_STATE")
	if err != nil {
		t.Fatal(err)
	}
	was := stream.CachedInfo().Config
	full := was
	full.MaxBytes = 1
	if _, err := js.UpdateStream(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(t.Context()); !errors.Is(err, check.ErrNoWrites) {
		t.Errorf("while the stream is full: %v", err)
	}
	if _, err := js.UpdateStream(t.Context(), was); err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(t.Context()); err != nil {
		t.Errorf("when the stream has room again: %v", err)
	}
}

// A store is not ready while the stream of rate limits refuses writes, although the stream of runs accepts them.
func TestReadyWritesToTheStreamOfQuotas(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	s := open(t, nc, "ready")
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "READY_QUOTA")
	if err != nil {
		t.Fatal(err)
	}
	sealed := stream.CachedInfo().Config
	sealed.Sealed = true
	if _, err := js.UpdateStream(t.Context(), sealed); err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(t.Context()); !errors.Is(err, check.ErrNoWrites) {
		t.Errorf("while the stream is sealed: %v", err)
	}
}

// Without a connection the error says so.
func TestReadyWithoutAConnection(t *testing.T) {
	t.Parallel()
	srv := testbed.NATSWith(t, func(*server.Options) {})
	nc, err := natsbus.Connect(srv.ClientURL(), t.Name())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	s := open(t, nc, "away")
	srv.Shutdown()
	testbed.Eventually(t, "the connection is lost", func() error {
		if nc.IsConnected() {
			return errors.New("there is a connection")
		}
		return nil
	})
	if err := s.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "not connected to NATS") {
		t.Errorf("Ready = %v", err)
	}
}
