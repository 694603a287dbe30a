package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Role is a permission of a principal in a tenant: [api.Role].
type Role = api.Role

// The roles.
const (
	Viewer    = api.RoleViewer
	Submitter = api.RoleSubmitter
	Approver  = api.RoleApprover
	Author    = api.RoleAuthor
	Operator  = api.RoleOperator
	Admin     = api.RoleAdmin
	Issuer    = api.RoleIssuer
)

// Roles returns all roles.
func Roles() []Role { return []Role{Viewer, Submitter, Approver, Author, Operator, Admin, Issuer} }

// ParseRoles returns the roles with these names, each once. It returns an error if given is empty or has a name that is
// not a role.
func ParseRoles(given []string) ([]Role, error) { return parseRoles(given, Roles()) }

// ParseTokenRoles is ParseRoles with errors that name the roles that a token may have.
func ParseTokenRoles(given []string) ([]Role, error) { return parseRoles(given, TokenRoles()) }

func parseRoles(given []string, offered []Role) ([]Role, error) {
	var roles []Role
	for _, name := range given {
		if !slices.Contains(Roles(), Role(name)) {
			return nil, fmt.Errorf("role is %.40q: use one of %s", name, list(offered))
		}
		if !slices.Contains(roles, Role(name)) {
			roles = append(roles, Role(name))
		}
	}
	if len(roles) == 0 {
		return nil, fmt.Errorf("no role is given: give one or more of %s", list(offered))
	}
	return roles, nil
}

func names(roles []Role) []string {
	all := make([]string, len(roles))
	for i, r := range roles {
		all[i] = string(r)
	}
	return all
}

func list(roles []Role) string { return strings.Join(names(roles), ", ") }

// AnyTenant stands for all tenants, in the grants of principals of the whole deployment.
const AnyTenant = "*"

var tenantName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// CheckTenant returns an error if name is not a valid tenant name.
func CheckTenant(name string) error {
	if !tenantName.MatchString(name) {
		return fmt.Errorf("tenant %.60q: the name is not valid: use 1 to 40 lowercase letters, digits and hyphens", name)
	}
	return nil
}

// Grant gives roles in a tenant, or in each tenant if Tenant is AnyTenant.
type Grant struct {
	Tenant string `json:"tenant"`
	Roles  []Role `json:"roles"`
}

// Principal is a person or a service. Its Name begins with the way in which it was authenticated: key:, oidc:,
// nats:, user:, hook:, schedule: or trigger:. Without authentication it is anonymous, and a Go program chooses
// names itself.
type Principal struct {
	Name   string
	Via    string // none, key, oidc, nats, token, go, hook, schedule, trigger
	Grants []Grant
	Bound  *Bound // nil: it is not limited to the runs of a user
}

// The ways in which a principal was authenticated.
const (
	viaNone = "none"
	viaKey  = "key"
	viaOIDC = "oidc"
	viaGo   = "go"
	viaHook = "hook"

	viaSchedule = "schedule"
	viaTrigger  = "trigger"
)

// RolesError reports roles of a principal that a Go program names.
type RolesError struct {
	Principal string
	Err       error // the mistake, with the roles that exist
}

func (e *RolesError) Error() string {
	return fmt.Sprintf("the program that has this gateway named the principal %.60q with wrong Principal.Roles: %v", e.Principal, e.Err)
}

// Trusted returns the principal that a Go program names. Its tenant is byDefault if it names
// none. The error wraps ErrUnauthenticated if the name is empty, and is a *RolesError if p has no role or one that
// does not exist.
func Trusted(p api.Principal, byDefault string) (Principal, error) {
	if p.Name == "" {
		return Principal{}, unauthenticated("the program that has this gateway named a principal without a name: set Principal.Name in it")
	}
	roles, err := ParseRoles(names(p.Roles))
	if err != nil {
		return Principal{}, &RolesError{p.Name, err}
	}
	return Principal{Name: p.Name, Via: viaGo, Grants: []Grant{{cmp.Or(p.Tenant, byDefault), roles}}}, nil
}

// Anonymous returns the principal of callers without authentication: it has full access.
func Anonymous() Principal {
	return Principal{Name: "anonymous", Via: viaNone, Grants: []Grant{{AnyTenant, Roles()}}}
}

// ForHook returns the caller of deliveries to a hook, which start runs and send signals.
func ForHook(tenant, name string) Caller { return stored(tenant, name, viaHook) }

// ForSchedule returns the caller of the firings of a schedule, which start and cancel its runs.
func ForSchedule(tenant, name string) Caller { return stored(tenant, name, viaSchedule) }

// ForTrigger returns the caller of the messages of a trigger, which start runs and send signals.
func ForTrigger(tenant, name string) Caller { return stored(tenant, name, viaTrigger) }

// stored returns the caller of a stored hook, schedule or trigger.
func stored(tenant, name, via string) Caller {
	roles := []Role{Submitter}
	return Caller{Principal: Principal{Name: via + ":" + name, Via: via, Grants: []Grant{{tenant, roles}}}, Tenant: tenant, Roles: roles}
}

// Caller is a principal with its roles in the tenant of a request.
type Caller struct {
	Principal Principal
	Tenant    string
	Roles     []Role // in Tenant

	// Requesters names the principals other than Principal at whose request the caller acts,
	// such as the one who stored the hook. If the tenant requires four eyes
	// (api.TenantSettings.FourEyes), they may not approve calls that result from this request.
	Requesters []string
}

// For returns a copy of c that acts at the request of further principals. It ignores empty names, c's own name and
// callers without authentication.
func (c Caller) For(requesters ...string) Caller {
	c.Requesters = slices.Clone(c.Requesters)
	for _, name := range requesters {
		if name != "" && name != c.Principal.Name && name != Anonymous().Name && !slices.Contains(c.Requesters, name) {
			c.Requesters = append(c.Requesters, name)
		}
	}
	return c
}

// TenantError reports that a principal has no role in the tenant that it named, or that the name is not valid.
type TenantError struct {
	Tenant string
	Own    []string // where it has roles
}

func (e *TenantError) Error() string {
	if err := CheckTenant(e.Tenant); err != nil && slices.Contains(e.Own, AnyTenant) {
		return err.Error()
	}
	if len(e.Own) == 0 {
		return fmt.Sprintf("you have no role in tenant %.60q: ask an admin for one, or name another tenant", e.Tenant)
	}
	return fmt.Sprintf("you have no role in tenant %.60q, only in %s: name one of these", e.Tenant, strings.Join(e.Own, ", "))
}

// In returns the principal as a caller in a tenant, with the roles of all its grants for that tenant. An empty name
// means the tenant of the principal's only grant, or byDefault if it has none, several, or one for AnyTenant. The error
// is a *TenantError if the principal has no role in the tenant, or if the name is not valid.
func (p Principal) In(tenant, byDefault string) (Caller, error) {
	if tenant == "" {
		tenant = byDefault
		if len(p.Grants) == 1 && p.Grants[0].Tenant != AnyTenant {
			tenant = p.Grants[0].Tenant
		}
	}
	c := Caller{Principal: p, Tenant: tenant}
	var own []string
	for _, g := range p.Grants {
		if g.Tenant == tenant || g.Tenant == AnyTenant {
			c.Roles = append(c.Roles, g.Roles...)
		}
		if len(g.Roles) > 0 {
			own = append(own, g.Tenant)
		}
	}
	if len(c.Roles) == 0 || CheckTenant(tenant) != nil {
		return Caller{}, &TenantError{tenant, own}
	}
	return c, nil
}

// May reports whether the caller has one of the roles. Each role includes Viewer; none includes another role.
func (c Caller) May(roles ...Role) bool {
	return slices.ContainsFunc(roles, func(r Role) bool {
		return slices.Contains(c.Roles, r) || r == Viewer && len(c.Roles) > 0
	})
}

// OfDeployment reports whether the caller has a role in all tenants, by a grant for AnyTenant. Each role
// includes Viewer.
func (c Caller) OfDeployment(r Role) bool {
	return slices.ContainsFunc(c.Principal.Grants, func(g Grant) bool {
		return g.Tenant == AnyTenant && (slices.Contains(g.Roles, r) || r == Viewer && len(g.Roles) > 0)
	})
}

// By returns the By of log entries that the caller causes, or nil without authentication.
func (c Caller) By() *state.By {
	if c.Principal.Via == viaNone {
		return nil
	}
	return &state.By{Principal: c.Principal.Name, Tenant: c.Tenant, Via: c.Principal.Via}
}

type contextKey struct{}

// NewContext returns a copy of ctx that carries c, the caller of a request.
func NewContext(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, contextKey{}, c)
}

// FromContext returns the caller that ctx carries. Without one it returns the zero Caller, which
// has no access.
func FromContext(ctx context.Context) Caller {
	c, _ := ctx.Value(contextKey{}).(Caller)
	return c
}

// ErrUnauthenticated reports credentials that are missing, unknown, expired or revoked, or that a suspension or
// a lost role has made invalid. Errors that wrap it name the reason, unless that would help to guess
// credentials.
var ErrUnauthenticated = errors.New("not authenticated")

func unauthenticated(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnauthenticated, fmt.Sprintf(format, args...))
}

// Authenticator identifies the owner of a bearer token. It is safe for concurrent use. The error wraps
// ErrUnauthenticated if the token is refused; any other error means that it could not be checked.
type Authenticator interface {
	Authenticate(ctx context.Context, token string) (Principal, error)
}

// RequestAuthenticator is an Authenticator that checks the whole request. A gateway calls AuthenticateRequest instead
// of Authenticate, also for requests without a token. Such a gateway refuses host names that its Config does not allow,
// because otherwise a page of another origin could make its own name resolve to the gateway's address (DNS rebinding).
type RequestAuthenticator interface {
	Authenticator
	AuthenticateRequest(r *http.Request) (Principal, error)
}

// Chain authenticates with keys, tokens of users or an OpenID provider, depending on the token. Each may
// be nil.
type Chain struct {
	Keys   *Keys
	OIDC   *OIDC
	Tokens *Tokens
}

// Authenticate implements Authenticator.
func (c Chain) Authenticate(ctx context.Context, token string) (Principal, error) {
	isKey := strings.HasPrefix(token, keyPrefix)
	switch {
	case isKey && c.Keys != nil:
		return c.Keys.Authenticate(ctx, token)
	case strings.HasPrefix(token, tokenPrefix):
		if c.Tokens == nil {
			return Principal{}, unauthenticated("this gateway does not accept tokens of users: send an API key")
		}
		return c.Tokens.Authenticate(ctx, token)
	case !isKey && c.OIDC != nil:
		return c.OIDC.Authenticate(ctx, token)
	case c.Keys != nil:
		return Principal{}, unauthenticated("the token is not an API key: send one, which begins with %s", keyPrefix)
	default:
		return Principal{}, unauthenticated("this gateway does not accept API keys: send a token of the OpenID provider")
	}
}
