package access_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// callback is where the provider redirects users after the login. Nothing listens there.
const callback = "http://localhost:9999/auth/callback"

// provider is an OpenID provider whose keys can be changed.
type provider struct {
	t      *testing.T
	issuer string
	now    atomic.Pointer[http.Handler]
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{t: t}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*p.now.Load()).ServeHTTP(w, r) }))
	t.Cleanup(server.Close)
	// The provider requires TLS or localhost.
	p.issuer = strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	p.rotate()
	return p
}

// rotate replaces the provider's keys.
func (p *provider) rotate() {
	storage.RegisterClients(storage.WebClient("turnpike", "secret", callback), storage.WebClient("another", "secret", callback))
	var h http.Handler = exampleop.SetupServer(p.issuer, storage.NewStorage(storage.NewUserStore(p.issuer)), slog.New(slog.DiscardHandler), false)
	p.now.Store(&h)
}

// token logs a user in for a client, and returns the ID token.
func (p *provider) token(client string) string {
	p.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		p.t.Fatal(err)
	}
	browser := &http.Client{Jar: jar, CheckRedirect: func(r *http.Request, _ []*http.Request) error {
		if strings.HasPrefix(r.URL.String(), callback) {
			return http.ErrUseLastResponse
		}
		return nil
	}}
	do := func(method, address string, form url.Values, auth bool) (at *url.URL, location, body string) {
		p.t.Helper()
		req, err := http.NewRequestWithContext(p.t.Context(), method, address, strings.NewReader(form.Encode()))
		if err != nil {
			p.t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if auth {
			req.SetBasicAuth(client, "secret")
		}
		resp, err := browser.Do(req)
		if err != nil {
			p.t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			p.t.Fatal(err)
		}
		return resp.Request.URL, resp.Header.Get("Location"), string(b)
	}
	ask := url.Values{"client_id": {client}, "redirect_uri": {callback}, "response_type": {"code"}, "scope": {"openid profile"}, "state": {"s"}}
	at, _, _ := do(http.MethodGet, p.issuer+"/auth?"+ask.Encode(), nil, false)
	_, back, body := do(http.MethodPost, p.issuer+"/login/username", url.Values{"username": {"test-user2"}, "password": {"verysecure"}, "id": {at.Query().Get("authRequestID")}}, false)
	code, err := url.Parse(back)
	if err != nil || code.Query().Get("code") == "" {
		p.t.Fatalf("the provider refuses the login: %s %s", back, body)
	}
	_, _, body = do(http.MethodPost, p.issuer+"/oauth/token", url.Values{"grant_type": {"authorization_code"}, "code": {code.Query().Get("code")}, "redirect_uri": {callback}}, true)
	var got struct {
		IDToken string `json:"id_token"`
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil || got.IDToken == "" {
		p.t.Fatalf("the provider returns no token: %s", body)
	}
	return got.IDToken
}

// Tokens of a real provider are valid with the tenant and roles in their claims. Tokens for another audience or
// with another signature are refused.
func TestOIDC(t *testing.T) {
	p := newProvider(t)
	check, err := access.NewOIDC(access.OIDCConfig{
		Issuer: p.issuer, Audience: "turnpike", Claims: `{"tenant": "acme", "roles": claims.sub == "id2" ? ["submitter", "everyone"] : []}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	token := p.token("turnpike")
	who, err := check.Authenticate(t.Context(), token)
	if err != nil || who.Name != "oidc:id2" {
		t.Fatalf("Authenticate = %+v, %v", who, err)
	}
	if c, err := who.In("", state.DefaultTenant); err != nil || c.Tenant != "acme" || !slices.Equal(c.Roles, []access.Role{access.Submitter}) {
		t.Errorf("In = %+v, %v", c, err)
	}
	parts := strings.Split(token, ".")
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	shared := hmac.New(sha256.New, []byte("secret"))
	shared.Write([]byte(encode(`{"alg":"HS256"}`) + "." + parts[1]))
	for name, forged := range map[string]string{
		"of another audience":  p.token("another"),
		"without a signature":  encode(`{"alg":"none"}`) + "." + parts[1] + ".",
		"with a shared secret": encode(`{"alg":"HS256"}`) + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(shared.Sum(nil)),
		"with other claims":    parts[0] + "." + encode(`{"iss":"`+p.issuer+`","aud":"turnpike","sub":"id1","exp":9999999999}`) + "." + parts[2],
		"no token":             "x",
		"too long":             strings.Repeat("x", 20_000),
	} {
		if who, err := check.Authenticate(t.Context(), forged); !errors.Is(err, access.ErrUnauthenticated) {
			t.Errorf("a token %s: %+v, %v", name, who, err)
		}
	}
	for size, want := range map[int]string{16 << 10: "the token is not valid", 16<<10 + 1: "the token has 16385 bytes, at most 16384 are allowed"} {
		if _, err := check.Authenticate(t.Context(), strings.Repeat("x", size)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a token of %d bytes: %v, want %s", size, err, want)
		}
	}
	p.rotate()
	if _, err := check.Authenticate(t.Context(), p.token("turnpike")); err != nil {
		t.Errorf("a token with a new key of the provider: %v", err)
	}
}

// Claims without a role of this deployment give no access.
func TestOIDCWithoutRoles(t *testing.T) {
	p := newProvider(t)
	token := p.token("turnpike")
	for name, claims := range map[string]string{
		"no roles": `{"tenant": "acme", "roles": []}`, "no such claim": "", "a bad tenant": `{"tenant": "A/B", "roles": ["viewer"]}`, "no tenant": `{"roles": ["viewer"]}`,
	} {
		check, err := access.NewOIDC(access.OIDCConfig{Issuer: p.issuer, Audience: "turnpike", Claims: claims})
		if err != nil {
			t.Fatal(err)
		}
		if who, err := check.Authenticate(t.Context(), token); !errors.Is(err, access.ErrUnauthenticated) {
			t.Errorf("%s: %+v, %v", name, who, err)
		}
	}
	if _, err := access.NewOIDC(access.OIDCConfig{Issuer: p.issuer, Audience: "turnpike", Claims: "claims +"}); err == nil {
		t.Error("an invalid expression is accepted")
	}
}

// While a provider does not answer, callers get a temporary error: neither access nor a final refusal.
func TestOIDCProviderAway(t *testing.T) {
	t.Parallel()
	check, err := access.NewOIDC(access.OIDCConfig{Issuer: "http://127.0.0.1:1", Audience: "turnpike"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := check.Authenticate(t.Context(), "x.y.z"); err == nil || errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("Authenticate = %v, want an error that the provider does not answer", err)
	}
}

// signer is an OpenID provider with one key that signs any claims.
type signer struct {
	*provider

	key     *ecdsa.PrivateKey
	fetches atomic.Int64                     // of the key set
	keys    atomic.Pointer[http.HandlerFunc] // answers fetches of the key set; nil: with the key
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &signer{provider: &provider{t: t}, key: key}
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s.issuer = server.URL
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": s.issuer, "jwks_uri": s.issuer + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"}})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		s.fetches.Add(1)
		if answer := s.keys.Load(); answer != nil {
			(*answer)(w, nil)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "one", Algorithm: "ES256", Use: "sig"}}})
	})
	return s
}

// sign returns a token with the deployment's claims and additional ones.
func (s *signer) sign(kid string, more map[string]any) string {
	s.t.Helper()
	claims := map[string]any{"iss": s.issuer, "aud": "turnpike", "exp": time.Now().Add(time.Hour).Unix(), "tenant": "acme", "roles": []string{"viewer"}}
	maps.Copy(claims, more)
	text, err := json.Marshal(claims)
	if err != nil {
		s.t.Fatal(err)
	}
	sign, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: s.key, KeyID: kid}}, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	signed, err := sign.Sign(text)
	if err != nil {
		s.t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		s.t.Fatal(err)
	}
	return token
}

// A token without a usable sub claim is refused: principals that cannot be told apart would share runs, audit
// entries and approvals.
func TestOIDCSubject(t *testing.T) {
	t.Parallel()
	p := newSigner(t)
	check, err := access.NewOIDC(access.OIDCConfig{Issuer: p.issuer, Audience: "turnpike"})
	if err != nil {
		t.Fatal(err)
	}
	longest := strings.Repeat("s", 255)
	for _, c := range []struct {
		name string
		more map[string]any
		want string // the name; empty: refused
	}{
		{"a subject", map[string]any{"sub": "jo"}, "oidc:jo"},
		{"the longest", map[string]any{"sub": longest}, "oidc:" + longest},
		{"without", nil, ""},
		{"empty", map[string]any{"sub": ""}, ""},
		{"too long", map[string]any{"sub": longest + "s"}, ""},
		{"a new line", map[string]any{"sub": "jo\nann"}, ""},
		{"an escape", map[string]any{"sub": "jo\x1b[2J"}, ""},
		{"an invisible character", map[string]any{"sub": "jo\u200b"}, ""},
		{"a change of direction", map[string]any{"sub": "jo\u202e"}, ""},
		{"no text", map[string]any{"sub": 7}, ""},
	} {
		who, err := check.Authenticate(t.Context(), p.sign("one", c.more))
		switch {
		case c.want != "" && (err != nil || who.Name != c.want):
			t.Errorf("%s: %+v, %v", c.name, who, err)
		case c.want == "" && !errors.Is(err, access.ErrUnauthenticated):
			t.Errorf("%s: %+v, %v, want it refused", c.name, who, err)
		}
	}
}

// Tokens with unknown keys, which anyone can create, cause few fetches of the key set, and do not delay valid
// tokens.
func TestOIDCKeyFetches(t *testing.T) {
	t.Parallel()
	p := newSigner(t)
	check, err := access.NewOIDC(access.OIDCConfig{Issuer: p.issuer, Audience: "turnpike"})
	if err != nil {
		t.Fatal(err)
	}
	good := p.sign("one", map[string]any{"sub": "jo"})
	if _, err := check.Authenticate(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for i := range 200 {
		if _, err := check.Authenticate(t.Context(), p.sign(fmt.Sprint("unknown-", i), map[string]any{"sub": "jo"})); err != nil && !errors.Is(err, access.ErrUnauthenticated) {
			t.Fatal(err)
		}
		if _, err := check.Authenticate(t.Context(), good); err != nil {
			t.Fatal(err)
		}
	}
	if n, most := p.fetches.Load(), 4+int64(time.Since(began)/(10*time.Second)); n > most {
		t.Errorf("200 tokens with unknown keys caused %d fetches, want at most %d", n, most)
	}
}

// While the provider returns no key set, a token that needs it can be neither accepted nor refused.
func TestOIDCWithoutKeys(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]http.HandlerFunc{
		"unavailable": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"not a set":   func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"no answer":   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newSigner(t)
			p.keys.Store(&answer)
			check, err := access.NewOIDC(access.OIDCConfig{Issuer: p.issuer, Audience: "turnpike"})
			if err != nil {
				t.Fatal(err)
			}
			// Also after the limit of fetches.
			for range 6 {
				who, err := check.Authenticate(t.Context(), p.sign("one", map[string]any{"sub": "jo"}))
				if _, ok := errors.AsType[*access.ProviderError](err); !ok || errors.Is(err, access.ErrUnauthenticated) {
					t.Fatalf("Authenticate = %+v, %v, want a ProviderError", who, err)
				}
			}
		})
	}
}

// A key that is unknown is that of an invalid token only if the provider has said so: the key may be new.
func TestOIDCUnknownKeyWhileAway(t *testing.T) {
	t.Parallel()
	p := newSigner(t)
	check, err := access.NewOIDC(access.OIDCConfig{Issuer: p.issuer, Audience: "turnpike"})
	if err != nil {
		t.Fatal(err)
	}
	good, other := p.sign("one", map[string]any{"sub": "jo"}), p.sign("two", map[string]any{"sub": "jo"})
	if _, err := check.Authenticate(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	if _, err := check.Authenticate(t.Context(), other); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("with keys: %v", err)
	}
	away := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	p.keys.Store(&away)
	if _, err := check.Authenticate(t.Context(), other); err == nil || errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("while the provider is away: %v", err)
	}
	if _, err := check.Authenticate(t.Context(), good); err != nil {
		t.Errorf("a token of a known key, while the provider is away: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := check.Authenticate(ctx, other); err == nil || errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("without a client: %v", err)
	}
}
