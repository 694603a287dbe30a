package turnpike

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Auth authenticates the requests of a gateway: [NoAuth], [Deployment.KeyAuth] or an [AuthFunc].
type Auth interface {
	// Authenticate returns the caller of a request. The gateway responds to an error that wraps ErrUnauthenticated with
	// 401, to an [*Error] with its Status, and to any other error with 500 or more, usually 503. Authenticate must be
	// safe for concurrent use, and must not read the body. While an event stream or a wait is open, the gateway calls
	// Authenticate with its request every two seconds. It ends the stream or the wait when Authenticate refuses the
	// caller, or has returned other errors for five seconds.
	Authenticate(r *http.Request) (Principal, error)
}

// AuthFunc is a function that authenticates requests, for example by the header of a proxy or by a session of the
// program. It must not trust headers that other clients can set.
type AuthFunc func(r *http.Request) (Principal, error)

// Authenticate implements Auth.
func (f AuthFunc) Authenticate(r *http.Request) (Principal, error) { return f(r) }

// noAuth gives every caller full access.
type noAuth struct{}

func (noAuth) Authenticate(*http.Request) (Principal, error) {
	return Principal{Name: access.Anonymous().Name, Roles: access.Roles()}, nil
}

// NoAuth gives every caller full access, and writes no audit. Use it only on loopback, or in a network without
// untrusted clients.
func NoAuth() Auth { return noAuth{} }

// keyAuth is the Auth of KeyAuth. A gateway uses its parts instead of Authenticate, and adds tokens of users.
type keyAuth struct {
	chain access.Chain
	login *access.Login
}

// Authenticate implements Auth.
func (k keyAuth) Authenticate(r *http.Request) (Principal, error) {
	_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	p, err := k.chain.Authenticate(r.Context(), token)
	if err != nil {
		return Principal{}, unauthenticated(err)
	}
	if len(p.Grants) != 1 {
		return Principal{}, exchange.Problem(http.StatusForbidden, api.CodeForbidden, "%s has roles in %d tenants, and this gateway accepts callers with roles in exactly 1: have its roles granted in one tenant only", p.Name, len(p.Grants))
	}
	return Principal{Name: p.Name, Tenant: p.Grants[0].Tenant, Roles: p.Grants[0].Roles}, nil
}

// unauthenticated makes errors.Is work for errors of package access.
func unauthenticated(err error) error {
	if errors.Is(err, access.ErrUnauthenticated) {
		return fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	}
	return err
}

// brokenAuth is the Auth of KeyAuth with settings that cannot be used. NewGateway refuses it.
type brokenAuth struct{ err error }

// Authenticate implements Auth, for an Auth of the caller's that calls it.
func (b brokenAuth) Authenticate(*http.Request) (Principal, error) { return Principal{}, b.err }

// KeyAuth returns an Auth, for GatewayOptions, that accepts API keys, which the command turnpike and package pkg/api
// create, tokens of users that API keys have issued, and tokens of the provider in Options.OIDC. People log in to the
// page with an API key or at the provider. Authenticate, if an Auth of the caller's calls it, accepts no tokens of
// users and no sessions of the page. If Options.OIDC is invalid or its ClientSecret cannot be read, NewGateway returns
// the error.
func (d *Deployment) KeyAuth() Auth {
	store := service.Budgeted(d.core.Store)
	keys := access.NewKeys(store)
	o := d.o.OIDC
	provider, err := o.provider()
	secret := ""
	if err == nil {
		secret, err = o.ClientSecret.value("OIDC.ClientSecret").Read()
	}
	if err != nil {
		return brokenAuth{fmt.Errorf("the OpenID provider of KeyAuth cannot be used: %w", err)}
	}
	return keyAuth{access.Chain{Keys: keys, OIDC: provider}, access.NewLogin(store, access.LoginConfig{
		Keys: keys, OIDC: provider, ClientID: o.ClientID, ClientSecret: secret, Scopes: o.Scopes,
	})}
}

// requests authenticates requests with an Auth of the caller's.
type requests struct {
	auth   Auth
	tenant string
}

// AuthenticateRequest implements access.RequestAuthenticator.
func (a requests) AuthenticateRequest(r *http.Request) (access.Principal, error) {
	p, err := a.auth.Authenticate(r)
	if errors.Is(err, ErrUnauthenticated) {
		return access.Principal{}, fmt.Errorf("%w: %s", access.ErrUnauthenticated, strings.TrimPrefix(err.Error(), ErrUnauthenticated.Error()+": "))
	}
	if err != nil {
		return access.Principal{}, err
	}
	return access.Trusted(p, a.tenant)
}

// Authenticate implements access.Authenticator. Gateways call AuthenticateRequest.
func (a requests) Authenticate(context.Context, string) (access.Principal, error) {
	return access.Principal{}, access.ErrUnauthenticated
}

// GatewayOptions configure a gateway. Auth is required.
type GatewayOptions struct {
	Auth Auth

	// PublicURL is the address of the gateway for browsers, such as https://turnpike.example.com, without a path. It
	// must begin with https, except at localhost, names below it and loopback addresses. Without PublicURL people can
	// log in at the OpenID provider only if they reach the gateway there.
	PublicURL string

	// Hosts are the names that clients may use for the gateway, in addition to the host of PublicURL, localhost, IP
	// addresses and, in requests that arrive at another address than loopback, names without a dot. With KeyAuth and no
	// Hosts, requests that arrive at another address than loopback may use any name.
	Hosts []string

	// SecretsDir has one file for each secret that signs deliveries to hooks, as WorkerOptions.SecretsDir. After
	// FromEnv, hooks also find secrets in the variables.
	SecretsDir string

	NoUI bool // do not serve the page

	// WriteTimeout is the time after which the gateway disconnects a client that receives nothing. Default 30 s.
	WriteTimeout time.Duration
}

// Gateway is an http.Handler that serves the HTTP API and the page. Do not put a timeout handler in front
// of it: streams of events last as long as their runs. The page requests absolute paths, so it works only at the root
// of its host; the API also works behind [http.StripPrefix]. It is safe for concurrent use.
type Gateway struct {
	gateway *gateway.Gateway
	handler http.Handler
	started atomic.Bool
}

// NewGateway returns a gateway that checks definitions against what Options names. o.Auth is required. With
// Options.Metrics, a Deployment has at most one gateway: another call of NewGateway fails, even after Run has returned.
func (d *Deployment) NewGateway(o GatewayOptions) (*Gateway, error) {
	cfg := d.gatewayConfig()
	secrets := definition.Secrets{Dir: o.SecretsDir, Getenv: d.o.getenv}
	if err := secrets.CheckDir(); err != nil {
		return nil, fmt.Errorf("turnpike: %w", err)
	}
	cfg.HookSecret = func(tenant, name string, p policy.Policy) (string, error) { return secrets.Find(tenant, name, "", p) }
	cfg.PublicURL, cfg.Hosts, cfg.WriteTimeout = strings.TrimSuffix(o.PublicURL, "/"), o.Hosts, o.WriteTimeout
	if absent(o.Auth) {
		return nil, errors.New("turnpike: GatewayOptions.Auth is nil: set NoAuth(), KeyAuth() or an AuthFunc")
	}
	switch auth := o.Auth.(type) {
	case noAuth:
	case brokenAuth:
		return nil, fmt.Errorf("turnpike: GatewayOptions.Auth: %w", auth.err)
	case keyAuth:
		cfg.Auth, cfg.Login = auth.chain, auth.login
	default:
		cfg.Auth = requests{auth, d.o.Tenant}
	}
	g, err := d.core.NewGateway(cfg)
	if err != nil {
		return nil, onlyOne("gateway", err)
	}
	made := &Gateway{gateway: g, handler: g.Handler()}
	if o.NoUI {
		made.handler = withoutUI(made.handler)
	}
	return made, nil
}

// withoutUI answers 404 for the page.
func withoutUI(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" || r.URL.Path == "/ui" || strings.HasPrefix(r.URL.Path, "/ui/") {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ServeHTTP implements http.Handler.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.handler.ServeHTTP(w, r) }

// Run accepts submissions and aborts over NATS, fires schedules, reads the streams of triggers, and deletes runs whose
// retention has passed and unused files, until ctx ends. Then it ends streams of events, so that their readers
// reconnect to another gateway, waits up to two seconds for pending messages, and returns nil. The Gateway must not
// serve requests after Run has returned. Run returns an error if it cannot subscribe, or if it was called before. At
// least one gateway of a deployment must run.
func (g *Gateway) Run(ctx context.Context) error {
	if g.started.Swap(true) {
		return errTwice
	}
	defer g.gateway.Close()
	if err := g.gateway.Run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}
