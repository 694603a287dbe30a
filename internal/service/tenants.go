package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Tenants are the tenants and their settings. Admins of the deployment see and change all. Other admins see only their
// own tenant and cannot change it, because a tenant must not extend its own rights.
type Tenants struct {
	*core

	schedules   *Schedules
	hooks       *Hooks
	triggers    *Triggers
	memory      *Memory
	webhooks    *Webhooks
	evaluations *Evaluations
	files       *file.Files
	added       chan struct{} // holds a token if the streams of a tenant may be missing
}

func newTenants(k *core, schedules *Schedules, hooks *Hooks, triggers *Triggers, memory *Memory, webhooks *Webhooks, evaluations *Evaluations) *Tenants {
	s := &Tenants{core: k, schedules: schedules, hooks: hooks, triggers: triggers, memory: memory, webhooks: webhooks, evaluations: evaluations, files: k.files, added: make(chan struct{}, 1)}
	k.tenants.OnAdded(s.look)
	return s
}

// visible refuses a tenant whose settings the caller may not see.
func visible(c access.Caller, name string) error {
	if name != c.Tenant && !c.OfDeployment(access.Admin) {
		return tenantNotFound(name)
	}
	return nil
}

func tenantNotFound(name string) error {
	return notFound(api.CodeTenantNotFound, "there is no tenant %.60q: list them with GET /v1/tenants", name)
}

// List returns a page of the tenants that the caller may see, by name.
func (s *Tenants) List(ctx context.Context, c access.Caller, p Page) (api.Page[api.Tenant], error) {
	if err := s.permit(ctx, c, ReadTenants); err != nil {
		return api.Page[api.Tenant]{}, err
	}
	all, err := s.tenants.List(ctx)
	if err != nil {
		return api.Page[api.Tenant]{}, err
	}
	tenants := []api.Tenant{}
	for name, settings := range all {
		if visible(c, name) == nil {
			tenants = append(tenants, api.Tenant{Name: name, TenantSettings: settings})
		}
	}
	slices.SortFunc(tenants, func(a, b api.Tenant) int { return strings.Compare(a.Name, b.Name) })
	return Cut(p, tenants)
}

// Get returns a tenant that the caller may see. The problem is tenant_not_found if no such tenant exists.
func (s *Tenants) Get(ctx context.Context, c access.Caller, name string) (api.Tenant, error) {
	if err := s.permit(ctx, c, ReadTenants); err != nil {
		return api.Tenant{}, err
	}
	if err := visible(c, name); err != nil {
		return api.Tenant{}, err
	}
	settings, err := s.tenants.Read(ctx, name)
	if errors.Is(err, state.ErrNotFound) {
		return api.Tenant{}, tenantNotFound(name)
	}
	if err != nil {
		return api.Tenant{}, err
	}
	return api.Tenant{Name: name, TenantSettings: settings}, nil
}

// Put creates a tenant, or replaces its settings. Only admins of the deployment may. The tenant's streams may be
// created later.
func (s *Tenants) Put(ctx context.Context, c access.Caller, name string, settings api.TenantSettings) (api.Tenant, error) {
	err := s.permit(ctx, c, PutTenant)
	if err == nil {
		err = changeable(c, name)
	}
	if err != nil {
		return api.Tenant{}, err
	}
	if err := policy.CheckSettings(name, settings); err != nil {
		return api.Tenant{}, invalid("%v", err)
	}
	now, err := s.clock.now(ctx)
	if err != nil {
		return api.Tenant{}, err
	}
	if err = s.tenants.Put(ctx, name, settings, now.Time); errors.Is(err, state.ErrChanged) {
		err = contended("tenant", name)
	}
	s.note(ctx, c, PutTenant, name, err)
	if err != nil {
		return api.Tenant{}, err
	}
	s.open(ctx, name)
	return api.Tenant{Name: name, TenantSettings: settings}, nil
}

// Delete deletes the settings, the schedules, the hooks, the triggers, the memories, the webhook tests, the evaluations
// and the files of a tenant, and closes it for submissions over the bus; if only the latter fails, Delete logs that and
// returns nil. The rest stays, such as its agents, runs and keys, but model calls that need a file fail. Until it is
// put again, the tenant is suspended and keeps its restrictions; a default tenant is not suspended, and loses them.
// If the tenant is not stored, the problem is tenant_not_found, and Delete changes nothing. After another error some of
// these may be deleted; a repetition deletes the rest.
func (s *Tenants) Delete(ctx context.Context, c access.Caller, name string) error {
	err := s.permit(ctx, c, DeleteTenant)
	if err == nil {
		err = changeable(c, name)
	}
	if err != nil {
		return err
	}
	if _, err = s.tenants.Read(ctx, name); err == nil {
		err = errors.Join(s.schedules.removeAll(ctx, name), s.hooks.removeAll(ctx, name), s.triggers.removeAll(ctx, name), s.memory.removeAll(ctx, name), s.webhooks.removeAll(ctx, name), s.evaluations.removeAll(ctx, name), s.files.DropTenant(ctx, name))
	}
	if err == nil {
		err = s.tenants.Delete(ctx, name)
	}
	if errors.Is(err, state.ErrNotFound) {
		err = tenantNotFound(name)
	}
	s.note(ctx, c, DeleteTenant, name, err)
	if err != nil {
		return err
	}
	if err := s.bus.CloseTenant(ctx, name); err != nil {
		s.log.Warn("tenant deleted, but its stream may still accept submissions over NATS", "error", err, "tenant", name, "hint", "run `turnpike doctor`: NATS may be unreachable or refuse the operation. Then create the tenant again and delete it again")
	}
	return nil
}

// eachDocument calls fn with the name of each document of a kind, several concurrently, and returns the first error.
func (k *core) eachDocument(ctx context.Context, kind state.DocumentKind, fn func(ctx context.Context, name string) error) error {
	names, err := k.store.DocumentNames(ctx, kind)
	if err != nil {
		return err
	}
	return k.readEach(ctx, len(names), func(ctx context.Context, i int) error { return fn(ctx, names[i]) })
}

// changeable refuses callers who may not change a tenant, and invalid names of tenants.
func changeable(c access.Caller, name string) error {
	if err := visible(c, name); err != nil {
		return err
	}
	if !c.OfDeployment(access.Admin) {
		return problem(denied, api.CodeForbidden, "%s may not change settings of tenants: use a key of tenant * with the role admin", c.Principal.Name)
	}
	if err := access.CheckTenant(name); err != nil {
		return invalid("%v", err)
	}
	return nil
}

const (
	// keepTenantsInterval is the time between two checks that each tenant has its streams.
	keepTenantsInterval = 10 * time.Second

	// openTenantTimeout bounds how long a request waits for the streams of its tenant.
	openTenantTimeout = time.Second
)

// open creates the streams of a tenant, so that its clients can publish. If NATS does not answer, Keep does so later.
func (s *Tenants) open(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(ctx, openTenantTimeout)
	defer cancel()
	if err := s.bus.OpenTenant(ctx, name); err != nil {
		s.log.Warn("tenant does not accept submissions over NATS yet, the gateway retries", "error", err, "tenant", name, "hint", "run `turnpike doctor`: NATS may be unreachable or refuse the operation")
		s.look("")
	}
}

// look makes Keep check the streams now.
func (s *Tenants) look(string) {
	select {
	case s.added <- struct{}{}:
	default:
	}
}

// Keep creates missing streams of all tenants, so that clients can publish, until ctx ends.
func (s *Tenants) Keep(ctx context.Context) {
	tick := time.NewTicker(keepTenantsInterval)
	defer tick.Stop()
	failed := false
	for {
		all, err := s.tenants.Names(ctx)
		if err == nil {
			err = s.bus.KeepTenants(ctx, append(all, s.cfg.Tenant))
		}
		if err != nil && !failed && ctx.Err() == nil {
			s.log.Warn("NATS streams of tenants not updated, the gateway retries", "error", err, "hint", "run `turnpike doctor`: the store or NATS may be unreachable or refuse the operation")
		}
		failed = err != nil
		select {
		case <-tick.C:
		case <-s.added:
		case <-ctx.Done():
			return
		}
	}
}
