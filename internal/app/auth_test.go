package app

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// The configured ways to authenticate are those of the page's login, and an error in one is reported with the
// name of the setting.
func TestCallers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	oidc := AuthConfig{Auth: []string{"oidc", "keys"}, OIDCIssuer: "https://login.example", OIDCAudience: "turnpike"}
	with := func(edit func(*AuthConfig)) AuthConfig {
		c := oidc
		edit(&c)
		return c
	}
	for name, c := range map[string]struct {
		cfg  AuthConfig
		ways []string
		err  string
	}{
		"nobody says who they are": {cfg: AuthConfig{Auth: []string{"none"}}},
		"nothing is set":           {},
		"keys":                     {cfg: AuthConfig{Auth: []string{"keys"}}, ways: []string{"key"}},
		"both":                     {cfg: oidc, ways: []string{"key", "oidc"}},
		"a secret in a file":       {cfg: with(func(c *AuthConfig) { c.OIDCClientSecretFile = file }), ways: []string{"key", "oidc"}},
		"none beside keys":         {cfg: AuthConfig{Auth: []string{"none", "keys"}}, err: "TURNPIKE_AUTH"},
		"another way":              {cfg: AuthConfig{Auth: []string{"basic"}}, err: "TURNPIKE_AUTH"},
		"no issuer":                {cfg: AuthConfig{Auth: []string{"oidc"}}, err: "TURNPIKE_OIDC_ISSUER"},
		"two secrets":              {cfg: with(func(c *AuthConfig) { c.OIDCClientSecretFile, c.OIDCClientSecret = file, "s" }), err: "TURNPIKE_OIDC_CLIENT_SECRET"},
		"no such file":             {cfg: with(func(c *AuthConfig) { c.OIDCClientSecretFile = file + "x" }), err: "TURNPIKE_OIDC_CLIENT_SECRET_FILE"},
		"a session in the past":    {cfg: with(func(c *AuthConfig) { c.Session = -1 }), err: "TURNPIKE_SESSION"},
	} {
		auth, login, err := c.cfg.Callers(memstore.New(memstore.Config{}))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %v, want an error that names %s", name, err, c.err)
			}
			continue
		}
		if err != nil || (auth == nil) != (c.ways == nil) || (login == nil) != (c.ways == nil) || login != nil && !slices.Equal(login.Ways(), c.ways) {
			t.Errorf("%s: %v, %v, %v; want %q", name, auth, login, err, c.ways)
		}
	}
}

// The process reports a provider that it cannot use at the start, unless it must stop meanwhile.
func TestWarnOfProvider(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for name, c := range map[string]struct {
		cfg  AuthConfig
		ctx  context.Context //nolint:containedctx // of the case
		want int
	}{
		"no login":            {AuthConfig{Auth: []string{"none"}}, t.Context(), 0},
		"keys only":           {AuthConfig{Auth: []string{"keys"}}, t.Context(), 0},
		"no provider answers": {AuthConfig{Auth: []string{"oidc"}, OIDCIssuer: server.URL, OIDCAudience: "turnpike"}, t.Context(), 1},
		"stopped":             {AuthConfig{Auth: []string{"oidc"}, OIDCIssuer: server.URL, OIDCAudience: "turnpike"}, stopped, 0},
	} {
		_, login, err := c.cfg.Callers(memstore.New(memstore.Config{}))
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		WarnOfProvider(c.ctx, login, slog.New(slog.NewTextHandler(&log, nil)))
		if got := strings.Count(log.String(), "the OpenID provider cannot be used"); got != c.want {
			t.Errorf("%s: %d warnings, want %d: %s", name, got, c.want, &log)
		}
	}
}

// Without authentication a gateway serves this machine only, unless the operator confirms another address.
func TestGuard(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		auth     []string
		insecure bool
		ip       string
		refused  bool
		warns    int
	}{
		"loopback":           {nil, false, "127.0.0.1", false, 0},
		"mapped loopback":    {nil, false, "::ffff:127.0.0.1", false, 0},
		"none, loopback":     {[]string{"none"}, false, "::1", false, 0},
		"everywhere":         {nil, false, "0.0.0.0", true, 0},
		"none, everywhere":   {[]string{"none"}, false, "::", true, 0},
		"confirmed":          {[]string{"none"}, true, "10.0.0.1", false, 1},
		"keys":               {[]string{"keys"}, false, "0.0.0.0", false, 0},
		"keys and confirmed": {[]string{"keys"}, true, "0.0.0.0", false, 0},
	} {
		var log bytes.Buffer
		err := AuthConfig{Auth: c.auth, Insecure: c.insecure}.Guard(&net.TCPAddr{IP: net.ParseIP(c.ip), Port: 7070}, slog.New(slog.NewTextHandler(&log, nil)))
		if got := strings.Count(log.String(), "authentication is off"); (err != nil) != c.refused || got != c.warns {
			t.Errorf("%s: %v, %d warnings; want refused %t, %d warnings", name, err, got, c.refused, c.warns)
		}
	}
}
