package access

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"cel.dev/cel-go/cel"
	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"github.com/turnpike-dev/turnpike/internal/rule"
)

// ClaimsByDefault finds tenant and roles in claims of these names.
const ClaimsByDefault = `{"tenant": claims.tenant, "roles": claims.roles}`

// OIDCConfig names an OpenID provider.
type OIDCConfig struct {
	Issuer   string // its URL, as in the iss claim; /.well-known/openid-configuration is below it
	Audience string // the aud claim must contain it

	// Claims is a CEL expression over claims that gives an object with tenant and roles, or
	// with grants, a list of such objects. Default: ClaimsByDefault.
	Claims string

	HTTP *http.Client // default: a client with a timeout of 5 s
}

// clockTolerance is the difference between the clocks of a provider and of this process that is accepted.
const clockTolerance = 30 * time.Second

// maxToken bounds a token, in bytes.
const maxToken = 16 << 10

// signed are the accepted signature algorithms, all with a public key. A token can only choose
// among these.
var signed = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// OIDC verifies tokens of an OpenID provider. It reads the provider's settings once, see Provider. It reads the keys
// when no known key verifies a token: up to three times in a burst, and then at most once in 10 s. It is safe for
// concurrent use.
type OIDC struct {
	cfg     OIDCConfig
	keys    *http.Client // reads the provider's settings and its key set
	fetches *keyFetches  // the transport of keys
	grants  rule.Object

	asking singleflight.Group

	mu       sync.Mutex
	provider *oidc.Provider
	tried    time.Time
	failed   error
}

// NewOIDC returns a check for tokens of a provider, which need not answer yet. The error reports a missing
// issuer or audience, or an invalid expression.
func NewOIDC(cfg OIDCConfig) (*OIDC, error) {
	if cfg.Issuer == "" || cfg.Audience == "" {
		return nil, errors.New("the issuer or the audience of the OpenID provider is missing: set TURNPIKE_OIDC_ISSUER and TURNPIKE_OIDC_AUDIENCE (in Go, OIDC.Issuer and OIDC.Audience)")
	}
	if cfg.Claims == "" {
		cfg.Claims = ClaimsByDefault
	}
	if cfg.HTTP == nil {
		cfg.HTTP = &http.Client{Timeout: 5 * time.Second}
	}
	grants, err := rule.CompileObject(cfg.Claims, cel.Variable("claims", cel.MapType(cel.StringType, cel.DynType)))
	if err != nil {
		return nil, fmt.Errorf("the expression for claims of tokens (TURNPIKE_OIDC_CLAIMS; in Go, OIDC.Claims) cannot be used: %w", err)
	}
	keys := *cfg.HTTP
	fetches := &keyFetches{base: cmp.Or(keys.Transport, http.DefaultTransport), limit: rate.NewLimiter(rate.Every(keyFetchInterval), keyFetchBurst)}
	keys.Transport = fetches
	return &OIDC{cfg: cfg, keys: &keys, fetches: fetches, grants: grants}, nil
}

// Limits of fetches of the provider's key set. Each token with an unknown key id or a wrong signature causes a fetch,
// and anyone can send such tokens. OIDC learns a rotated key within keyFetchInterval of its first token, because each
// fetch renews the whole set.
const (
	keyFetchBurst    = 3
	keyFetchInterval = 10 * time.Second
)

var errKeyFetches = fmt.Errorf("the signing keys of the OpenID provider were fetched %d times in a short time, the maximum: retry in %s", keyFetchBurst, keyFetchInterval)

// keyFetches is a transport that limits requests for the key set. Requests for the provider's
// settings pass.
type keyFetches struct {
	base   http.RoundTripper
	limit  *rate.Limiter
	failed atomic.Bool // the last fetch of the key set returned no keys
}

// RoundTrip implements http.RoundTripper.
func (k *keyFetches) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration") {
		return k.base.RoundTrip(r)
	}
	if !k.limit.Allow() {
		return nil, errKeyFetches
	}
	resp, err := k.base.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusOK {
		k.failed.Store(false)
	}
	return resp, err
}

// ProviderError reports an OpenID provider that does not answer, or not as the protocol requires.
type ProviderError struct {
	Issuer string
	err    error
}

func (e *ProviderError) Error() string {
	return fmt.Sprintf("the OpenID provider %s does not answer correctly: %v", e.Issuer, e.err)
}

// Unwrap returns what went wrong.
func (e *ProviderError) Unwrap() error { return e.err }

// retryProvider is the time that OIDC waits before it calls a provider again that did not answer.
const retryProvider = 2 * time.Second

// Provider returns the provider. It reads the provider's settings, unless an earlier call has done so. The error is
// that of ctx, or a *ProviderError if the settings cannot be read or name another issuer; calls in the next 2 s
// (retryProvider) return the same *ProviderError without a request.
func (o *OIDC) Provider(ctx context.Context) (*oidc.Provider, error) {
	o.mu.Lock()
	provider, tried, failed := o.provider, o.tried, o.failed
	o.mu.Unlock()
	if provider != nil || time.Since(tried) < retryProvider {
		return provider, failed
	}
	asked := o.asking.DoChan("", func() (any, error) {
		// The provider keeps the context, for its keys: it must outlive the request.
		p, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), o.keys), o.cfg.Issuer)
		if err != nil {
			err = &ProviderError{o.cfg.Issuer, err}
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		o.provider, o.tried, o.failed = p, time.Now(), err
		return p, err
	})
	select {
	case r := <-asked:
		p, _ := r.Val.(*oidc.Provider)
		return p, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Authenticate implements Authenticator.
func (o *OIDC) Authenticate(ctx context.Context, token string) (Principal, error) {
	if len(token) > maxToken {
		return Principal{}, unauthenticated("the token has %d bytes, at most %d are allowed: configure the OpenID provider to issue smaller tokens", len(token), maxToken)
	}
	provider, err := o.Provider(ctx)
	if err != nil {
		return Principal{}, err
	}
	verified, err := o.verify(oidc.ClientContext(ctx, o.cfg.HTTP), provider, o.cfg.Audience, token)
	if err != nil {
		return Principal{}, err
	}
	return o.principal(verified)
}

// verify checks a token for an audience. The error wraps ErrUnauthenticated if the token is invalid; it is a
// *ProviderError, or that of ctx, if the check needs keys that the provider does not return.
func (o *OIDC) verify(ctx context.Context, provider *oidc.Provider, audience, token string) (*oidc.IDToken, error) {
	verifier := provider.Verifier(&oidc.Config{
		ClientID: audience, SupportedSigningAlgs: signed,
		// Accept tokens that expired within the tolerance.
		Now: func() time.Time { return time.Now().Add(-clockTolerance) },
	})
	verified, err := verifier.Verify(ctx, token)
	if err != nil && strings.HasPrefix(err.Error(), noKeys) {
		return nil, o.withoutKeys(ctx, err)
	}
	if err != nil {
		return nil, unauthenticated("the token is not valid (%.300v): request a new one for this gateway, or log in again", err)
	}
	return verified, nil
}

// noKeys begins the error of a verifier that could not fetch keys; the verifier does not wrap its cause.
const noKeys = "failed to verify signature: fetching keys "

// withoutKeys returns the error for a token if the verifier could not fetch the keys to check it: that of ctx if it has
// ended, else a *ProviderError. But if the limit refused the fetch and the last fetch succeeded, the token's key is
// unknown, and the error wraps ErrUnauthenticated.
func (o *OIDC) withoutKeys(ctx context.Context, err error) error {
	switch limited := strings.Contains(err.Error(), errKeyFetches.Error()); {
	case ctx.Err() != nil:
		return ctx.Err()
	case limited && !o.fetches.failed.Load():
		return unauthenticated("no key of the OpenID provider verifies the token: request a new one; if the provider has just changed its keys, retry in %s", keyFetchInterval)
	case !limited:
		o.fetches.failed.Store(true)
	}
	return &ProviderError{o.cfg.Issuer, err}
}

// maxSubject bounds the sub claim, in bytes: OpenID Connect Core 1.0, section 2.
const maxSubject = 255

// checkSubject refuses a sub claim that does not name one principal. Audit, run ownership and four
// eyes compare principals by it, and it appears in logs.
func checkSubject(sub string) error {
	switch {
	case sub == "":
		return unauthenticated("the token has no sub claim: configure the OpenID provider to send it")
	case len(sub) > maxSubject:
		return unauthenticated("the sub claim of the token has %d bytes, at most %d are allowed: configure the OpenID provider to send a shorter one", len(sub), maxSubject)
	case !utf8.ValidString(sub) || strings.ContainsFunc(sub, unprintable):
		return unauthenticated("the sub claim %.100q of the token has control characters or invisible ones: configure the OpenID provider to send it without them", sub)
	}
	return nil
}

// unprintable reports control and format characters, which can make two principals look alike.
func unprintable(r rune) bool {
	return unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp)
}

// principal returns the principal that the claims of a token name.
func (o *OIDC) principal(verified *oidc.IDToken) (Principal, error) {
	if err := checkSubject(verified.Subject); err != nil {
		return Principal{}, err
	}
	var claims map[string]any
	if err := verified.Claims(&claims); err != nil {
		return Principal{}, unauthenticated("the token has claims that cannot be decoded, request a new one: %.300v", err)
	}
	grants, err := o.grantsOf(claims)
	if err != nil {
		return Principal{}, unauthenticated("the claims of %.100q at the OpenID provider grant no tenant and roles: %.300v: grant them there, or ask the operator to correct TURNPIKE_OIDC_CLAIMS (in Go, OIDC.Claims), which selects the claims", verified.Subject, err)
	}
	return Principal{Name: "oidc:" + verified.Subject, Via: viaOIDC, Grants: grants}, nil
}

func (o *OIDC) grantsOf(claims map[string]any) ([]Grant, error) {
	text, err := o.grants(rule.NewEvaluation(map[string]any{"claims": claims}))
	if err != nil {
		return nil, err
	}
	type grant struct {
		Tenant string   `json:"tenant"`
		Roles  []string `json:"roles"`
	}
	var found struct {
		grant

		Grants []grant `json:"grants"`
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, err
	}
	if found.Tenant != "" || len(found.Grants) == 0 {
		found.Grants = append(found.Grants, found.grant)
	}
	var grants []Grant
	for _, g := range found.Grants {
		if g.Tenant != AnyTenant {
			if err := CheckTenant(g.Tenant); err != nil {
				return nil, err
			}
		}
		// Ignore groups that are not roles here; other systems use them.
		var roles []string
		for _, r := range g.Roles {
			if _, err := ParseRoles([]string{r}); err == nil {
				roles = append(roles, r)
			}
		}
		parsed, err := ParseRoles(roles)
		if err != nil {
			return nil, err
		}
		grants = append(grants, Grant{g.Tenant, parsed})
	}
	return grants, nil
}
