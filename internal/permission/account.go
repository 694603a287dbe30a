package permission

import (
	"fmt"
	"regexp"
	"strings"
)

var accountPattern = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Account is the part of a NATS configuration that puts the clients of a tenant into an account of their own. Within
// one account, JetStream answers a submission on any reply subject that the client names, even one on which the
// client may not publish; between accounts the server replaces it with a reply subject of its own.
type Account struct {
	Name       string `json:"name"`       // of the clients' account
	Deployment string `json:"deployment"` // the account that gateways and workers are in
	Exports    string `json:"exports"`    // of the account Deployment
	Imports    string `json:"imports"`    // of the account Name
}

// ForAccount returns the account of the clients of a tenant.
func ForAccount(s Scope, name, deployment string) (Account, error) {
	if err := s.validate(Client); err != nil {
		return Account{}, err
	}
	for _, n := range []string{name, deployment} {
		if !accountPattern.MatchString(n) {
			return Account{}, fmt.Errorf("the account name %q (NAME or --deployment) is not valid: use letters, digits, _ and -", n)
		}
	}
	if name == deployment {
		return Account{}, fmt.Errorf("%s is the account of the deployment: name another account for the clients", name)
	}
	a := Account{Name: name, Deployment: deployment}
	var exports, imports strings.Builder
	for _, kind := range []struct {
		name     string
		subjects []string
	}{{"service", s.own("submit.*", "abort.*")}, {"stream", s.own("events.*", "reply.>")}} {
		for _, subject := range kind.subjects {
			fmt.Fprintf(&exports, "  {%s: %q, accounts: [%s]}\n", kind.name, subject, name)
			fmt.Fprintf(&imports, "  {%s: {account: %s, subject: %q}}\n", kind.name, deployment, subject)
		}
	}
	a.Exports, a.Imports = "exports: [\n"+exports.String()+"]\n", "imports: [\n"+imports.String()+"]\n"
	return a, nil
}

// String returns both halves with comments on where each belongs.
func (a Account) String() string {
	return fmt.Sprintf("# In the account %s, of gateways and workers:\n%s# In the account %s, of the clients:\n%s", a.Deployment, a.Exports, a.Name, a.Imports)
}
