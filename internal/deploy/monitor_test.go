package deploy_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

// losses is a log that sends the error of each lost connection to NATS.
type losses struct{ lost chan string }

func (l losses) Enabled(context.Context, slog.Level) bool { return true }

func (l losses) Handle(_ context.Context, r slog.Record) error {
	values := map[string]string{}
	r.Attrs(func(a slog.Attr) bool { values[a.Key] = fmt.Sprint(a.Value.Any()); return true })
	if r.Message == "connection lost" && values["dependency"] == "nats" {
		l.lost <- values["error"]
	}
	return nil
}

func (l losses) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l losses) WithGroup(string) slog.Handler { return l }

// The log gives a reason for each lost connection, also if the server has closed it, for which the client has no error.
func TestLostConnectionHasAReason(t *testing.T) {
	t.Parallel()
	s := testbed.NATSWith(t, func(*server.Options) {})
	lost := make(chan string, 10)
	d, err := deploy.Open(t.Context(), deploy.Config{NATSURL: s.ClientURL(), Prefix: "reason", Registry: prometheus.NewRegistry(), Logger: slog.New(losses{lost})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	s.Shutdown()
	if got := <-lost; got == fmt.Sprint(nil) {
		t.Errorf("the connection is lost because of %q", got)
	}
}
