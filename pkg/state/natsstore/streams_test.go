package natsstore_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
)

// The log names the settings of a stream that a store changes or cannot change, with both values, and no others.
func TestChangedSettingsAreLogged(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		prefix   string
		replicas int
		ttl      bool
		want     string
		others   string
	}{
		{"ttl", 1, false, `level=INFO msg="settings of the stream changed" allow_msg_ttl="false to true" stream=TTL_STATE`, "replicas"},
		{"replicas", 3, true, `level=WARN msg="settings of the stream not changed" replicas="1 to 3" error=`, "allow_msg_ttl"},
		{"both", 3, false, `level=WARN msg="settings of the stream not changed" replicas="1 to 3" allow_msg_ttl="false to true" error=`, "changed to"},
	} {
		cfg := jetstream.StreamConfig{Name: strings.ToUpper(c.prefix) + "_STATE", Subjects: []string{c.prefix + ".state.>"}, AllowMsgTTL: c.ttl}
		if _, err := js.CreateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		s, err := natsstore.Open(t.Context(), nc, natsstore.Config{Prefix: c.prefix, Replicas: c.replicas, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err == nil {
			defer s.Close()
		} else if c.replicas == 1 { // one server cannot create the other streams with more
			t.Fatal(err)
		}
		if !strings.Contains(log.String(), c.want) || strings.Contains(log.String(), c.others) {
			t.Errorf("%s: the log has %s, want %s", c.prefix, log.String(), c.want)
		}
	}
}
