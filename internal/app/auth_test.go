package app

import (
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
