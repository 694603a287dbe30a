package e2e_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/doctor"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// startNATS starts a server that requires a password, and returns its address.
func startNATS(t *testing.T) string {
	t.Helper()
	return testbed.NATSWith(t, func(o *server.Options) { o.Username, o.Password = "site", natsPassword }).Addr().String()
}

// A process that cannot log in prints the address, without the credentials.
func TestCredentialsAreRedacted(t *testing.T) {
	t.Parallel()
	for _, cfg := range []deploy.Config{
		{NATSURL: "nats://site:" + core + "@127.0.0.1:1"},
		{NATSURL: "nats://" + core + "@127.0.0.1:1,nats://site:" + core + "@127.0.0.1:2"},
		{NATSURL: "nats://site:" + core + "/x@127.0.0.1:1"},
		{NATSURL: "nats://site:" + core + "%zz@127.0.0.1:1"},
		{NATSURL: "site:" + core + "@127.0.0.1:port"},
		{NATSURL: "nats://site:" + core + "@" + startNATS(t)},
	} {
		if _, err := deploy.Open(t.Context(), cfg); err == nil || leak(err.Error()) >= 0 {
			t.Errorf("open %s: %v", cfg.NATSURL, err)
		}
		if findings := fmt.Sprint(doctor.Findings(t.Context(), cfg, "")); leak(findings) >= 0 {
			t.Errorf("findings of %s: %s", cfg.NATSURL, findings)
		}
		echo := toolkit.Tool{Name: "echo", Handler: func(context.Context, toolkit.Call) (toolkit.Result, error) { return toolkit.Result{}, nil }}
		if err := toolkit.Run(t.Context(), toolkit.Config{URL: cfg.NATSURL}, echo); err == nil || leak(err.Error()) >= 0 {
			t.Errorf("serve a tool on %s: %v", cfg.NATSURL, err)
		}
	}
	at := "nats://site:" + url.PathEscape(natsPassword) + "@" + startNATS(t)
	for _, store := range []string{
		"redis://:" + core + "@127.0.0.1:1", "redis://:" + core + "/x@127.0.0.1:1", "redis://:" + core + "%zz@127.0.0.1", core + "@127.0.0.1:6379", "http://:" + core + "@127.0.0.1",
		"redis://:" + core + "@127.0.0.1:1?" + core, "redis://:" + core + "@" + strings.TrimPrefix(testbed.RedisProcess(t, "--requirepass", redisPassword).URL, "redis://"),
	} {
		cfg := deploy.Config{NATSURL: at, RedisURL: store, Prefix: "x"}
		if _, err := deploy.Open(t.Context(), cfg); err == nil || leak(err.Error()) >= 0 {
			t.Errorf("open %s: %v", store, err)
		}
		if findings := fmt.Sprint(doctor.Findings(t.Context(), cfg, "")); leak(findings) >= 0 {
			t.Errorf("findings of %s: %s", store, findings)
		}
	}
}
