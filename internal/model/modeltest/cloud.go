package modeltest

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Cloud acts as the servers of a cloud: every connection of its Client ends here, whatever its host.
type Cloud struct {
	Client *http.Client

	// Hang makes requests for tokens wait until the test ends. Deny makes the clouds refuse them.
	Hang, Deny bool

	mu       sync.Mutex
	tokens   int
	account  *rsa.PublicKey
	requests []Received
}

// Received is a request to the models of a cloud.
type Received struct {
	*http.Request

	Body string
}

// NewCloud starts servers whose model requests are handled by models.
func NewCloud(t *testing.T, models http.HandlerFunc) *Cloud {
	t.Helper()
	c := &Cloud{}
	ended := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Host {
		case "oauth2.googleapis.com", "login.microsoftonline.com":
			if c.Hang {
				select {
				case <-ended:
				case <-r.Context().Done():
				}
				return
			}
			c.token(t, w, r)
		default:
			body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
			if err != nil {
				t.Errorf("a request to a model: %v", err)
			}
			c.mu.Lock()
			c.requests = append(c.requests, Received{r, string(body)})
			c.mu.Unlock()
			models(w, r)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(ended) }) // before the server waits for its requests
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	c.Client = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "example.com", MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, server.Listener.Addr().String())
		},
	}}
	t.Cleanup(c.Client.CloseIdleConnections)
	return c
}

// Last returns the latest request to a model.
func (c *Cloud) Last(t *testing.T) Received {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.requests) == 0 {
		t.Fatal("no model was called")
	}
	return c.requests[len(c.requests)-1]
}

// Tokens returns the number of issued tokens.
func (c *Cloud) Tokens() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tokens
}

// ServiceAccount returns the key of a Google service account, whose tokens come from a server that must not be
// called.
func (c *Cloud) ServiceAccount(t *testing.T) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c.account = &key.PublicKey
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "agent@project.iam.gserviceaccount.com", "private_key_id": "1", "token_uri": "https://attacker.example/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (c *Cloud) token(t *testing.T, w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/.well-known/openid-configuration") {
		tenant := strings.Split(r.URL.Path, "/")[1]
		at := "https://login.microsoftonline.com/" + tenant
		_, _ = fmt.Fprintf(w, `{"token_endpoint":"%s/oauth2/v2.0/token","authorization_endpoint":"%s/oauth2/v2.0/authorize","issuer":"%s/v2.0"}`, at, at, at)
		return
	}
	if err := r.ParseForm(); err != nil {
		t.Errorf("a request for a token: %v", err)
	}
	allowed := r.Form.Get("client_secret") == "azure-password"
	if r.Host == "oauth2.googleapis.com" {
		allowed = c.signed(r.Form.Get("assertion"))
	}
	if c.Deny || !allowed {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant","error_description":"The account is disabled."}`))
		return
	}
	c.mu.Lock()
	c.tokens++
	n := c.tokens
	c.mu.Unlock()
	_, _ = fmt.Fprintf(w, `{"access_token":"token-%d","token_type":"Bearer","expires_in":3600}`, n)
}

// signed reports whether a JSON Web Token has the signature of the service account.
func (c *Cloud) signed(token string) bool {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || c.account == nil {
		return false
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return false
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	return rsa.VerifyPKCS1v15(c.account, crypto.SHA256, sum[:], signature) == nil
}
