package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// A receiver verifies the test event with the library of Standard Webhooks, and its refusal is reported.
func TestWebhooksTest(t *testing.T) {
	t.Parallel()
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hook, err := standardwebhooks.NewWebhook(secret)
		if err != nil {
			t.Error(err)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if err := hook.Verify(body, r.Header); err != nil || !strings.Contains(string(body), `"test":"true"`) {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(receiver.Close)
	for value, want := range map[string]string{secret: "the receiver has accepted the event", "whsec_AAAA": "the receiver answers 401", "": "TURNPIKE_SECRET_EVENTS is not set"} {
		c := exec.CommandContext(t.Context(), os.Args[0], "webhooks", "test", receiver.URL, "--secret", "EVENTS")
		c.Env = append(c.Environ(), "TURNPIKE_TEST_COMMAND=1", "TURNPIKE_SECRET_EVENTS="+value)
		out, err := c.CombinedOutput()
		if !strings.Contains(string(out), want) || (err == nil) != (value == secret) {
			t.Errorf("%s: %s, want %s", value, out, want)
		}
	}
}
