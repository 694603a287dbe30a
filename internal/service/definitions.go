package service

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/lookup"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// metadataDraft is the metadata key of a draft's run; its value is the name of the agent.
const metadataDraft = "draft"

// draftPrefix begins the name of a draft. A draft's definition has a different name, which
// distinguishes it from an agent whose name happens to begin so.
const draftPrefix = "draft-"

// lookupFor bounds the time that saving a definition waits for reports on the services that it
// refers to.
const lookupFor = 2 * time.Second

type agentKey struct {
	tenant  string
	name    string
	version int
}

// definitions reads, checks and compiles definitions of agents.
type definitions struct {
	*core

	known  agent.Known // for stored definitions, without limits that are newer than the definition
	latest *latest
	lookup *lookup.Finder

	mu     sync.Mutex
	agents map[agentKey]*agent.Agent
	recent map[agentKey]recent // by tenant and name
}

// recent is the latest version of an agent as last read. Another version may be the latest now.
type recent struct {
	agent *agent.Agent
	guard string // see state.NewRun; not empty
}

// newDefinitions returns definitions; own is the store without the budgets of requests.
func newDefinitions(k *core, own state.Agents) *definitions {
	known, finder := k.cfg.Known, k.cfg.Lookup
	known.MaxResult, known.ModelExtra, finder.Agents = 0, nil, k.store
	return &definitions{core: k, known: known, latest: newLatest(own), lookup: &finder, agents: map[agentKey]*agent.Agent{}, recent: map[agentKey]recent{}}
}

// definition returns a version of an agent; version 0 is the latest. The error wraps state.ErrNotFound if there is
// none.
func (d *definitions) definition(ctx context.Context, tenant, name string, version int) (state.AgentVersion, error) {
	if version == 0 {
		return bounded(ctx, func(ctx context.Context) (state.AgentVersion, error) {
			return d.latest.get(ctx, agentKey{tenant: tenant, name: name})
		})
	}
	return d.store.Agent(ctx, tenant, name, version)
}

// compiled returns a version of an agent, compiled; version 0 is the latest. All callers share the agent, so they must
// not change it. compiled refuses a draft if the tenant requires review: what starts a run must call it.
func (d *definitions) compiled(ctx context.Context, tenant, name string, version int) (*agent.Agent, error) {
	a, err := d.compiledDefinition(ctx, tenant, name, version)
	if err == nil && a.Name != name && strings.HasPrefix(name, draftPrefix) {
		err = d.checkDraft(ctx, tenant, name)
	}
	if err != nil {
		return nil, err
	}
	return a, nil
}

// lastRead returns the latest version of an agent as last read, or none. A run of it needs its guard.
func (d *definitions) lastRead(tenant, name string) (recent, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.recent[agentKey{tenant: tenant, name: name}]
	return r, ok
}

func (d *definitions) compiledDefinition(ctx context.Context, tenant, name string, version int) (*agent.Agent, error) {
	key := agentKey{tenant, name, version}
	d.mu.Lock()
	a := d.agents[key] // none if version is 0
	d.mu.Unlock()
	if a != nil {
		return a, nil
	}
	record, err := d.definition(ctx, tenant, name, version)
	if errors.Is(err, state.ErrNotFound) && version != 0 {
		return nil, problem(missing, api.CodeAgentNotFound, "agent %q has no version %d: start a new run without a version, which uses the latest, or with one from GET /v1/agents/%s/versions", name, version, name)
	}
	if errors.Is(err, state.ErrNotFound) {
		return nil, problem(missing, api.CodeAgentNotFound, "there is no agent %q: correct the name, or create it with PUT /v1/agents/%s", name, name)
	}
	if err != nil {
		return nil, err
	}
	key.version = record.Version
	d.mu.Lock()
	a = d.agents[key]
	d.mu.Unlock()
	if a == nil {
		var def agent.Definition
		if def, err = agent.Parse(record.Definition); err == nil {
			a, err = d.known.Compile(def, record.Version)
		}
	}
	if err != nil {
		return nil, problem(unprocessable, api.CodeInvalidAgent, "version %d of agent %q is not valid for this build of Turnpike: save a corrected version and use it in a new run, or upgrade this process if a newer build saved it: %v", record.Version, name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.agents) > 1000 {
		clear(d.agents)
		clear(d.recent)
	}
	d.agents[key] = a
	if version == 0 && record.Guard != "" && !strings.HasPrefix(name, draftPrefix) { // compiled checks drafts each time
		d.recent[agentKey{tenant: tenant, name: name}] = recent{a, record.Guard}
	}
	return a, nil
}

var draftName = regexp.MustCompile(`^` + draftPrefix + `[0-9a-f]{20}$`)

// isDraft reports whether a name has the form of those that keepDraft generates.
func isDraft(name string) bool { return draftName.MatchString(name) }

// keepDraft stores a definition under a name that is generated from its content and that no list shows. It stores the
// same definition once.
func (d *definitions) keepDraft(ctx context.Context, tenant string, stored []byte) (state.AgentVersion, error) {
	sum := sha256.Sum256(stored)
	name := draftPrefix + hex.EncodeToString(sum[:10])
	v, err := d.store.Agent(ctx, tenant, name, 1)
	if errors.Is(err, state.ErrNotFound) {
		if v, err = d.store.PutAgent(ctx, tenant, name, stored, false); err == nil {
			err = d.store.DeleteAgent(ctx, tenant, name)
		}
		if errors.Is(err, state.ErrNotFound) {
			err = nil // somebody else who had the same has deleted it
		}
	}
	return v, err
}

// checkDraft refuses an unreviewed draft if the tenant requires review.
func (d *definitions) checkDraft(ctx context.Context, tenant, name string) error {
	settings, err := d.tenants.Settings(ctx, tenant)
	if err != nil || !settings.Review {
		return err
	}
	return problem(denied, api.CodeNotPermitted, "%s is an unreviewed draft, and tenant %s requires a review of definitions before they run: save it as an agent, ask an author or admin who has not saved it to publish it, and run that agent", name, tenant)
}

// checkGoesOn refuses to continue a run whose history is lost, or an unreviewed draft's run if the tenant requires
// review.
func (d *definitions) checkGoesOn(ctx context.Context, st state.State) error {
	if st.Transition.Reason == state.EndLost {
		return problem(conflict, api.CodeNotSupported, "the store has lost run %s with its history, so it cannot continue: submit its input again as a new run", st.ID)
	}
	if !strings.HasPrefix(st.Agent, draftPrefix) {
		return nil
	}
	settings, err := d.tenants.Settings(ctx, st.Tenant)
	if err != nil || !settings.Review {
		return err
	}
	_, err = d.compiled(ctx, st.Tenant, st.Agent, st.AgentVersion)
	return err
}

// draftOf parses and checks a definition, JSON or a JSON string of YAML, and returns it with its stored form.
func (d *definitions) draftOf(ctx context.Context, tenant string, given json.RawMessage) (agent.Definition, []byte, error) {
	if len(given) == 0 || string(given) == "null" {
		return agent.Definition{}, nil, invalid("definition is missing: send one")
	}
	var yaml string
	if json.Unmarshal(given, &yaml) == nil {
		given = []byte(yaml)
	}
	def, err := d.cfg.Known.Parse(given)
	if err != nil {
		return def, nil, invalidAgent(given, err)
	}
	if def.Name == "" {
		def.Name = metadataDraft
	}
	compiled, err := d.cfg.Known.Compile(def, 0)
	if err != nil {
		return def, nil, invalidAgent(given, err)
	}
	if err := d.permitted(ctx, tenant, compiled); err != nil {
		return def, nil, err
	}
	def.Tools = compiled.Definition.Tools // each with its name
	stored, err := json.Marshal(def)
	return def, stored, err
}

// warnings returns warnings about resources that a definition refers to and that the deployment lacks, with their
// positions in the document that was sent. It reports only what it finds within lookupFor, up to lookup.MaxWarnings.
func (d *definitions) warnings(ctx context.Context, tenant string, sent []byte, a *agent.Agent) []api.Warning {
	ctx, cancel := context.WithTimeout(ctx, lookupFor)
	defer cancel()
	lacking := d.lookup.Missing(ctx, tenant, a)
	faults := make([]*agent.Fault, len(lacking))
	for i, m := range lacking {
		faults[i] = m.Fault()
	}
	var all []api.Warning
	for i, f := range placed(sent, faults) {
		all = append(all, api.Warning{Fault: f, Kind: string(lacking[i].Kind), Name: lacking[i].Name})
	}
	return all
}

// placed returns faults with their positions in the document that was sent.
func placed(sent []byte, faults []*agent.Fault) []api.Fault {
	var all []api.Fault
	for _, f := range agent.Locate(sent, faults) {
		all = append(all, api.Fault{At: f.At, Detail: f.Text, Line: f.Line, Column: f.Column})
	}
	return all
}

// invalidAgent returns a problem with the mistakes of a definition, each with its position in the document that was
// sent.
func invalidAgent(sent []byte, err error) error {
	p := problem(badRequest, api.CodeInvalidAgent, "%v", err)
	p.Errors = placed(sent, agent.Faults(err))
	return p
}

// permitted refuses a definition that uses resources not permitted to the tenant.
func (d *definitions) permitted(ctx context.Context, tenant string, a *agent.Agent) error {
	if err := a.CheckTenant(d.cfg.Prefix, tenant); err != nil {
		return problem(badRequest, api.CodeInvalidAgent, "%v", err)
	}
	return d.allowed(ctx, tenant, func(p policy.Policy) error { return p.Check(a, d.known.Providers) })
}

// permittedWebhook refuses a webhook in a request if the tenant's lists do not allow it, or if it would sign its
// events with the secret of a hook. The error names the field, with prefix before it.
func (k *core) permittedWebhook(ctx context.Context, tenant, prefix string, w state.Webhook) error {
	if err := k.allowed(ctx, tenant, func(p policy.Policy) error { return p.Webhook(prefix, w) }); err != nil {
		return err
	}
	return k.checkSigner(ctx, tenant, prefix, w)
}

// allowed converts the error of check, which receives the policy of the tenant, to a problem.
func (k *core) allowed(ctx context.Context, tenant string, check func(policy.Policy) error) error {
	settings, err := k.tenants.Settings(ctx, tenant)
	if err != nil {
		return err
	}
	if err := check(policy.Of(tenant, settings)); err != nil {
		return problem(denied, api.CodeNotPermitted, "%v", err)
	}
	return nil
}
