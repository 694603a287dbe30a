package gateway

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

// authorized gives a handler the caller of a request, if the service permits what it asks for: before
// its body is read.
func (g *Gateway) authorized(rt route) exchange.Handler {
	if rt.asks == "" {
		return rt.Handler
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		caller, err := g.callerOf(r)
		if err != nil {
			return err
		}
		if sessionOf(r) != "" {
			w.Header().Set("Cache-Control", "no-store") // who logs out takes it along
		}
		if err := g.service.Permit(r.Context(), caller, rt.asks); err != nil {
			return err
		}
		if err := g.admit(w, r, caller, rt); err != nil {
			return err
		}
		return rt.Handler(w, r.WithContext(access.NewContext(r.Context(), caller)))
	}
}

// admit counts the connection and the body of a request for its caller.
func (g *Gateway) admit(w http.ResponseWriter, r *http.Request, caller access.Caller, rt route) error {
	if err := g.conns.Use(r.Context(), caller); err != nil {
		if r.ProtoMajor < 2 {
			w.Header().Set("Connection", "close")
		}
		return err
	}
	return exchange.Admit(r, caller.Tenant, g.cfg.MaxBody*max(rt.bodies, 1))
}

// callerOf finds out who asks.
func (g *Gateway) callerOf(r *http.Request) (access.Caller, error) {
	who, err := g.principalOf(r)
	if err != nil {
		return access.Caller{}, refusal(err)
	}
	tenant, err := exchange.NamedTenant(r)
	if err != nil {
		return access.Caller{}, err
	}
	caller, err := who.In(tenant, g.cfg.Tenant)
	if err != nil {
		return access.Caller{}, exchange.Problem(http.StatusForbidden, api.CodeForbidden, "%v: the header %s names it", err, exchange.HeaderTenant)
	}
	return caller, nil
}

// principalOf finds out who asks by the token of a request or, if it has none, by the session
// of its cookie.
func (g *Gateway) principalOf(r *http.Request) (access.Principal, error) {
	if g.cfg.Auth == nil {
		return access.Anonymous(), nil
	}
	if a, ok := g.cfg.Auth.(access.RequestAuthenticator); ok {
		return a.AuthenticateRequest(r)
	}
	if token, ok := bearer(r); ok {
		return g.cfg.Auth.Authenticate(r.Context(), token)
	}
	if id := sessionOf(r); id != "" && g.cfg.Login != nil {
		who, _, err := g.cfg.Login.Authenticate(r.Context(), id)
		return who, err
	}
	return access.Principal{}, exchange.Unauthenticated("this gateway must know who asks: send an API key or a token in the header Authorization: Bearer, once, or log in at /ui/")
}

// refusal is how a request is answered of whose caller nobody knows who it is.
func refusal(err error) error {
	if errors.Is(err, access.ErrUnauthenticated) {
		return exchange.Unauthenticated(strings.TrimPrefix(err.Error(), access.ErrUnauthenticated.Error()+": "))
	}
	return err
}

// bearer returns the token of a request. One with several has none: a proxy may have looked at
// another than this gateway would.
func bearer(r *http.Request) (token string, ok bool) {
	given := r.Header.Values("Authorization")
	if len(given) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(given[0], " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "bearer") && token != ""
}

// recheckEvery is how often a request that takes long looks whether its caller may still
// ask. With the time for which an answer about a key counts it is less than five seconds.
const recheckEvery = 2 * time.Second

// allowedFor is how long a request goes on after the last look that said that its caller may
// ask, where the store does not say.
const allowedFor = 5 * time.Second

// whileAllowed returns a context that ends when the caller of a request may not ask any
// more, the key was revoked, the token has expired, or when nobody can say that for too long.
func (g *Gateway) whileAllowed(r *http.Request) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	if g.cfg.Auth == nil {
		return ctx, func() { cancel(nil) }
	}
	go func() { // ends with the context
		tick := time.NewTicker(recheckEvery)
		defer tick.Stop()
		for allowed := time.Now(); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			began := time.Now()
			look, done := context.WithDeadline(service.WithBudget(ctx, g.cfg.StoreBudget, true), allowed.Add(allowedFor))
			_, err := g.callerOf(r.WithContext(look))
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

func (g *Gateway) whoAmI(w http.ResponseWriter, r *http.Request) error {
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
