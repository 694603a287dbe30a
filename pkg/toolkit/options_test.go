package toolkit_test

import (
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// Unless Options say otherwise, Run fails without a server at once, but reconnects for ever, also after a refused login,
// so that tools come back after an outage of any length.
func TestRunReconnects(t *testing.T) {
	t.Parallel()
	enough := errors.New("the options are known")
	var got nats.Options
	look := func(o *nats.Options) error {
		got = *o
		return enough
	}
	tool := toolkit.Tool{Name: "t", Handler: nothing}
	if err := toolkit.Run(t.Context(), toolkit.Config{Options: []nats.Option{look}}, tool); !errors.Is(err, enough) {
		t.Fatal(err)
	}
	if got.MaxReconnect != -1 || !got.AllowReconnect || !got.IgnoreAuthErrorAbort || got.RetryOnFailedConnect || got.ReconnectWait != time.Second || got.Name != "tool t" {
		t.Errorf("at most %d reconnects (allowed: %t), also after a refused login: %t, retry of the first: %t, every %s, as %q",
			got.MaxReconnect, got.AllowReconnect, got.IgnoreAuthErrorAbort, got.RetryOnFailedConnect, got.ReconnectWait, got.Name)
	}
	if err := toolkit.Run(t.Context(), toolkit.Config{Options: []nats.Option{nats.MaxReconnects(7), nats.Name("mine"), look}}, tool); !errors.Is(err, enough) {
		t.Fatal(err)
	}
	if got.MaxReconnect != 7 || got.Name != "mine" {
		t.Errorf("at most %d reconnects as %q, although Options ask for 7 as mine", got.MaxReconnect, got.Name)
	}
}
