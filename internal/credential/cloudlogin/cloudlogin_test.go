package cloudlogin_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/credential/cloudlogin"
	"github.com/turnpike-dev/turnpike/internal/model/modeltest"
)

type status int

func (s status) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: int(s), Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(`{"error":"x"}`)), Request: req}, nil
}

// A secret that is an object must be a whole identity: nothing is sent otherwise. Any other text is an API key.
func TestAzureSecrets(t *testing.T) {
	t.Parallel()
	logins := cloudlogin.New(&http.Client{Transport: status(http.StatusOK)})
	for _, secret := range []string{
		"{}", `{"password":"p","tenant":"t"}`, `{"appId":"a","tenant":"t"}`, `{"appId":"a","password":"p"}`, `{"appId":1,"password":"p","tenant":"t"}`,
		`{"appId":"","password":"p","tenant":"t"}`, `{"appId":"a","password":"p","tenant":"t"`,
	} {
		if token, err := logins.Azure(t.Context(), secret); token != nil || !cloudlogin.IsRefused(err) || !strings.Contains(err.Error(), "the secret for Azure OpenAI is not valid") {
			t.Errorf("%s: %v, %v; want it refused", secret, token, err)
		}
	}
	if token, err := logins.Azure(t.Context(), "a-key"); token != nil || err != nil {
		t.Errorf("an API key: %v, %v; want no token", token, err)
	}
}

// A cloud that limits requests for tokens, or that gave up waiting, has not refused the identity: a retry may succeed.
func TestRefused(t *testing.T) {
	t.Parallel()
	account := modeltest.NewCloud(t, nil).ServiceAccount(t)
	for code, want := range map[int]bool{400: true, 401: true, 403: true, 408: false, 429: false, 500: false} {
		logins := cloudlogin.New(&http.Client{Transport: status(code)})
		if _, err := logins.Google(t.Context(), account); err == nil || cloudlogin.IsRefused(err) != want {
			t.Errorf("Google responds with %d: %v, want refused %t", code, err, want)
		}
		if _, err := logins.Azure(t.Context(), `{"appId":"a","password":"p","tenant":"t"}`); err == nil || cloudlogin.IsRefused(err) != want {
			t.Errorf("Azure responds with %d: %v, want refused %t", code, err, want)
		}
	}
}
