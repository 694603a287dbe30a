package definition

import (
	"context"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// secret returns the value of a tenant's secret at the moment of its use.
func (a *Agents) secret(tenant, name, host string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), a.cfg.Patience)
	defer cancel()
	p, err := a.policyOf(ctx, tenant)
	if err != nil {
		return "", err
	}
	return a.cfg.Secrets.Find(tenant, name, host, p)
}

// ModelKey returns the API key for a model: the secret that the model names or, if it names neither a key
// nor an address, the key that Config.Keys has for its provider. It returns "" if Config.Keys has none, or
// if the model names only an address. The error reports that the secret cannot be found or read, that it must not be
// sent to the model's host, or that the policy cannot be read.
func (a *Agents) ModelKey(tenant string, m agent.Model) (string, error) {
	host := a.modelHost(m)
	if m.APIKey != "" {
		return a.secret(tenant, strings.TrimPrefix(m.APIKey, secretScheme), host)
	}
	ref := a.cfg.Keys[m.Provider]
	if ref == "" || m.BaseURL != "" {
		return "", nil
	}
	if !strings.HasPrefix(ref, secretScheme) {
		return ref, nil
	}
	return a.cfg.Secrets.Key(tenant, strings.TrimPrefix(ref, secretScheme), host)
}

// modelHost returns the "host:port" to which calls of a model go; "" if its provider does not
// say.
func (a *Agents) modelHost(m agent.Model) string {
	if m.BaseURL != "" {
		return toolspec.HostPort(m.BaseURL)
	}
	return a.known.Providers[m.Provider].Host
}

// policyOf returns the current policy for the agents of a tenant.
func (a *Agents) policyOf(ctx context.Context, tenant string) (policy.Policy, error) {
	if a.cfg.Policy == nil {
		return policy.Policy{}, nil
	}
	return a.cfg.Policy(ctx, tenant)
}

// Permitted returns nil if a tenant's agents may use what calls of a tool need now. The error is a
// *policy.RefusedError if they may not, else that of reading the policy.
func (a *Agents) Permitted(ctx context.Context, tenant string, needs tool.Needs) error {
	if needs.Command == "" && len(needs.Hosts) == 0 {
		return nil
	}
	p, err := a.policyOf(ctx, tenant)
	if err != nil {
		return err
	}
	if needs.Command != "" {
		if err := p.Command(needs.Command); err != nil {
			return err
		}
	}
	for _, host := range needs.Hosts {
		if err := p.Host(host); err != nil {
			return err
		}
	}
	return nil
}

// PermittedModel returns nil if a tenant's agents may use a model, with tools that its provider runs, now.
// Errors are as for Permitted.
func (a *Agents) PermittedModel(ctx context.Context, tenant string, m agent.Model, hosted []model.ProviderTool) error {
	p, err := a.policyOf(ctx, tenant)
	if err != nil {
		return err
	}
	for _, t := range hosted {
		if err := p.ProviderTool(m.Provider, t.Name); err != nil {
			return err
		}
	}
	if err := p.Model(m.Provider, m.Name); err != nil || m.BaseURL == "" {
		return err
	}
	return p.Host(a.modelHost(m))
}
