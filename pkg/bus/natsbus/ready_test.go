package natsbus_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// notReady waits until ready returns an error that names a stream.
func notReady(t *testing.T, b *natsbus.Bus, ready func(context.Context) error, stream string) error {
	t.Helper()
	var err error
	testbed.Eventually(t, "the bus is not ready", func() error {
		natsbus.ForgetReady(b)
		if err = ready(t.Context()); err == nil || !strings.Contains(err.Error(), stream+":") {
			return fmt.Errorf("it says %w", err)
		}
		return nil
	})
	return err
}

// breakStream makes one stream reject writes, and returns how to repair it, which may be nil.
func breakStream(t *testing.T, js jetstream.JetStream, name, how string) (mend func()) {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	update := func(change func(*jetstream.StreamConfig)) {
		t.Helper()
		cfg := s.CachedInfo().Config
		change(&cfg)
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatalf("break %s (%s): %v", name, how, err)
		}
	}
	subjects := s.CachedInfo().Config.Subjects
	switch how {
	case "full":
		update(func(c *jetstream.StreamConfig) { c.MaxBytes = 1 })
		return func() { update(func(c *jetstream.StreamConfig) { c.MaxBytes = -1 }) }
	case "sealed":
		update(func(c *jetstream.StreamConfig) { c.Sealed = true })
	case "without subjects":
		update(func(c *jetstream.StreamConfig) { c.Subjects = []string{"another." + name} })
		return func() { update(func(c *jetstream.StreamConfig) { c.Subjects = subjects }) }
	case "mirrored":
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ORIGIN"}); err != nil {
			t.Fatal(err)
		}
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Mirror: &jetstream.StreamSource{Name: "ORIGIN"}}); err != nil {
			t.Fatal(err)
		}
	}
	return nil
}

// A bus is not ready if any stream of turns rejects writes, although the others accept them.
func TestReadyLooksAtEachStreamOfTurns(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"full", "sealed", "without subjects", "mirrored"} {
		for _, stream := range []string{"TURNPIKE_TURNS", "TURNPIKE_TURNS_20"} {
			t.Run(how+" "+stream, func(t *testing.T) {
				t.Parallel()
				nc := testbed.NATS(t)
				b := spreadOver(t, nc, 20) // more than one check covers
				if err := b.Ready(t.Context()); err != nil {
					t.Fatal(err)
				}
				mend := breakStream(t, jet(t, nc), stream, how)
				if err := notReady(t, b, b.Ready, stream); !errors.Is(err, check.ErrNoWrites) {
					t.Errorf("Ready = %v, want an error that wraps ErrNoWrites", err)
				}
				if err := b.IntakeReady(t.Context()); err != nil {
					t.Errorf("IntakeReady = %v", err)
				}
				if mend != nil {
					mend()
					testbed.Eventually(t, "the bus is ready again", func() error { return b.Ready(t.Context()) })
				}
			})
		}
	}
}

// A stream without a leader accepts no writes, although the others of the cluster do.
func TestNotReadyWithoutALeader(t *testing.T) {
	t.Parallel()
	servers := testbed.NATSCluster(t, 3)
	nc, err := natsbus.Connect(testbed.URLs(servers), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js := jet(t, nc)
	var b *natsbus.Bus
	eventually(t, func() bool {
		b, err = natsbus.Open(t.Context(), nc, natsbus.Config{TurnStreams: 3})
		return err == nil // servers do not answer for a stream until it has a leader
	})
	defer b.Close()
	testbed.Eventually(t, "the bus is ready", func() error { return b.Ready(t.Context()) })
	leaders := map[string]string{}
	for _, name := range turnStreams(t, js) {
		s, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		leaders[name] = s.CachedInfo().Cluster.Leader
	}
	lost := leaders["TURNPIKE_TURNS_3"]
	i := slices.IndexFunc(servers, func(s *server.Server) bool { return s.Name() == lost })
	servers[i].Shutdown()
	testbed.Eventually(t, "the bus is not ready", func() error {
		err := b.Ready(t.Context())
		for name, leader := range leaders {
			if leader == lost && err != nil && strings.Contains(err.Error(), name+":") {
				return nil
			}
		}
		return fmt.Errorf("Ready = %w, on %v", err, leaders)
	})
}

// The intake is not ready if any stream for clients rejects writes. Turns are not affected. No probe message is
// left behind or reaches a gateway's queue.
func TestIntakeReadyLooksAtEachTenant(t *testing.T) {
	t.Parallel()
	const tenants = 100 // with two streams each: more than one check covers
	nc := testbed.NATS(t)
	b := open(t, nc, "")
	names := make([]string, tenants)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%d", i)
	}
	if err := b.KeepTenants(t.Context(), names); err != nil {
		t.Fatal(err)
	}
	submissions, err := b.Submissions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	aborts, err := b.AbortRequests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan bus.Message, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for _, q := range []bus.Queue{submissions, aborts} {
		go func() {
			for {
				m, err := q.Next(ctx)
				if err != nil {
					return
				}
				_ = m.Ack() // it is redelivered
				got <- m
			}
		}()
	}
	if err := b.IntakeReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	js := jet(t, nc)
	for _, stream := range []string{"TURNPIKE_SUBMIT_tenant-77", "TURNPIKE_CONTROL_tenant-5", "TURNPIKE_SUBMIT"} {
		mend := breakStream(t, js, stream, "full")
		if err := notReady(t, b, b.IntakeReady, stream); !errors.Is(err, check.ErrNoWrites) {
			t.Errorf("IntakeReady = %v, want an error that wraps ErrNoWrites", err)
		}
		if err := b.Ready(t.Context()); err != nil {
			t.Errorf("Ready = %v", err)
		}
		mend()
		testbed.Eventually(t, "the intake is ready again", func() error { return b.IntakeReady(t.Context()) })
	}
	// The stream of a closed tenant does not count.
	if err := b.CloseTenant(t.Context(), "tenant-77"); err != nil {
		t.Fatal(err)
	}
	for range 8 {
		natsbus.ForgetReady(b)
		if err := b.IntakeReady(t.Context()); err != nil {
			t.Fatalf("with a closed tenant IntakeReady returns %v", err)
		}
	}
	testbed.Eventually(t, "no probe is left", func() error {
		streams := js.ListStreams(t.Context())
		for info := range streams.Info() {
			if n := info.State.Msgs; n != 0 {
				return fmt.Errorf("%s has %d messages", info.Config.Name, n)
			}
		}
		return streams.Err()
	})
	// A submission arrives, and nothing before it.
	if _, err := js.Publish(t.Context(), "turnpike.t.tenant-5.submit.a", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if m := <-got; m.Key() != "a" || m.Tenant() != "tenant-5" {
		t.Errorf("the queue has handed out %q of %s", m.Key(), m.Tenant())
	}
}

// A publish that the server rejects makes the next check probe its stream, however many others exist; one that
// it stores saves the probe.
func TestReadyFollowsPublishes(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := spreadOver(t, nc, 64)
	js := jet(t, nc)
	run := newRun()
	for run.Shard()%64 != 63 {
		run = newRun()
	}
	const stream = "TURNPIKE_TURNS_64"
	last := func() uint64 {
		s, err := js.Stream(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		return s.CachedInfo().State.LastSeq
	}
	for last() == 0 { // until each stream was probed
		natsbus.ForgetReady(b)
		if err := b.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	breakStream(t, js, stream, "full")
	if err := b.PublishTurn(t.Context(), bus.Turn{Run: run, Version: 1, Priority: state.Normal}, "x"); err == nil {
		t.Fatal("a full stream accepted a turn")
	}
	if err := b.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), stream+":") {
		t.Errorf("after a refused publish Ready = %v", err)
	}
}
