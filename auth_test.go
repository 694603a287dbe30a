package turnpike_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/turnpike-dev/turnpike"
)

// An Auth of the program calls that of KeyAuth, and the caller has roles in two tenants: the gateway refuses the request
// and says why. It does not report that the store has failed.
func TestKeyAuthWithRolesInTwoTenants(t *testing.T) {
	t.Parallel()
	issuer, token := signedToken(t)
	d := open(t, func(o *turnpike.Options) {
		o.OIDC = turnpike.OIDC{Issuer: issuer, Audience: "turnpike", Claims: `{"grants": [{"tenant": "a", "roles": ["viewer"]}, {"tenant": "b", "roles": ["viewer"]}]}`}
	})
	keys := d.KeyAuth()
	auth := turnpike.AuthFunc(func(r *http.Request) (turnpike.Principal, error) { return keys.Authenticate(r) })
	_, err := dial(t, d, turnpike.GatewayOptions{Auth: auth}, token).RunByID("run_01ARZ3NDEKTSV4RRFFQ69G5FAV").Info(t.Context())
	if !errors.Is(err, turnpike.ErrForbidden) || !strings.Contains(err.Error(), "oidc:ada has roles in 2 tenants") {
		t.Errorf("a request with roles in two tenants: %v, want ErrForbidden with the cause", err)
	}
}

// signedToken returns an OpenID provider and a token of it for the audience turnpike.
func signedToken(t *testing.T) (issuer, token string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	reply := func(path string, value any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(value)
		})
	}
	reply("/.well-known/openid-configuration", map[string]any{"issuer": server.URL, "jwks_uri": server.URL + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"}})
	reply("/keys", jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "one", Algorithm: "ES256", Use: "sig"}}})
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "one"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	claims, err := json.Marshal(map[string]any{"iss": server.URL, "aud": "turnpike", "sub": "ada", "exp": time.Now().Add(time.Hour).Unix()})
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(claims)
	if err == nil {
		token, err = signed.CompactSerialize()
	}
	if err != nil {
		t.Fatal(err)
	}
	return server.URL, token
}
