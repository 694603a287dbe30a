package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// headerTenant names the tenant that a request is about, for principals with more than one.
// GET requests may name it by a parameter: an EventSource sends no headers.
const (
	headerTenant    = "Turnpike-Tenant"
	parameterTenant = "tenant"
)

// namedTenant is the tenant that a request names, or empty.
func namedTenant(r *http.Request) (string, error) {
	given := r.Header.Values(headerTenant)
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		given = slices.Concat(given, r.URL.Query()[parameterTenant])
	}
	if given = slices.Compact(given); len(given) > 1 {
		return "", invalid("the request names several tenants: %.40q and %.40q", given[0], given[1])
	}
	return strings.Join(given, ""), nil
}

// tenantOf is the tenant that a request is about.
func tenantOf(r *http.Request) string { return access.FromContext(r.Context()).Tenant }

// authorized lets a handler answer only those who may ask, and notes what they did.
func (g *Gateway) authorized(rt route) handler {
	if len(rt.roles) == 0 {
		return rt.handler
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		caller, err := g.callerOf(r)
		if err != nil {
			return err
		}
		if sessionOf(r) != "" {
			w.Header().Set("Cache-Control", "no-store") // who logs out takes it along
		}
		if !caller.May(rt.roles...) {
			return forbidden(caller, rt.roles...)
		}
		if err := g.checkSuspended(r.Context(), caller, rt.action); err != nil {
			return err
		}
		if err := g.admit(w, r, caller, rt); err != nil {
			return err
		}
		err = rt.handler(w, r.WithContext(access.NewContext(r.Context(), caller)))
		switch {
		case err == nil:
			g.note(r, w, caller, rt.action, "")
		case r.Context().Err() != nil || problemOf(err).Status >= http.StatusInternalServerError:
			// It may have been done before it failed.
			g.note(r, w, caller, rt.action, api.OutcomeUnknown)
		}
		return err
	}
}

// admit counts the connection and the body of a request for its caller.
func (g *Gateway) admit(w http.ResponseWriter, r *http.Request, caller access.Caller, rt route) error {
	if err := g.conns.use(r.Context(), caller); err != nil {
		if r.ProtoMajor < 2 {
			w.Header().Set("Connection", "close")
		}
		return err
	}
	if b, ok := r.Body.(*intakeBody); ok {
		return b.admit(caller.Tenant, g.cfg.MaxBody*max(rt.bodies, 1))
	}
	return nil
}

// callerOf finds out who asks.
func (g *Gateway) callerOf(r *http.Request) (access.Caller, error) {
	who, err := g.principalOf(r)
	if err != nil {
		return access.Caller{}, refusal(err)
	}
	tenant, err := namedTenant(r)
	if err != nil {
		return access.Caller{}, err
	}
	caller, err := who.In(tenant, g.cfg.Tenant)
	if err != nil {
		return access.Caller{}, problem(http.StatusForbidden, api.CodeForbidden, "%v: the header %s names it", err, headerTenant)
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
	return access.Principal{}, unauthenticated("this gateway must know who asks: send an API key or a token in the header Authorization: Bearer, once, or log in at /ui/")
}

// refusal is how a request is answered of whose caller nobody knows who it is.
func refusal(err error) error {
	if errors.Is(err, access.ErrUnauthenticated) {
		return unauthenticated(strings.TrimPrefix(err.Error(), access.ErrUnauthenticated.Error()+": "))
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

func unauthenticated(detail string) error {
	return problem(http.StatusUnauthorized, api.CodeUnauthenticated, "%s", detail)
}

func forbidden(c access.Caller, roles ...access.Role) error {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return problem(http.StatusForbidden, api.CodeForbidden, "%s has no role in tenant %s that may do this: %s may", c.Principal.Name, c.Tenant, strings.Join(names, " or "))
}

// checkSuspended refuses what a suspended tenant may not do. Whoever is responsible for the
// deployment may do it all the same.
func (g *Gateway) checkSuspended(ctx context.Context, c access.Caller, action string) error {
	if action == "" || action == actionCancel || c.OfDeployment(access.Admin) {
		return nil
	}
	settings, err := g.tenants.Settings(ctx, c.Tenant)
	if err == nil && settings.Suspended {
		return problem(http.StatusForbidden, api.CodeTenantSuspended, "tenant %s is suspended: it may read and cancel", c.Tenant)
	}
	return err
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
			look, done := context.WithDeadline(g.budgeted(ctx, true), allowed.Add(allowedFor))
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
	return reply(w, http.StatusOK, answer)
}

// submitter returns who submitted a run, if that is known.
func (g *Gateway) submitter(ctx context.Context, id state.RunID) (*state.By, error) {
	first, err := g.store.Log(ctx, id, 0, 1)
	if err != nil || len(first) == 0 {
		return nil, err
	}
	return first[0].By, nil
}

// ownOrOperator lets submitters change what they have submitted themselves, and operators
// any run.
func (g *Gateway) ownOrOperator(ctx context.Context, c access.Caller, id state.RunID) error {
	if c.May(access.Operator) {
		return nil
	}
	by, err := g.submitter(ctx, id)
	if err != nil {
		return err
	}
	if by == nil || by.Principal != c.Principal.Name {
		return problem(http.StatusForbidden, api.CodeForbidden, "%s may cancel runs that it has submitted: an operator may cancel any", c.Principal.Name)
	}
	return nil
}

// checkSignal lets approvers approve and submitters say the rest. Either may answer a
// question. It reports whether the tenant wants four eyes for the decisions of the signal.
// st must be from before the call: the log that is checked then has all that led to what st
// waits for.
func (g *Gateway) checkSignal(ctx context.Context, st state.State, s state.Signal) (fourEyes bool, err error) {
	c := access.FromContext(ctx)
	switch {
	case len(s.Approvals) > 0 && !c.May(access.Approver):
		return false, forbidden(c, access.Approver)
	case len(s.Approvals) == 0 && s.Answer == nil && !c.May(access.Submitter):
		return false, forbidden(c, access.Submitter)
	case len(s.Approvals) == 0:
		return false, nil
	}
	settings, err := g.tenants.Settings(ctx, c.Tenant)
	if err != nil || !settings.FourEyes {
		return false, err
	}
	asked, err := g.asked(ctx, c.Principal.Name, st.ID)
	if err != nil {
		return false, err
	}
	if asked != "" {
		return false, problem(http.StatusForbidden, api.CodeForbidden, "tenant %s wants four eyes: somebody else than %s, who asked for something in run %s or edited a call of it, must decide", c.Tenant, c.Principal.Name, asked)
	}
	for _, a := range s.Approvals {
		// The hash of a call that an edit in the inbox will produce can be computed. Its
		// approval must not overtake the entry that names the editor.
		if a.Hash != "" && !showsCall(st, a) {
			return false, staleApproval()
		}
	}
	return true, nil
}
