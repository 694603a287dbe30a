package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// The lifetime of a key or a token is also a number of days.
func TestLifetime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"2d": 48 * time.Hour, "1.5d": 36 * time.Hour, "48h": 48 * time.Hour, "30s": 30 * time.Second} {
		var got lifetime
		if err := got.UnmarshalText([]byte(text)); err != nil || time.Duration(got) != want {
			t.Errorf("%s is %s, %v; want %s", text, time.Duration(got), err, want)
		}
	}
	for _, text := range []string{"", "0", "-1d", "-1h", "d", "2 days"} {
		var got lifetime
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %s, want an error", text, time.Duration(got))
		}
	}
}

// The options of keys create reach the key, with a gateway and without.
func TestKeysCreate(t *testing.T) {
	t.Parallel()
	c := atGateway(t, memstore.New(memstore.Config{}))
	bootstrap := []string{"--bootstrap", "--nats-url", testbed.NATSServer(t).URL()}
	create := func(args ...string) (key api.NewKey) {
		t.Helper()
		out, err := says(t, c, append([]string{"-o", "json", "keys", "create"}, args...)...)
		if err == nil && out != "" {
			err = json.Unmarshal([]byte(out), &key)
		}
		if err != nil {
			t.Fatalf("keys create %q: %v: %s", args, err, out)
		}
		return key
	}
	for name, where := range map[string][]string{"gateway": nil, "bootstrap": bootstrap} {
		before := state.At(time.Now())
		key := create(append(where, "--expires", "12h", "--role", "viewer,operator", "--name", "ci", "--tenant", "acme")...)
		if key.Key == "" || key.Tenant != "acme" || key.Name != "ci" || !slices.Equal(key.Roles, []string{"viewer", "operator"}) {
			t.Errorf("%s: %+v", name, key)
		}
		if least, most := before.Add(12*time.Hour), time.Now().Add(12*time.Hour); key.ExpiresAt.Before(least) || key.ExpiresAt.After(most) {
			t.Errorf("%s: the key expires at %s, want %s to %s", name, key.ExpiresAt, least, most)
		}
		if key := create(append(where, "--role", "viewer")...); !key.ExpiresAt.IsZero() {
			t.Errorf("%s: a key without --expires expires at %s", name, key.ExpiresAt)
		}
	}

	// A file with a valid key stays; any other text in it is replaced. Without --role the key has all roles.
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("tp_old_key\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := slices.Concat(bootstrap, []string{"--file", file})
	key := create(args...)
	first, err := os.ReadFile(file)
	if err != nil || key.Key != "" || key.Tenant != "*" || key.CreatedBy != "bootstrap" || len(key.Roles) != len(access.Roles()) || !strings.HasPrefix(string(first), "tp_"+key.ID+"_") {
		t.Fatalf("key %+v, file %s, %v", key, first, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of the key has the mode %s, %v", info.Mode(), err)
	}
	if again := create(args...); again.ID != "" {
		t.Errorf("a second key was created: %+v", again)
	}
	if second, err := os.ReadFile(file); err != nil || string(second) != string(first) {
		t.Errorf("the file has %s instead of %s, %v", second, first, err)
	}
}

// The bounds of a token reach the gateway. With --file the token itself is not printed.
func TestTokensCreate(t *testing.T) {
	t.Parallel()
	var asked []byte
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		if asked, err = io.ReadAll(r.Body); err != nil || r.Method+" "+r.URL.Path != "POST /v1/tokens" {
			t.Errorf("%s %s, %v", r.Method, r.URL, err)
		}
		fmt.Fprint(w, `{"user":"ada","roles":["viewer"],"tenant":"acme","token":"the-secret"}`)
	}))
	t.Cleanup(s.Close)
	file := filepath.Join(t.TempDir(), "token")
	for _, test := range []struct {
		args, asked, printed string
	}{
		{"--role viewer,approver --agent a,b --expires 30m", `{"user":"ada","roles":["viewer","approver"],"agents":["a","b"],"expires_in":"30m0s"}`, "the-secret\n"},
		{"--role viewer --run run_1", `{"user":"ada","roles":["viewer"],"run":"run_1"}`, "the-secret\n"},
		{"--role viewer --file " + file, `{"user":"ada","roles":["viewer"]}`, "token of ada in " + file + "\n"},
	} {
		out, err := says(t, api.New(s.URL), append([]string{"tokens", "create", "ada"}, strings.Fields(test.args)...)...)
		if err != nil || string(asked) != test.asked || !strings.HasSuffix(out, test.printed) || strings.Count(out, "the-secret") != strings.Count(test.printed, "the-secret") {
			t.Errorf("%s: asked for %s and printed %q, %v; want %s and %q", test.args, asked, out, err, test.asked, test.printed)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "the-secret\n" {
		t.Errorf("the file has %q, %v", text, err)
	}
}
