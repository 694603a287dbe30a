package definition

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// secretScheme starts a reference to a secret.
const secretScheme = "secret://"

// declared is the prefix of the variables that are secrets of agents. No other variable is, except the keys of built-in
// providers, for the hosts of these.
const declared = "TURNPIKE_SECRET_"

// reader is the process that looks for a secret, in error messages.
const reader = "the process that reads it (worker, gateway, turnpike dev or turnpike mcp)"

// maxTenants is the maximum number of tenants in the cache of secret functions.
const maxTenants = 10_000

// builtin are the providers whose keys workers read from the providers' variables, such as
// OPENAI_API_KEY.
var builtin = model.BuiltinSpecs()

// Secrets finds the values that the operator of a process has declared to be secrets.
type Secrets struct {
	// Dir has one file per secret: a tenant's in a directory of its name, the deployment's
	// directly below Dir. Empty: no secret is in a file.
	Dir string

	// Getenv returns the value of an environment variable. Nil: no secret is in variables.
	Getenv func(name string) string
}

// variable returns the value of a variable, or "".
func (s Secrets) variable(name string) string {
	if s.Getenv == nil {
		return ""
	}
	return s.Getenv(name)
}

// CheckDir returns an error if Dir is set but is not a directory in which this process can open files.
func (s Secrets) CheckDir() error {
	if s.Dir == "" {
		return nil
	}
	if _, err := os.Stat(s.Dir + "/."); err != nil {
		return fmt.Errorf("the directory of secrets, %s, cannot be used (%w): create it, make it readable for the user of this process, or correct or unset TURNPIKE_SECRETS_DIR (in Go, SecretsDir)", s.Dir, cmp.Or(errors.Unwrap(err), err))
	}
	return nil
}

// Find returns the value of a secret for requests to host, a "host:port", or for a program that the process starts if
// host is "". It refuses what the policy p refuses. It looks first in the tenant's directory, and then among the
// deployment's secrets, if the tenant is default or p lists the secret. Last it looks in the variables with the keys
// of the built-in providers, such as OPENAI_API_KEY, which every tenant may use for the hosts of these providers. The
// error reports a refusal, or that the secret does not exist or cannot be read.
func (s Secrets) Find(tenant, name, host string, p policy.Policy) (string, error) {
	if err := p.Secret(name, host); err != nil {
		return "", fmt.Errorf("secret %s was not sent: %w", name, err)
	}
	return s.find(tenant, name, host, tenant == state.DefaultTenant || p.Names(name))
}

// Key returns the value of a secret that holds a provider's key, for models without their own key. It looks in the same
// places as Find, and always in those of the deployment. The policy does not apply: the operator chose the name, not
// the tenant. A variable such as OPENAI_API_KEY is still only for the hosts of its provider.
func (s Secrets) Key(tenant, name, host string) (string, error) {
	key, err := s.find(tenant, name, host, true)
	if err != nil {
		return "", fmt.Errorf("the model has no api_key, and the provider's default key cannot be used: %w", err)
	}
	return key, nil
}

// find looks in the places of a tenant and, if shared, in those of the deployment.
func (s Secrets) find(tenant, name, host string, shared bool) (string, error) {
	if name == "" || strings.ContainsAny(name, `/\`) || strings.HasPrefix(name, ".") {
		return "", fmt.Errorf("%.200q is not the name of a secret: write a reference such as secret://OPENAI_API_KEY", name)
	}
	if filepath.IsLocal(tenant) && !strings.ContainsAny(tenant, `/\`) {
		if v, err := s.file(tenant, name); v != "" || err != nil {
			return v, err
		}
	}
	if shared {
		if v := s.variable(declared + name); v != "" {
			return v, nil
		}
		if v, err := s.file(name); v != "" || err != nil {
			return v, err
		}
	}
	hosts := builtin.HostsOfKey(name)
	fits := slices.ContainsFunc(hosts, func(h string) bool { return policy.MatchHost(h, host) })
	if len(hosts) > 0 {
		if v := s.variable(name); v != "" {
			if !fits {
				remedy := fmt.Sprintf("put a file with the name %s and the value into TURNPIKE_SECRETS_DIR/%s (in Go, SecretsDir) of %s", name, tenant, reader)
				if shared {
					remedy = fmt.Sprintf("set %s%s in the environment of %s", declared, name, reader)
				}
				return "", fmt.Errorf("%w: %s, for programs and all hosts", policy.Bound(name, host, hosts), remedy)
			}
			return v, nil
		}
	}
	if !shared {
		return "", fmt.Errorf("tenant %[2]s has no secret %[1]s: put a file with the name %[1]s and the value into TURNPIKE_SECRETS_DIR/%[2]s (in Go, SecretsDir) of %[3]s, or, if the deployment has the secret, ask an admin of the deployment to list it in `secrets` of the tenant", name, tenant, reader)
	}
	variable := declared + name
	if fits {
		variable = name
	}
	return "", fmt.Errorf("secret %[1]s is not set, or empty: set %[2]s in the environment of %[3]s and start it again, or put a file with the name %[1]s and the value into its TURNPIKE_SECRETS_DIR (in Go, SecretsDir)", name, variable, reader)
}

// file reads a secret from a file. It returns "" if the file does not exist.
func (s Secrets) file(elem ...string) (string, error) {
	if s.Dir == "" {
		return "", nil
	}
	name := filepath.Join(append([]string{s.Dir}, elem...)...)
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return "", nil // of a tenant
	}
	b, err := os.ReadFile(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return strings.TrimSpace(string(b)), nil
	}
	return "", fmt.Errorf("secret %[1]s cannot be read from its file (%[2]w): make TURNPIKE_SECRETS_DIR/%[3]s (in Go, SecretsDir), and the directories above it, readable for the user of %[4]s", elem[len(elem)-1], cmp.Or(errors.Unwrap(err), err), strings.Join(elem, "/"), reader) // without the path of the directory
}
