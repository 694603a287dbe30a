package app

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/rs/zerolog"

	"github.com/turnpike-dev/turnpike/pkg/access"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// AuthConfig is what a gateway is told about who may ask it.
type AuthConfig struct {
	Auth     []string `env:"TURNPIKE_AUTH" default:"none" placeholder:"none|keys,oidc" help:"How callers say who they are: none, or a list of keys and oidc."`
	Insecure bool     `env:"TURNPIKE_INSECURE" help:"Serve an address that is not loopback although nobody has to say who they are."`

	OIDCIssuer   string `name:"oidc-issuer" env:"TURNPIKE_OIDC_ISSUER" help:"URL of the OpenID provider."`
	OIDCAudience string `name:"oidc-audience" env:"TURNPIKE_OIDC_AUDIENCE" help:"Audience that its tokens must have."`
	OIDCClaims   string `name:"oidc-claims" env:"TURNPIKE_OIDC_CLAIMS" help:"CEL expression over claims that gives an object with tenant and roles."`
}

// Ways to say who one is.
const (
	authNone = "none"
	authKeys = "keys"
	authOIDC = "oidc"
)

// Authenticator returns who finds out who asks, over the keys in a store; nil if nobody has
// to say.
func (c AuthConfig) Authenticator(store state.Documents) (access.Authenticator, error) {
	ways := slices.Compact(slices.Sorted(slices.Values(c.Auth)))
	for _, way := range ways {
		if !slices.Contains([]string{authNone, authKeys, authOIDC}, way) {
			return nil, fmt.Errorf("TURNPIKE_AUTH has %q: it is none, or a list of keys and oidc", way)
		}
	}
	if len(ways) == 0 || slices.Contains(ways, authNone) {
		if len(ways) > 1 {
			return nil, errors.New("TURNPIKE_AUTH has none beside others: it is none, or a list of keys and oidc")
		}
		return nil, nil //nolint:nilnil // that is what none is
	}
	var chain access.Chain
	if slices.Contains(ways, authKeys) {
		chain.Keys = access.NewKeys(store)
	}
	if slices.Contains(ways, authOIDC) {
		var err error
		if chain.OIDC, err = access.NewOIDC(access.OIDCConfig{Issuer: c.OIDCIssuer, Audience: c.OIDCAudience, Claims: c.OIDCClaims}); err != nil {
			return nil, err
		}
	}
	return chain, nil
}

// Guard refuses to serve strangers: an address that others can reach needs callers who say
// who they are, or somebody who says twice that they need not.
func (c AuthConfig) Guard(addr net.Addr, log zerolog.Logger) error {
	if !slices.Contains(c.Auth, authNone) && len(c.Auth) > 0 || loopback(addr) {
		return nil
	}
	if !c.Insecure {
		return fmt.Errorf("refused to serve %s to everybody who reaches it: TURNPIKE_AUTH=keys makes callers say who they are, "+
			"TURNPIKE_ADDR=127.0.0.1:7070 serves this machine only, and TURNPIKE_INSECURE=1 says that a network in front keeps strangers away", addr)
	}
	log.Warn().Str("addr", addr.String()).Str("hint", "TURNPIKE_AUTH=keys makes callers say who they are").Msg("everybody who reaches this address may do everything")
	return nil
}

func loopback(addr net.Addr) bool {
	at, err := netip.ParseAddrPort(addr.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}
