package redisstore_test

import (
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// A certificate needs a URL with TLS, which neither redis: nor unix: has.
func TestTLSNeedsItsURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://127.0.0.1/0", "unix:///run/redis.sock"} {
		_, err := redisstore.Open(t.Context(), redisstore.Config{URL: url, Login: redisstore.Login{TLS: redisstore.TLS{CA: redisstore.Secret{Name: "CA", Text: "x"}}}})
		if err == nil || !strings.Contains(err.Error(), "does not begin with rediss://") {
			t.Errorf("Open(%q) = %v", url, err)
		}
	}
}
