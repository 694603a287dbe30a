package natsbus_test

import (
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

// Every tenant has a limit on a server with space for the first few only: the shares shrink, whether tenants
// arrive one by one or are all known at once. No message is lost, and other streams can still be created.
func TestSharesOfManyTenants(t *testing.T) {
	t.Parallel()
	const tenants = 40
	names := make([]string, tenants)
	for i := range names {
		names[i] = fmt.Sprint("tenant", i)
	}
	for name, open := range map[string]func(*natsbus.Bus) error{
		"one by one": func(b *natsbus.Bus) error {
			for _, tenant := range names {
				if err := b.OpenTenant(t.Context(), tenant); err != nil {
					return err
				}
			}
			return nil
		},
		"at once": func(b *natsbus.Bus) error { return b.KeepTenants(t.Context(), names) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The streams of the default tenant reserve 832 MiB, and those of the first tenants 144.
			s := testbed.NATSWith(t, func(o *server.Options) { o.JetStreamMaxStore = 1536 * mib })
			nc, err := natsbus.Connect(s.ClientURL(), "test")
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			b, err := natsbus.Open(t.Context(), nc, natsbus.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			js := jet(t, nc)
			if err := b.OpenTenant(t.Context(), "loud"); err != nil {
				t.Fatal(err)
			}
			const messages = 20
			for range messages {
				if _, err := js.Publish(t.Context(), "turnpike.t.loud.submit.a", []byte(strings.Repeat("x", mib))); err != nil {
					t.Fatal(err)
				}
				// A stream of dead letters drops the oldest beyond its limit.
				letter := bus.DeadLetter{Tenant: "loud", Run: "run", Data: strings.Repeat("x", mib-4096)}
				if err := b.DeadLetter(t.Context(), letter); err != nil {
					t.Fatal(err)
				}
			}
			if err := open(b); err != nil {
				t.Fatal(err)
			}
			for _, tenant := range append(slices.Clone(names), "loud") {
				for _, kind := range []string{"SUBMIT_", "CONTROL_"} {
					if limit := limitOf(t, js, "TURNPIKE_"+kind+tenant); limit <= 0 {
						t.Errorf("stream %s%s has the limit %d", kind, tenant, limit)
					}
				}
			}
			for _, name := range []string{"TURNPIKE_SUBMIT_loud", "TURNPIKE_DEAD_loud"} {
				loud, err := js.Stream(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				if n := loud.CachedInfo().State.Msgs; n != messages {
					t.Errorf("%s: %d of %d messages are left", name, n, messages)
				}
			}
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "ANOTHER", Subjects: []string{"another"}}); err != nil {
				t.Errorf("a stream outside Turnpike: %v", err)
			}
			if err := check.Err(b.Check(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
}

// From 64 tenants on, the first streams get smaller shares already, and full ones if there are fewer tenants again.
func TestSharesOfKnownTenants(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Limits: natsbus.Limits{Submit: 32 * mib}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, c := range []struct {
		tenant string
		known  int
		want   int64
	}{{"many", 64, 4 * mib}, {"fewer", 63, 8 * mib}} {
		known := append(slices.Repeat([]string{state.DefaultTenant}, c.known-1), c.tenant) // the default tenant needs no streams
		if err := b.KeepTenants(t.Context(), known); err != nil {
			t.Fatal(err)
		}
		if got := limitOf(t, jet(t, nc), "TURNPIKE_SUBMIT_"+c.tenant); got != c.want {
			t.Errorf("with %d tenants a stream has the limit %d, want %d", c.known, got, c.want)
		}
	}
}
