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
