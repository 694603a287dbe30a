package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// AuthConfig is the authentication settings of a gateway.
type AuthConfig struct {
	Auth     []string `env:"TURNPIKE_AUTH" default:"none" placeholder:"none|keys,oidc" help:"How callers authenticate: none, or a list of keys and oidc."`
	Insecure bool     `env:"TURNPIKE_INSECURE" help:"Serve a non-loopback address without authentication."`

	OIDCIssuer   string `name:"oidc-issuer" env:"TURNPIKE_OIDC_ISSUER" help:"URL of the OpenID provider."`
	OIDCAudience string `name:"oidc-audience" env:"TURNPIKE_OIDC_AUDIENCE" help:"Audience that its tokens must have."`
	OIDCClaims   string `name:"oidc-claims" env:"TURNPIKE_OIDC_CLAIMS" help:"CEL expression over claims that returns an object with tenant and roles."`

	OIDCClientID         string   `name:"oidc-client-id" env:"TURNPIKE_OIDC_CLIENT_ID" help:"OpenID client for logins to the page; default the audience."`
	OIDCClientSecret     string   `name:"oidc-client-secret" env:"TURNPIKE_OIDC_CLIENT_SECRET" help:"Secret of that client; empty for a public one. Other users of the host can see it on a command line: set the variable."`
	OIDCClientSecretFile string   `name:"oidc-client-secret-file" env:"TURNPIKE_OIDC_CLIENT_SECRET_FILE" type:"path" help:"File with that secret."`
	OIDCScopes           []string `name:"oidc-scopes" env:"TURNPIKE_OIDC_SCOPES" help:"Scopes that the page's login requests, separated by commas; default openid,profile,email."`

	PublicURL string        `name:"public-url" env:"TURNPIKE_PUBLIC_URL" help:"Public address of the gateway, as in https://turnpike.example.com. The OpenID provider redirects browsers to it."`
	Session   time.Duration `name:"session" env:"TURNPIKE_SESSION" default:"8h" help:"Lifetime of a login to the page."`
}

// The values of TURNPIKE_AUTH.
const (
	authNone = "none"
	authKeys = "keys"
	authOIDC = "oidc"
)

// Callers returns the authenticator of callers and the login of the page, over the keys in a
// store. Both are nil if authentication is off.
func (c AuthConfig) Callers(store state.Documents) (access.Authenticator, *access.Login, error) {
	if c.Session < 0 {
		return nil, nil, fmt.Errorf("TURNPIKE_SESSION is %s: set a positive duration such as 8h", c.Session)
	}
	ways := slices.Compact(slices.Sorted(slices.Values(c.Auth)))
	for _, way := range ways {
		if !slices.Contains([]string{authNone, authKeys, authOIDC}, way) {
			return nil, nil, fmt.Errorf("TURNPIKE_AUTH has the value %q: set it to none, keys, oidc or keys,oidc", way)
		}
	}
	if given := c.oidcGiven(); len(given) > 0 && !slices.Contains(ways, authOIDC) {
		return nil, nil, fmt.Errorf("TURNPIKE_AUTH is %[2]s, so %[1]s would have no effect: set TURNPIKE_AUTH to oidc or keys,oidc, or unset %[1]s", strings.Join(given, " and "), cmp.Or(strings.Join(ways, ","), authNone))
	}
	if len(ways) == 0 || slices.Contains(ways, authNone) {
		if len(ways) > 1 {
			return nil, nil, errors.New("TURNPIKE_AUTH has the value none together with others: set it to none, keys, oidc or keys,oidc")
		}
		return nil, nil, nil
	}
	var chain access.Chain
	if slices.Contains(ways, authKeys) {
		chain.Keys = access.NewKeys(store)
	}
	secret, err := value("OIDC_CLIENT_SECRET", c.OIDCClientSecret, c.OIDCClientSecretFile).Read()
	if err != nil {
		return nil, nil, err
	}
	if slices.Contains(ways, authOIDC) {
		if chain.OIDC, err = access.NewOIDC(access.OIDCConfig{Issuer: c.OIDCIssuer, Audience: c.OIDCAudience, Claims: c.OIDCClaims}); err != nil {
			return nil, nil, err
		}
	}
	return chain, access.NewLogin(store, access.LoginConfig{
		Keys: chain.Keys, OIDC: chain.OIDC, ClientID: c.OIDCClientID, ClientSecret: secret, Scopes: c.OIDCScopes, Lasts: c.Session,
	}), nil
}

// oidcGiven returns the names of the settings of the OpenID provider that are set.
func (c AuthConfig) oidcGiven() (names []string) {
	for _, s := range []struct{ name, value string }{
		{"ISSUER", c.OIDCIssuer}, {"AUDIENCE", c.OIDCAudience}, {"CLAIMS", c.OIDCClaims}, {"CLIENT_ID", c.OIDCClientID},
		{"CLIENT_SECRET", c.OIDCClientSecret}, {"CLIENT_SECRET_FILE", c.OIDCClientSecretFile}, {"SCOPES", strings.Join(c.OIDCScopes, ",")},
	} {
		if s.value != "" {
			names = append(names, "TURNPIKE_OIDC_"+s.name)
		}
	}
	return names
}

// WarnOfProvider contacts the OpenID provider of a login, if there is one, and logs a failure.
// Each login contacts it again.
func WarnOfProvider(ctx context.Context, login *access.Login, log *slog.Logger) {
	if login == nil {
		return
	}
	if err := login.Provider(ctx); err != nil && ctx.Err() == nil {
		log.Warn("the OpenID provider cannot be used, logins through it fail", "error", err, "hint", "each login tries again. If the provider is running, set TURNPIKE_OIDC_ISSUER to the exact issuer in its /.well-known/openid-configuration, and SSL_CERT_FILE for a private certificate authority")
	}
}

// Guard refuses to serve an address that other machines can reach, unless callers authenticate
// or the settings explicitly allow it.
func (c AuthConfig) Guard(addr net.Addr, log *slog.Logger) error {
	if !slices.Contains(c.Auth, authNone) && len(c.Auth) > 0 || loopback(addr) {
		return nil
	}
	if !c.Insecure {
		return fmt.Errorf("%s would be served without authentication: require API keys with TURNPIKE_AUTH=keys, "+
			"serve this machine only with TURNPIKE_ADDR=127.0.0.1:7070, or confirm with TURNPIKE_INSECURE=1 that only trusted clients can reach the address", addr)
	}
	log.Warn("authentication is off: every client has full access", "addr", addr.String(), "hint", "set TURNPIKE_AUTH=keys to require authentication")
	return nil
}

func loopback(addr net.Addr) bool {
	at, err := netip.ParseAddrPort(addr.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}
