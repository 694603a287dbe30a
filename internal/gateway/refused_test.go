package gateway_test

import (
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// A gateway with a setting that could never have its effect does not start, and the error names the variable.
func TestSettingsAreRefused(t *testing.T) {
	t.Parallel()
	start := func(cfg gateway.Config) error {
		g, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), cfg)
		if err == nil {
			g.Close()
		}
		return err
	}
	hosts := func(names ...string) gateway.Config { return gateway.Config{Hosts: names} }
	for _, c := range []struct {
		cfg  gateway.Config
		want string
	}{
		{gateway.Config{Tenant: "A B"}, "TURNPIKE_TENANT"},
		{gateway.Config{Tenant: "*"}, "TURNPIKE_TENANT"},
		{gateway.Config{ShutdownDelay: -time.Second}, "TURNPIKE_DRAIN"},
		{hosts("http://turnpike.example"), "TURNPIKE_HOSTS"},
		{hosts("turnpike.example", "turnpike.example:7070"), "TURNPIKE_HOSTS"},
		{hosts("turnpike.example/"), "TURNPIKE_HOSTS"},
		{hosts("*.example"), "TURNPIKE_HOSTS"},
		{hosts("turnpike.example."), "TURNPIKE_HOSTS"},
		{hosts(" turnpike.example"), "TURNPIKE_HOSTS"},
		{hosts(""), "TURNPIKE_HOSTS"},
		{gateway.Config{ModelExtra: []string{"field"}}, "TURNPIKE_MODEL_EXTRA"},
	} {
		if err := start(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("hosts %q, tenant %q, drain %s, extra %q: %v, want an error with %s", c.cfg.Hosts, c.cfg.Tenant, c.cfg.ShutdownDelay, c.cfg.ModelExtra, err, c.want)
		}
	}
	if err := start(hosts("turnpike.example", "Turnpike.Example", "gateway_1", "localhost", "10.0.0.1", "::1", "[::1]", "xn--mnchen-3ya.example")); err != nil {
		t.Errorf("hosts of requests are refused: %v", err)
	}
}
