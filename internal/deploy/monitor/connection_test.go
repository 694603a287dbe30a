package monitor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/deploy/monitor"
)

var errAway = errors.New("away")

func meter(t *testing.T) (*monitor.Meter, *prometheus.Registry) {
	t.Helper()
	r := prometheus.NewRegistry()
	m, err := monitor.NewMeter(r)
	if err != nil {
		t.Fatal(err)
	}
	return m, r
}

// connected returns the metric's value for a dependency.
func connected(t *testing.T, r *prometheus.Registry, dependency string) float64 {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == "turnpike_connected" && m.GetLabel()[0].GetValue() == dependency {
				return m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no turnpike_connected of %s", dependency)
	return 0
}

// levels returns the levels and messages of a log.
func levels(out string) string {
	var lines []string
	for line := range strings.Lines(out) {
		_, rest, _ := strings.Cut(line, `"level":"`)
		level, _, _ := strings.Cut(rest, `"`)
		_, rest, _ = strings.Cut(line, `"msg":"`)
		message, _, _ := strings.Cut(rest, `"`)
		lines = append(lines, level+" "+message)
	}
	return strings.Join(lines, ", ")
}

// A connection has one log line when it is lost, an error if it stays lost, and one line when it is back.
func TestConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m, r := meter(t)
		c := monitor.NewConnection("nats", "", m, slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		step := func(lost bool, after time.Duration, want string, up float64) {
			t.Helper()
			if lost {
				c.Lost(errAway)
			} else {
				c.Regained()
			}
			time.Sleep(after)
			synctest.Wait()
			if got := levels(out.String()); got != want || connected(t, r, "nats") != up {
				t.Errorf("log: %s, want %s; connected is %v, want %v", got, want, connected(t, r, "nats"), up)
			}
		}
		step(false, 0, "", 1)
		step(true, time.Second, "WARN connection lost", 0)
		step(true, time.Second, "WARN connection lost", 0)
		step(false, time.Minute, "WARN connection lost, INFO connection regained", 1)
		out.Reset()
		step(true, 2*time.Minute, "WARN connection lost, ERROR connection is still lost", 0)
		step(false, 0, "WARN connection lost, ERROR connection is still lost, INFO connection regained", 1)
		out.Reset()
		step(true, 0, "WARN connection lost", 0)
		c.Close()
		step(false, time.Minute, "WARN connection lost", 0)
	})
}

// A store is probed only while it is idle, after a failure, or lost.
func TestWatchStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var away atomic.Bool
		var probes atomic.Int64
		m, r := meter(t)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go m.WatchStore(ctx, monitor.NewConnection("store", "", m, slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))), func(context.Context) error {
			probes.Add(1)
			if away.Load() {
				return errAway
			}
			return nil
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := probes.Load(); n < 10 || n > 12 {
			t.Errorf("%d probes of an idle store in a minute, want one in five seconds", n)
		}
		away.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got, want := levels(out.String()), "WARN connection lost, ERROR connection is still lost"; got != want || connected(t, r, "store") != 0 {
			t.Errorf("log: %s, want %s; connected is %v", got, want, connected(t, r, "store"))
		}
		away.Store(false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got, want := levels(out.String()), "WARN connection lost, ERROR connection is still lost, INFO connection regained"; got != want || connected(t, r, "store") != 1 {
			t.Errorf("log: %s, want %s; connected is %v", got, want, connected(t, r, "store"))
		}
	})
}

// The log tells a server that answers and refuses writes, as when it is full, from a lost connection.
func TestRefusedWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m, r := meter(t)
		c := monitor.NewConnection("store", "run doctor", m, slog.New(slog.NewJSONHandler(&out, nil)))
		expect := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := levels(out.String()); got != want || strings.Contains(out.String(), "check the network") != strings.Contains(want, "lost") {
				t.Errorf("log: %s, want %s:\n%s", got, want, &out)
			}
			out.Reset()
		}
		full := fmt.Errorf("%w: OOM command not allowed", check.ErrNoWrites)
		c.Lost(full)
		time.Sleep(time.Minute)
		expect("WARN writes refused, ERROR writes are still refused")
		if connected(t, r, "store") != 0 {
			t.Error("turnpike_connected is 1 while the store takes no writes")
		}
		c.Lost(errAway)
		c.Lost(errAway)
		expect("WARN connection lost")
		c.Lost(full)
		expect("WARN writes refused")
		c.Regained()
		expect("INFO writes are accepted again")
		c.Lost(errAway)
		c.Lost(full)
		time.Sleep(time.Minute)
		out.Reset()
		c.Lost(full)
		c.Regained()
		expect("INFO writes are accepted again")
	})
}
