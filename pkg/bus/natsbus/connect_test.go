package natsbus_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/credential/natslogin"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A client of an unresponsive server looks for another well before a lease of default length ends (I2).
func TestUnresponsiveServerIsNoticed(t *testing.T) {
	t.Parallel()
	nc, err := natsbus.Connect(testbed.NATSServer(t).URL(), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if within := nc.Opts.PingInterval * time.Duration(nc.Opts.MaxPingsOut+1); within > 10*time.Second {
		t.Errorf("a silent server is noticed within %s", within)
	}
}

// A URL of HTTP is refused, although the client would speak NATS to its host.
func TestConnectRefusesHTTP(t *testing.T) {
	t.Parallel()
	url := strings.Replace(testbed.NATSServer(t).URL(), "nats://", "http://", 1)
	if nc, err := natsbus.Connect(url, "test"); !errors.Is(err, natslogin.ErrURL) {
		if nc != nil {
			nc.Close()
		}
		t.Errorf("Connect(%q) = %v", url, err)
	}
}

// JetStream acknowledges a submission on any subject that its sender names. Only a strict server takes that for no
// request to purge the stream of another tenant, and Check warns of one that is not strict.
func TestStrict(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{true, false} {
		s := testbed.NATSWith(t, func(o *server.Options) { o.NoJetStreamStrict = !strict })
		nc, err := natsbus.Connect(s.ClientURL(), "test")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		b, err := natsbus.Open(t.Context(), nc, natsbus.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"OTHERS", "OWN"} {
			if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name}}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := js.Publish(t.Context(), "OTHERS", nil); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the numbers in the acknowledgements are 1 and 2
			if err := nc.PublishRequest("OWN", "$JS.API.STREAM.PURGE.OTHERS", nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := js.Publish(t.Context(), "OWN", nil); err != nil { // acknowledged after those two
			t.Fatal(err)
		}
		findings := b.Check(t.Context())
		i := slices.IndexFunc(findings, func(f state.Finding) bool { return f.Name == "nats: strict" })
		if i < 0 || findings[i].OK != strict || findings[i].Fatal {
			t.Errorf("strict %t: check says %+v", strict, findings)
		}
		testbed.Eventually(t, "the request is handled", func() error {
			others, err := js.Stream(t.Context(), "OTHERS")
			if err == nil && (others.CachedInfo().State.Msgs == 1) != strict {
				err = fmt.Errorf("strict %t: the other stream has %d messages", strict, others.CachedInfo().State.Msgs)
			}
			return err
		})
	}
}
