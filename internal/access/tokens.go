package access

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// tokenPrefix begins the text of a token, before its JWT, so that scanners for secrets recognize
	// it and no OpenID provider can issue one.
	tokenPrefix = "tpt_"

	// tokenIssuer and tokenAudience are the only ones that a token may have.
	tokenIssuer   = "turnpike"
	tokenAudience = "turnpike"

	// tokenAlgorithm is the only one that Authenticate accepts.
	tokenAlgorithm = jose.HS256

	// DefaultTokenLifetime and MaxTokenLifetime are the lifetimes of tokens.
	DefaultTokenLifetime = 15 * time.Minute
	MaxTokenLifetime     = 24 * time.Hour

	maxTokenText   = 8 << 10
	maxTokenUser   = 128
	maxTokenAgents = 32
	maxAgentName   = 128

	// tokenKeyBytes is the length of a signing key, tokenKeys the number of those that are valid at
	// once, and tokenKeyTries the number of attempts to store one while others do.
	tokenKeyBytes = 32
	tokenKeys     = 2
	tokenKeyTries = 20

	// tokenKeyRetry is the minimum age of cached signing keys at which a token with an unknown key
	// makes a gateway read them again.
	tokenKeyRetry = 250 * time.Millisecond

	// tokenLeeway is the difference between the clocks of two gateways that a token may show in the
	// time of its issue.
	tokenLeeway = time.Minute
)

// userPrefix begins the names of principals that a token identifies.
const userPrefix = "user:"

const viaToken = "token"

// Bound limits a principal to the runs of one user.
type Bound struct {
	User   string
	Agents []string    // whose runs it may start and read; empty is any
	Run    state.RunID // the only run that it may read, with those below it; empty is all of the user
}

// Allows reports whether the principal may start and read runs of an agent.
func (b *Bound) Allows(agent string) bool {
	return len(b.Agents) == 0 || slices.Contains(b.Agents, agent)
}

// TokenRoles returns the roles that a token may have.
func TokenRoles() []Role { return []Role{Viewer, Submitter, Approver} }

// TokenSpec describes a new token. Roles must not be empty, and only contain TokenRoles.
type TokenSpec struct {
	Tenant   string
	Bound    Bound
	Roles    []Role
	Lifetime time.Duration // 0 is the default
	Key      string        // the id of the API key that issues it
}

// InvalidTokenError reports a token that cannot be issued.
type InvalidTokenError struct{ reason string }

func (e *InvalidTokenError) Error() string { return e.reason }

func invalidToken(format string, args ...any) error {
	return &InvalidTokenError{fmt.Sprintf(format, args...)}
}

// tokenClaims is the content of a token.
type tokenClaims struct {
	jwt.Claims

	Tenant string      `json:"tenant"`
	Roles  []string    `json:"roles"`
	Agents []string    `json:"agents,omitempty"`
	Run    state.RunID `json:"run,omitempty"`
	Key    string      `json:"key"` // the id of the API key that issued it
}

// tokenKey signs tokens.
type tokenKey struct {
	ID        string     `json:"id"`
	Secret    []byte     `json:"secret"`
	CreatedAt state.Time `json:"created_at"`
}

// storedTokenKeys is the document with the signing keys of a tenant, the newest first.
type storedTokenKeys struct {
	Keys []tokenKey `json:"keys"`
}

type readTokenKeys struct {
	keys []tokenKey
	at   time.Time
}

// Tokens issues and checks the tokens of end users. Each tenant has signing keys of its own. It is safe
// for concurrent use.
type Tokens struct {
	store   state.Documents
	keys    *Keys
	tenants *Tenants
	now     func() time.Time

	mu    sync.Mutex
	fresh map[string]readTokenKeys // by tenant
}

// NewTokens returns the tokens of a deployment. Keys has the API keys that issue them, and tenants
// says which tenants are suspended.
func NewTokens(store state.Documents, keys *Keys, tenants *Tenants) *Tokens {
	return &Tokens{store: store, keys: keys, tenants: tenants, now: time.Now, fresh: map[string]readTokenKeys{}}
}

// Create issues a token. It does not check whether the key may issue it. The error is an *InvalidTokenError if
// the spec is invalid.
func (t *Tokens) Create(ctx context.Context, spec TokenSpec) (text string, token api.Token, err error) {
	if err := checkTokenSpec(&spec); err != nil {
		return "", api.Token{}, err
	}
	signing, err := t.signingKey(ctx, spec.Tenant)
	if err != nil {
		return "", api.Token{}, err
	}
	now := t.now().Truncate(time.Second) // a NumericDate has seconds
	expires := now.Add(spec.Lifetime)
	id := rand.Text()
	claims := tokenClaims{
		Claims: jwt.Claims{
			Issuer: tokenIssuer, Subject: spec.Bound.User, Audience: jwt.Audience{tokenAudience}, ID: id,
			IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(expires),
		},
		Tenant: spec.Tenant, Roles: names(spec.Roles), Agents: spec.Bound.Agents, Run: spec.Bound.Run, Key: spec.Key,
	}
	options := (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", spec.Tenant+"."+signing.ID)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: tokenAlgorithm, Key: signing.Secret}, options)
	if err != nil {
		return "", api.Token{}, fmt.Errorf("sign a token: %w", err)
	}
	signed, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		return "", api.Token{}, fmt.Errorf("sign a token: %w", err)
	}
	return tokenPrefix + signed, api.Token{
		ID: id, User: spec.Bound.User, Tenant: spec.Tenant, Roles: claims.Roles, Agents: spec.Bound.Agents, Run: string(spec.Bound.Run),
		CreatedBy: "key:" + spec.Key, ExpiresAt: state.At(expires),
	}, nil
}

func checkTokenSpec(spec *TokenSpec) error {
	if err := checkTokenUser(spec.Bound.User); err != nil {
		return err
	}
	for _, role := range spec.Roles {
		if !slices.Contains(TokenRoles(), role) {
			return invalidToken("roles: a token cannot have the role %s: use %s", role, list(TokenRoles()))
		}
	}
	if n := len(spec.Bound.Agents); n > maxTokenAgents {
		return invalidToken("agents has %d names, at most %d are allowed: remove some", n, maxTokenAgents)
	}
	for _, name := range spec.Bound.Agents {
		if name == "" || len(name) > maxAgentName {
			return invalidToken("agents: the name %.40q has %d bytes: use names of 1 to %d bytes", name, len(name), maxAgentName)
		}
	}
	if spec.Lifetime == 0 {
		spec.Lifetime = DefaultTokenLifetime
	}
	if spec.Lifetime < time.Second || spec.Lifetime > MaxTokenLifetime {
		return invalidToken("expires_in is %s: set 1s to %s, and request a new token when this one expires", spec.Lifetime, MaxTokenLifetime)
	}
	return nil
}

// checkTokenUser refuses a user name that would be ambiguous in the audit or in a key.
func checkTokenUser(user string) error {
	switch {
	case user == "":
		return invalidToken("user is missing: set the id that the user of the token has in your own system")
	case len(user) > maxTokenUser:
		return invalidToken("user has %d bytes, at most %d are allowed: use a shorter id", len(user), maxTokenUser)
	case !utf8.ValidString(user):
		return invalidToken("user is not UTF-8: encode it in UTF-8")
	case strings.ContainsFunc(user, func(c rune) bool { return unicode.IsSpace(c) || !unicode.IsPrint(c) }):
		return invalidToken("user %q has spaces, control characters or others that cannot be printed: use an id or an email address without them", user)
	}
	return nil
}

// signingKey returns the newest signing key of a tenant, and creates the first one.
func (t *Tokens) signingKey(ctx context.Context, tenant string) (tokenKey, error) {
	keys, err := t.signingKeys(ctx, tenant, tokenFresh)
	if err != nil {
		return tokenKey{}, err
	}
	if len(keys) == 0 {
		if keys, err = t.addKey(ctx, tenant, true); err != nil {
			return tokenKey{}, err
		}
	}
	return keys[0], nil
}

// tokenFresh is the time that cached signing keys stay valid: as long as API keys.
const tokenFresh = keyFresh

// signingKeys returns the signing keys of a tenant, which the process read at most maxAge ago.
func (t *Tokens) signingKeys(ctx context.Context, tenant string, maxAge time.Duration) ([]tokenKey, error) {
	now := t.now()
	t.mu.Lock()
	r, known := t.fresh[tenant]
	t.mu.Unlock()
	if known && now.Sub(r.at) < maxAge {
		return r.keys, nil
	}
	stored, _, err := t.readKeys(ctx, tenant)
	if err != nil {
		return nil, err
	}
	t.remember(tenant, stored.Keys, now)
	return stored.Keys, nil
}

func (t *Tokens) remember(tenant string, keys []tokenKey, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.fresh) >= maxFresh {
		clear(t.fresh)
	}
	t.fresh[tenant] = readTokenKeys{keys, at}
}

// readKeys returns the document with the signing keys of a tenant, decoded and raw; both are empty if there is
// none.
func (t *Tokens) readKeys(ctx context.Context, tenant string) (stored storedTokenKeys, raw json.RawMessage, err error) {
	raw, err = t.store.Document(ctx, state.TokenKeyDocument, tenant)
	if errors.Is(err, state.ErrNotFound) {
		return storedTokenKeys{}, nil, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &stored)
	}
	if err != nil {
		return storedTokenKeys{}, nil, fmt.Errorf("read the signing keys of tokens: %w", err)
	}
	return stored, raw, nil
}

// addKey stores a new signing key of a tenant as the newest one, and returns all keys. If first is set and the
// tenant has a key, it stores nothing.
func (t *Tokens) addKey(ctx context.Context, tenant string, first bool) ([]tokenKey, error) {
	for range tokenKeyTries {
		stored, was, err := t.readKeys(ctx, tenant)
		if err != nil {
			return nil, err
		}
		now := t.now()
		if !first || len(stored.Keys) == 0 {
			next := tokenKey{ID: rand.Text(), Secret: make([]byte, tokenKeyBytes), CreatedAt: state.At(now)}
			_, _ = rand.Read(next.Secret) // never fails
			stored.Keys = append([]tokenKey{next}, stored.Keys...)
			stored.Keys = stored.Keys[:min(len(stored.Keys), tokenKeys)]
			data, err := json.Marshal(stored)
			if err != nil {
				return nil, err
			}
			err = t.store.ReplaceDocument(ctx, state.TokenKeyDocument, tenant, was, data)
			if errors.Is(err, state.ErrChanged) {
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		t.remember(tenant, stored.Keys, now)
		return stored.Keys, nil
	}
	return nil, fmt.Errorf("store a signing key of tokens: other requests changed the keys at the same time: retry (%w)", state.ErrChanged)
}

// Rotate adds a signing key of a tenant, and returns the valid keys, the newest first. The key signs new
// tokens. Tokens of the previous key stay valid, and every process refuses those of older keys within five
// seconds. The error is an *InvalidTokenError if the name of the tenant is invalid.
func (t *Tokens) Rotate(ctx context.Context, tenant string) ([]api.TokenKey, error) {
	if err := CheckTenant(tenant); err != nil {
		return nil, invalidToken("%v", err)
	}
	keys, err := t.addKey(ctx, tenant, false)
	if err != nil {
		return nil, err
	}
	all := make([]api.TokenKey, len(keys))
	for i, k := range keys {
		all[i] = api.TokenKey{ID: k.ID, CreatedAt: k.CreatedAt}
	}
	return all, nil
}

var errToken = unauthenticated("the token is not valid: request a new one from the service that issued it")

// Authenticate implements Authenticator.
func (t *Tokens) Authenticate(ctx context.Context, text string) (Principal, error) {
	signed, ok := strings.CutPrefix(text, tokenPrefix)
	if !ok || len(text) > maxTokenText {
		return Principal{}, errToken
	}
	parsed, err := jwt.ParseSigned(signed, []jose.SignatureAlgorithm{tokenAlgorithm})
	if err != nil || len(parsed.Headers) != 1 {
		return Principal{}, errToken
	}
	tenant, id, ok := strings.Cut(parsed.Headers[0].KeyID, ".")
	if !ok || CheckTenant(tenant) != nil {
		return Principal{}, errToken
	}
	signing, err := t.verifyingKey(ctx, tenant, id)
	if err != nil {
		return Principal{}, err
	}
	var claims tokenClaims
	if err := parsed.Claims(signing.Secret, &claims); err != nil || claims.Tenant != tenant || claims.Expiry == nil || claims.IssuedAt == nil {
		return Principal{}, errToken
	}
	now := t.now()
	if expires := claims.Expiry.Time(); !now.Before(expires) {
		return Principal{}, unauthenticated("the token expired at %s: request a new one from the service that issued it", expires.UTC().Format(time.RFC3339))
	}
	if claims.ValidateWithLeeway(jwt.Expected{Issuer: tokenIssuer, AnyAudience: jwt.Audience{tokenAudience}, Time: now}, tokenLeeway) != nil {
		return Principal{}, errToken
	}
	return t.principal(ctx, claims)
}

// verifyingKey returns a signing key by its id. It reads the keys again for an id that this process does not
// know, because the key may be new.
func (t *Tokens) verifyingKey(ctx context.Context, tenant, id string) (tokenKey, error) {
	for _, maxAge := range []time.Duration{tokenFresh, tokenKeyRetry} {
		keys, err := t.signingKeys(ctx, tenant, maxAge)
		if err != nil {
			return tokenKey{}, fmt.Errorf("look up the key of the token: %w", err)
		}
		if i := slices.IndexFunc(keys, func(k tokenKey) bool { return k.ID == id }); i >= 0 {
			return keys[i], nil
		}
	}
	return tokenKey{}, errToken
}

// principal returns the user of a token. The error wraps ErrUnauthenticated if the issuer may no longer issue
// tokens, or if the tenant is suspended.
func (t *Tokens) principal(ctx context.Context, claims tokenClaims) (Principal, error) {
	issuer, err := t.keys.byID(ctx, claims.Key)
	if errors.Is(err, ErrUnauthenticated) {
		return Principal{}, unauthenticated("the API key that issued the token was revoked or has expired: request a new token, which another API key must issue")
	}
	if err != nil {
		return Principal{}, err
	}
	by, err := issuer.In(claims.Tenant, claims.Tenant)
	if err != nil || !by.May(Issuer) {
		return Principal{}, unauthenticated("the API key that issued the token no longer has the role %s: request a new token, which an API key with this role must issue", Issuer)
	}
	settings, err := t.tenants.Settings(ctx, claims.Tenant)
	if err != nil {
		return Principal{}, fmt.Errorf("look up the tenant of the token: %w", err)
	}
	if settings.Suspended {
		return Principal{}, unauthenticated("tenant %s is suspended or deleted, so the tokens of its users are not accepted: ask an admin of the deployment to enable it, or to create it again", claims.Tenant)
	}
	roles, err := ParseRoles(claims.Roles)
	if err != nil {
		return Principal{}, errToken
	}
	return Principal{
		Name: userPrefix + claims.Subject, Via: viaToken, Grants: []Grant{{claims.Tenant, roles}},
		Bound: &Bound{User: claims.Subject, Agents: claims.Agents, Run: claims.Run},
	}, nil
}

// IssuerKey returns the id of the API key with which a principal was authenticated, directly or through a session; ok
// is false if it was not. Only such a principal may issue tokens: a token ends with the key that issued it.
func IssuerKey(p Principal) (id string, ok bool) {
	id, ok = strings.CutPrefix(p.Name, "key:")
	return id, ok && p.Via == viaKey
}
