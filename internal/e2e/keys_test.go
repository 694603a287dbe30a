package e2e_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
)

// After SIGHUP, processes sign with the current keys in their file. An invalid file changes nothing and is
// logged as an error.
func TestKeysOfTheBusAreReloaded(t *testing.T) {
	t.Parallel()
	const before, after = "0123456789abcdef-before", "0123456789abcdef-after"
	file := filepath.Join(t.TempDir(), "bus.keys")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(before)
	s := newDeployment(t, 1, "TURNPIKE_BUS_KEYS_FILE="+file)
	all := append([]*process{s.gateway}, s.workers...)
	// heard counts the heartbeats that a process with these keys accepts.
	heard := func(keys string) (workers, gateways *atomic.Int64) {
		t.Helper()
		workers, gateways = &atomic.Int64{}, &atomic.Int64{}
		k, err := natsbus.ParseKeys(keys)
		if err != nil {
			t.Fatal(err)
		}
		b, err := natsbus.Open(t.Context(), s.nats, natsbus.Config{Prefix: s.prefix(), Keys: k, ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		if _, err := b.Heartbeats(t.Context(), func(h bus.Heartbeat) {
			if h.Gateway {
				gateways.Add(1)
			} else {
				workers.Add(1)
			}
		}); err != nil {
			t.Fatal(err)
		}
		return workers, gateways
	}
	hear := func(what string, n *atomic.Int64) {
		t.Helper()
		first := n.Load()
		eventually(t, what, func() error {
			if n.Load() < first+2 {
				return errors.New("none is heard")
			}
			return nil
		})
	}
	oldWorkers, oldGateways := heard(before)
	newWorkers, newGateways := heard(after)
	hear("the worker, with the key of before", oldWorkers)
	hear("the gateway, with the key of before", oldGateways)
	if n := newWorkers.Load() + newGateways.Load(); n > 0 {
		t.Errorf("%d heartbeats have the new key already", n)
	}
	reload := func(says string) {
		t.Helper()
		for _, p := range all {
			p.signal(syscall.SIGHUP)
			eventually(t, "the log of "+p.name, func() error {
				if !strings.Contains(p.log(), says) {
					return errors.New("it does not say: " + says)
				}
				return nil
			})
		}
	}
	write(after + "," + before)
	reload("bus keys loaded")
	hear("the worker, with the new key", newWorkers)
	hear("the gateway, with the new key", newGateways)
	write("short")
	reload("new bus keys not loaded")
	hear("the worker, after a file that is not valid", newWorkers)
	hear("the gateway, after a file that is not valid", newGateways)
	for _, p := range all {
		if log := p.log(); strings.Contains(log, after) || strings.Contains(log, before) {
			t.Errorf("the log of %s has a key", p.name)
		}
	}
}
