package simulation_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"

	"github.com/turnpike-dev/turnpike/internal/devserver"
	"github.com/turnpike-dev/turnpike/internal/verify/simulation"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
)

// The invariants hold on a real NATS server, which is also the store, in the bubble's time (I1 to I9).
func TestFaultsOnNATS(t *testing.T) {
	// The server's ticker must be created before the bubble, which cannot contain it.
	ats.Register()
	defer ats.Unregister()
	for _, seed := range drawn(*natsSeeds) {
		synctest.Test(t, func(t *testing.T) {
			server, err := devserver.Start(devserver.Options{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			r, err := simulation.Run(simulation.Config{
				Seed: seed, Faults: usual, Strike: *strike, Users: *users,
				Connect: func() (simulation.Backend, error) { return connect(server) },
			})
			if err != nil {
				t.Error(err)
			}
			check(t, r)
		})
	}
}

func connect(server *devserver.Server) (simulation.Backend, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	nc, err := server.Conn("simulation")
	if err != nil {
		return simulation.Backend{}, err
	}
	b, err := natsbus.Open(ctx, nc, natsbus.Config{EventFeed: true, TurnStreams: 3})
	if err != nil {
		nc.Close()
		return simulation.Backend{}, err
	}
	s, err := natsstore.Open(ctx, nc, natsstore.Config{})
	if err != nil {
		nc.Close()
		return simulation.Backend{}, err
	}
	return simulation.Backend{Store: s, Bus: b, Close: func() {
		_ = b.Close()
		_ = s.Close()
		nc.Close()
	}}, nil
}
