// Package login identifies the callers of HTTP requests, by a token or by the session of a browser, and serves the
// requests that begin and end such sessions.
package login

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Callers identifies the callers of requests. It is safe for concurrent use.
type Callers struct {
	auth   access.Authenticator
	login  *access.Login
	tenant string
	budget time.Duration
}

// NewCallers returns a Callers that authenticates tokens with auth and sessions with login. If auth is nil, every
// caller has full access. If auth is an access.RequestAuthenticator, it alone decides. If login is nil, there are no
// sessions. tenant is the tenant of a request that names none, unless its principal has exactly one grant, for one
// tenant. budget limits each call of the store in the checks of WhileAllowed.
func NewCallers(auth access.Authenticator, login *access.Login, tenant string, budget time.Duration) *Callers {
	return &Callers{auth: auth, login: login, tenant: tenant, budget: budget}
}

// Identify returns the caller of a request. The error is a problem with status 401 without valid
// credentials, 400 if the request names several tenants, or 403 if the principal has no roles in the
// tenant, or none in the default tenant and names no other. Any other error is that of the authentication,
// for example because the store does not answer.
func (c *Callers) Identify(r *http.Request) (access.Caller, error) {
	who, err := c.principal(r)
	if err != nil {
		return access.Caller{}, refusal(err)
	}
	tenant, err := exchange.NamedTenant(r)
	if err != nil {
		return access.Caller{}, err
	}
	caller, err := who.In(tenant, c.tenant)
	if err != nil {
		return access.Caller{}, exchange.Problem(http.StatusForbidden, api.CodeForbidden, "%v in the header %s", err, exchange.HeaderTenant)
	}
	return caller, nil
}

// principal authenticates a request by its token or, without one, by the session in its cookie. If auth is nil, it
// accepts every request; if auth is an access.RequestAuthenticator, only that decides.
func (c *Callers) principal(r *http.Request) (access.Principal, error) {
	if c.auth == nil {
		return access.Anonymous(), nil
	}
	if a, ok := c.auth.(access.RequestAuthenticator); ok {
		return a.AuthenticateRequest(r)
	}
	if token, ok := bearer(r); ok {
		return c.auth.Authenticate(r.Context(), token)
	}
	if id := sessionOf(r); id != "" && c.login != nil {
		who, _, err := c.login.Authenticate(r.Context(), id)
		return who, err
	}
	if c.login == nil {
		return access.Principal{}, exchange.Unauthenticated("authentication required: send an API key or a token in one header Authorization: Bearer")
	}
	return access.Principal{}, exchange.Unauthenticated("authentication required: send an API key or a token in one header Authorization: Bearer, or log in at /ui/")
}

// refusal returns a problem with status 401 if err wraps access.ErrUnauthenticated, and err otherwise.
func refusal(err error) error {
	if errors.Is(err, access.ErrUnauthenticated) {
		return exchange.Unauthenticated(strings.TrimPrefix(err.Error(), access.ErrUnauthenticated.Error()+": "))
	}
	return err
}

// HasToken reports whether a request has one token in the header Authorization, valid or not, and the gateway
// authenticates callers. Browsers do not add that header to a request that another site makes.
func (c *Callers) HasToken(r *http.Request) bool {
	_, ok := bearer(r)
	return ok && c.auth != nil
}

// HasSession reports whether a request has the cookie of a session, which may have ended.
func (c *Callers) HasSession(r *http.Request) bool { return sessionOf(r) != "" }

// bearer returns the token of a request. It ignores the tokens of a request with several headers Authorization: a proxy
// in front may have checked another one.
func bearer(r *http.Request) (token string, ok bool) {
	given := r.Header.Values("Authorization")
	if len(given) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(given[0], " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "bearer") && token != ""
}

const (
	// recheckInterval is the time between two checks of the caller of a long request. A check may use an answer about a
	// key that is seconds old; together both are less than five seconds.
	recheckInterval = 2 * time.Second

	// allowedFor bounds how long a request continues after its last successful check, if the store does not answer.
	allowedFor = 5 * time.Second
)

// WhileAllowed returns a context for a long request. It ends with the context of r, with stop, or when the caller loses
// access: a check refuses the caller, for example because the key was revoked or the token has expired, or no check
// has succeeded for five seconds. Its cause is then the error of the last check. Without authentication there are no
// checks. The caller must call stop.
func (c *Callers) WhileAllowed(r *http.Request) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	if c.auth == nil {
		return ctx, func() { cancel(nil) }
	}
	go func() { // ends with the context
		tick := time.NewTicker(recheckInterval)
		defer tick.Stop()
		for allowed := time.Now(); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			began := time.Now()
			check, done := context.WithDeadline(service.WithBudget(ctx, c.budget, true), allowed.Add(allowedFor))
			_, err := c.Identify(r.WithContext(check))
			done()
			p, refused := errors.AsType[*api.Problem](err)
			switch {
			case err == nil:
				allowed = began
			case refused && p.Status < http.StatusInternalServerError, time.Since(allowed) >= allowedFor:
				cancel(err)
				return
			}
		}
	}()
	return ctx, func() { cancel(nil) }
}

// WhoAmI responds with the caller's name, its roles in the tenant of the request, and its tenants.
func WhoAmI(w http.ResponseWriter, r *http.Request) error {
	c := access.FromContext(r.Context())
	answer := api.Identity{Principal: c.Principal.Name, Via: c.Principal.Via, Tenant: c.Tenant, Roles: []string{}}
	for _, role := range access.Roles() {
		if c.May(role) {
			answer.Roles = append(answer.Roles, string(role))
		}
	}
	for _, grant := range c.Principal.Grants {
		answer.Tenants = append(answer.Tenants, grant.Tenant)
	}
	return exchange.Reply(w, http.StatusOK, answer)
}
