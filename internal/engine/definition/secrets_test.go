package definition

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Key of a tenant: its own file wins over the deployment's secret of that name, which it gets without a policy. The key
// of a provider goes to the provider's hosts only.
func TestSecretsKey(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "acme"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"SHARED": "of-file", "acme/SHARED": "of-acme"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	getenv := func(name string) string {
		return map[string]string{"OPENAI_API_KEY": "of-openai", "TURNPIKE_SECRET_DECLARED": "of-variable"}[name]
	}
	for _, test := range []struct {
		tenant, name, host string
		want               string // the value, or a part of the error behind a !
	}{
		{"acme", "SHARED", "api.openai.com:443", "of-acme"},
		{"default", "SHARED", "api.openai.com:443", "of-file"},
		{"other", "SHARED", "api.openai.com:443", "of-file"},
		{"acme", "DECLARED", "api.openai.com:443", "of-variable"},
		{"acme", "OPENAI_API_KEY", "api.openai.com:443", "of-openai"},
		{"acme", "OPENAI_API_KEY", "evil.example:443", "!set TURNPIKE_SECRET_OPENAI_API_KEY in the environment of the process that reads it"},
		{"acme", "GEMINI_API_KEY", "generativelanguage.googleapis.com:443", "!the provider's default key cannot be used: secret GEMINI_API_KEY is not set, or empty: set GEMINI_API_KEY in"},
		{"acme", "NONE", "api.openai.com:443", "!set TURNPIKE_SECRET_NONE in the environment of the process that reads it (worker, gateway, turnpike dev or turnpike mcp)"},
	} {
		got, err := Secrets{dir, getenv}.Key(test.tenant, test.name, test.host)
		if wrong, fails := strings.CutPrefix(test.want, "!"); fails {
			if got != "" || err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("Key(%s, %s, %s) = %q, %v; want an error with %q", test.tenant, test.name, test.host, got, err, wrong)
			}
		} else if got != test.want || err != nil {
			t.Errorf("Key(%s, %s, %s) = %q, %v; want %q", test.tenant, test.name, test.host, got, err, test.want)
		}
	}
}

// A reference resolves a secret declared for the tenant, for the hosts it is bound to, and nothing else in the
// worker's environment or on its disk.
func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	for name, value := range map[string]string{"FILE": "of-file\n", "acme/OWN": "of-acme", "other/OTHERS": "of-other", "BOUND": "of-bound"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("TURNPIKE_SECRET_DECLARED", "of-variable")
	t.Setenv("UNDECLARED", "c4n4ry")
	t.Setenv("OPENAI_API_KEY", "of-openai")
	listing := func(all ...api.TenantSecret) policy.Policy {
		return policy.Of("acme", api.TenantSettings{Secrets: all})
	}
	bound := listing(api.TenantSecret{Name: "BOUND", Hosts: []string{"*.example.com", "api.example.org:8443"}})
	for _, test := range []struct {
		tenant, name, host string
		policy             policy.Policy
		want               string // the value, or a part of the error after a !
	}{
		{"default", "DECLARED", "a.example:443", policy.Policy{}, "of-variable"},
		{"default", "FILE", "", policy.Policy{}, "of-file"},
		{"default", "UNDECLARED", "a.example:443", policy.Policy{}, "!set TURNPIKE_SECRET_UNDECLARED"},
		{"default", "PATH", "", policy.Policy{}, "!is not set"},
		{"default", "TURNPIKE_SECRET_DECLARED", "", policy.Policy{}, "!is not set"},
		{"default", "acme", "", policy.Policy{}, "!is not set"},
		{"default", "acme/OWN", "", policy.Policy{}, "!reference"},
		{"default", "", "", policy.Policy{}, "!\"\" is not the name of a secret"},
		{"acme", "", "a.example:443", policy.Policy{}, "!is not the name of a secret"},
		{"default", ".", "", policy.Policy{}, "!is not the name of a secret"},
		{"default", ".hidden", "", policy.Policy{}, "!is not the name of a secret"},
		{"default", `acme\OWN`, "", policy.Policy{}, "!is not the name of a secret"},
		{"..", "passwd", "", policy.Policy{}, "!tenant .. has no secret"},
		{"default", "OPENAI_API_KEY", "api.openai.com:443", policy.Policy{}, "of-openai"},
		{"acme", "OPENAI_API_KEY", "api.openai.com:443", policy.Policy{}, "of-openai"},
		{"default", "OPENAI_API_KEY", "evil.example:443", policy.Policy{}, "!secret OPENAI_API_KEY is for the hosts api.openai.com, *.api.openai.com only and must not be sent to evil.example:443: set TURNPIKE_SECRET_OPENAI_API_KEY"},
		{"default", "OPENAI_API_KEY", "api.openai.com.evil.example:443", policy.Policy{}, "!is for the hosts"},
		{"default", "OPENAI_API_KEY", "", policy.Policy{}, "!given to a program"},
		{"acme", "OPENAI_API_KEY", "evil.example:443", policy.Policy{}, "!must not be sent to evil.example:443: put a file with the name OPENAI_API_KEY and the value into TURNPIKE_SECRETS_DIR/acme"},
		{"acme", "OWN", "a.example:443", policy.Policy{}, "of-acme"},
		{"acme", "OTHERS", "a.example:443", policy.Policy{}, "!TURNPIKE_SECRETS_DIR/acme"},
		{"acme", "DECLARED", "a.example:443", policy.Policy{}, "!tenant acme has no secret"},
		{"acme", "FILE", "a.example:443", policy.Policy{}, "!tenant acme has no secret"},
		{"acme", "DECLARED", "a.example:443", listing(api.TenantSecret{Name: "DECLARED"}), "of-variable"},
		{"acme", "OWN", "a.example:443", listing(api.TenantSecret{Name: "DECLARED"}), "!secrets of tenant acme"},
		{"acme", "OWN", "a.example:443", listing([]api.TenantSecret{}...), "!secrets of tenant acme"},
		{"acme", "BOUND", "a.example.com:443", bound, "of-bound"},
		{"acme", "BOUND", "API.example.org.:8443", bound, "of-bound"},
		{"acme", "BOUND", "api.example.org:443", bound, "!is for the hosts *.example.com, api.example.org:8443 only and must not be sent to api.example.org:443"},
		{"acme", "BOUND", "example.com:443", bound, "!is for the hosts"},
		{"acme", "BOUND", "badexample.com:443", bound, "!is for the hosts"},
		{"acme", "BOUND", "", bound, "!given to a program"},
	} {
		got, err := Secrets{dir, os.Getenv}.Find(test.tenant, test.name, test.host, test.policy)
		if wrong, fails := strings.CutPrefix(test.want, "!"); fails {
			if got != "" || err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("%s of %s for %q = %q, %v; want an error with %q", test.name, test.tenant, test.host, got, err, wrong)
			}
		} else if got != test.want || err != nil {
			t.Errorf("%s of %s for %q = %q, %v; want %q", test.name, test.tenant, test.host, got, err, test.want)
		}
	}
}

// A secret in several places has the value of the first: the tenant's file, the deployment's variable, its file, and
// for the key of a built-in provider its own variable, for the hosts of the provider.
func TestPlacesOfASecret(t *testing.T) {
	t.Parallel()
	const name, host = "OPENAI_API_KEY", "api.openai.com:443"
	places := []string{"acme's file", "the variable", "the file", "the provider's variable"}
	for first, want := range places {
		dir, variables := t.TempDir(), map[string]string{name: places[3]}
		if err := os.Mkdir(filepath.Join(dir, "acme"), 0o700); err != nil {
			t.Fatal(err)
		}
		if first <= 2 {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(places[2]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if first <= 1 {
			variables[declared+name] = places[1]
		}
		if first <= 0 {
			if err := os.WriteFile(filepath.Join(dir, "acme", name), []byte(places[0]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		s := Secrets{dir, func(name string) string { return variables[name] }}
		if got, err := s.Find("acme", name, host, policy.Of("acme", api.TenantSettings{Secrets: []api.TenantSecret{{Name: name}}})); got != want || err != nil {
			t.Errorf("Find returns %q, %v; want %q", got, err, want)
		}
		if got, err := s.Key("acme", name, host); got != want || err != nil {
			t.Errorf("Key returns %q, %v; want %q", got, err, want)
		}
	}
}
