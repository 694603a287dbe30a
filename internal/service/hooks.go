package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/hookin"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// maxHooks is the maximum number of hooks of a tenant.
	maxHooks = 200

	// maxHookSecrets is the maximum number of secrets that are valid for a hook at once.
	maxHookSecrets = 3

	// maxHookMetadata is the maximum number of metadata expressions of a hook or a trigger.
	maxHookMetadata = 20

	// hookFresh is the age at which a gateway reads the settings of a hook again.
	hookFresh = 2 * time.Second

	// maxFreshHooks is the maximum number of cached hooks, including unknown ones.
	maxFreshHooks = 10_000
)

// metadataDelivery is the key of a run's metadata with the id of the delivery that started the run.
const metadataDelivery = "delivery"

// storedHook is the document of a hook.
type storedHook struct {
	api.HookSettings

	UpdatedAt state.Time `json:"updated_at"`
	UpdatedBy string     `json:"updated_by"`
}

// Hooks are the hooks of a tenant: URLs to which other systems deliver webhooks.
type Hooks struct {
	*deliveries

	mu    sync.Mutex
	fresh map[hookKey]readHook
}

type hookKey struct{ tenant, name string }

// readHook is a cached hook. An unknown hook has no data and no mapping.
type readHook struct {
	data    json.RawMessage
	stored  storedHook
	mapping *mapping
	limiter *limiter // of all settings that the hook has had
	at      time.Time
}

func newHooks(d *deliveries) *Hooks {
	return &Hooks{deliveries: d, fresh: map[hookKey]readHook{}}
}

// resourceName matches the names of hooks, triggers and schedules.
var resourceName = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

func hookNotFound(name string) error {
	return notFound(api.CodeHookNotFound, "there is no hook %.64q: list them with GET /v1/hooks", name)
}

// Put creates a hook, or replaces its settings. Other gateways use the new settings within 2 s (hookFresh). first
// reports whether the hook is new.
func (s *Hooks) Put(ctx context.Context, c access.Caller, name string, settings api.HookSettings) (h api.Hook, first bool, err error) {
	if err := s.permit(ctx, c, PutHook); err != nil {
		return api.Hook{}, false, err
	}
	h, first, err = s.put(ctx, c, name, settings)
	s.note(ctx, c, PutHook, name, err)
	return h, first, err
}

func (s *Hooks) put(ctx context.Context, c access.Caller, name string, settings api.HookSettings) (h api.Hook, first bool, err error) {
	if !resourceName.MatchString(name) {
		return h, false, invalid("hook %.80q: the name is not valid: use 1 to 64 lowercase letters, digits and hyphens", name)
	}
	if _, err := compileHook(settings); err != nil {
		return h, false, invalid("%v", err)
	}
	if _, err := s.secrets(ctx, c.Tenant, settings); err != nil {
		return h, false, err
	}
	names, err := s.store.DocumentNames(ctx, state.HooksOf(c.Tenant))
	if err != nil {
		return h, false, err
	}
	first = !slices.Contains(names, name)
	if first && len(names) >= maxHooks {
		return h, false, problem(conflict, api.CodeTooManyHooks, "the tenant has %d hooks, at most %d are allowed: delete one that is not in use", len(names), maxHooks)
	}
	now, err := s.clock.now(ctx)
	if err != nil {
		return h, false, err
	}
	stored := storedHook{HookSettings: settings, UpdatedAt: now, UpdatedBy: c.Principal.Name}
	data, err := json.Marshal(stored)
	if err != nil {
		return h, false, err
	}
	if err := s.store.PutDocument(ctx, state.HooksOf(c.Tenant), name, data); err != nil {
		return h, false, err
	}
	s.refresh(hookKey{c.Tenant, name})
	h = s.hookOf(c.Tenant, name, stored)
	h.Warnings, err = s.warnings(ctx, c.Tenant, settings.Run)
	return h, first, err
}

func (s *Hooks) hookOf(tenant, name string, stored storedHook) api.Hook {
	path := "/v1/hooks/" + name
	if tenant != s.cfg.Tenant {
		path = "/v1/hooks/" + tenant + "/" + name
	}
	return api.Hook{Name: name, Path: path, HookSettings: stored.HookSettings, UpdatedAt: stored.UpdatedAt, UpdatedBy: stored.UpdatedBy}
}

// Get returns a hook. The problem is hook_not_found if it does not exist.
func (s *Hooks) Get(ctx context.Context, c access.Caller, name string) (api.Hook, error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Hook{}, err
	}
	h, _, err := s.read(ctx, c.Tenant, name)
	if errors.Is(err, state.ErrNotFound) {
		err = hookNotFound(name)
	}
	return h, err
}

// read returns a hook and the size of its document.
func (s *Hooks) read(ctx context.Context, tenant, name string) (api.Hook, int, error) {
	if !resourceName.MatchString(name) {
		return api.Hook{}, 0, state.ErrNotFound
	}
	data, err := s.store.Document(ctx, state.HooksOf(tenant), name)
	if err != nil {
		return api.Hook{}, 0, err
	}
	var stored storedHook
	if err := json.Unmarshal(data, &stored); err != nil {
		return api.Hook{}, 0, fmt.Errorf("decode hook %s: %w", name, err)
	}
	return s.hookOf(tenant, name, stored), len(data), nil
}

// List returns a page of the hooks of the caller's tenant, by name.
func (s *Hooks) List(ctx context.Context, c access.Caller, p Page) (api.Page[api.Hook], error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Page[api.Hook]{}, err
	}
	names, err := s.store.DocumentNames(ctx, state.HooksOf(c.Tenant))
	if err != nil {
		return api.Page[api.Hook]{}, err
	}
	return readPage(ctx, s.core, p, names, func(ctx context.Context, name string) (api.Hook, int, error) { return s.read(ctx, c.Tenant, name) })
}

// Delete deletes a hook. The runs that it has started continue. The problem is hook_not_found if it does not exist.
func (s *Hooks) Delete(ctx context.Context, c access.Caller, name string) error {
	if err := s.permit(ctx, c, DeleteHook); err != nil {
		return err
	}
	_, _, err := s.read(ctx, c.Tenant, name)
	if err == nil {
		err = s.store.DeleteDocument(ctx, state.HooksOf(c.Tenant), name)
	}
	if errors.Is(err, state.ErrNotFound) {
		err = hookNotFound(name)
	}
	s.forget(hookKey{c.Tenant, name})
	s.note(ctx, c, DeleteHook, name, err)
	return err
}

// removeAll deletes the hooks of a tenant.
func (s *Hooks) removeAll(ctx context.Context, tenant string) error {
	return s.eachDocument(ctx, state.HooksOf(tenant), func(ctx context.Context, name string) error {
		s.forget(hookKey{tenant, name})
		return s.store.DeleteDocument(ctx, state.HooksOf(tenant), name)
	})
}

// refresh makes the next delivery read the settings of a hook again.
func (s *Hooks) refresh(key hookKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, known := s.fresh[key]; known {
		r.at = time.Time{}
		s.fresh[key] = r
	}
}

func (s *Hooks) forget(key hookKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.fresh, key)
}

const secretScheme = "secret://"

// secrets returns the values of the secrets of a hook. The error is a problem if the gateway lacks a secret or the
// tenant may not use it; any other error means that the store failed.
func (s *Hooks) secrets(ctx context.Context, tenant string, settings api.HookSettings) ([]string, error) {
	if s.cfg.Secret == nil {
		return nil, invalid("secret: this gateway has no secrets: set TURNPIKE_SECRETS_DIR or TURNPIKE_SECRET_<NAME> on the gateways")
	}
	allowed, err := s.tenants.Settings(ctx, tenant)
	if err != nil {
		return nil, err
	}
	p := policy.Of(tenant, allowed)
	var values []string
	for _, ref := range settings.Secret {
		name := strings.TrimPrefix(ref, secretScheme)
		value, err := s.cfg.Secret(tenant, name, p)
		if _, refused := errors.AsType[*policy.RefusedError](err); refused {
			return nil, invalid("secret: %v", err)
		}
		if err != nil {
			return nil, invalid("secret: %v. The gateways read the secrets of hooks", err)
		}
		values = append(values, value)
	}
	return values, nil
}

// checkSigner refuses a webhook that names a secret which a stored hook of the tenant names too: the receiver of the
// webhook could deliver the signed events to that hook, and so start runs that the caller may not start. It does not
// compare the values of secrets. The error names the field, with prefix before it.
func (k *core) checkSigner(ctx context.Context, tenant, prefix string, w state.Webhook) error {
	if len(w.Secret) == 0 {
		return nil
	}
	hooks, err := k.store.Documents(ctx, state.HooksOf(tenant))
	if err != nil {
		return err
	}
	for name, data := range hooks {
		var stored storedHook
		if err := json.Unmarshal(data, &stored); err != nil {
			return fmt.Errorf("decode hook %s: %w", name, err)
		}
		for _, ref := range w.Secret {
			if slices.Contains(stored.Secret, ref) {
				return problem(denied, api.CodeNotPermitted, "%ssecret: hook %s accepts deliveries signed with %s, so a webhook must not sign events with it: name another secret", prefix, name, ref)
			}
		}
	}
	return nil
}

// lookUp returns the hook of a delivery, as it was stored at most hookFresh ago. Its mapping is nil if the hook does
// not exist.
func (s *Hooks) lookUp(ctx context.Context, key hookKey) (readHook, error) {
	if access.CheckTenant(key.tenant) != nil || !resourceName.MatchString(key.name) {
		return readHook{}, nil
	}
	now := time.Now()
	s.mu.Lock()
	r, known := s.fresh[key]
	s.mu.Unlock()
	if known && now.Sub(r.at) < hookFresh {
		return r, nil
	}
	data, err := s.store.Document(ctx, state.HooksOf(key.tenant), key.name)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return readHook{}, err
	}
	if err != nil {
		r = readHook{}
	} else if r.mapping == nil || !bytes.Equal(r.data, data) {
		var stored storedHook
		if err := json.Unmarshal(data, &stored); err != nil {
			return readHook{}, fmt.Errorf("decode hook %s: %w", key.name, err)
		}
		m, err := compileHook(stored.HookSettings)
		if err != nil { // of a newer build
			return readHook{}, fmt.Errorf("compile hook %s: %w", key.name, err)
		}
		r = readHook{data: data, stored: stored, mapping: m}
	}
	r.at = now
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.limiter = s.fresh[key].limiter; r.limiter == nil && r.mapping != nil {
		r.limiter = &limiter{}
	}
	if len(s.fresh) >= maxFreshHooks { // senders can name any number of unknown hooks: those in use keep their limiters
		maps.DeleteFunc(s.fresh, func(_ hookKey, r readHook) bool { return r.mapping == nil || now.Sub(r.at) > rateWindow+hookFresh })
	}
	if len(s.fresh) >= maxFreshHooks {
		clear(s.fresh)
	}
	s.fresh[key] = r
	return r, nil
}

// compileHook checks the settings of a hook, and compiles its expressions.
func compileHook(h api.HookSettings) (*mapping, error) {
	if err := checkHook(h); err != nil {
		return nil, err
	}
	return compileMapping(sourceHook, h.Filter, h.Run, h.Signal)
}

// checkHook returns an error if the scheme, the secrets or the rate of a hook are not valid.
func checkHook(h api.HookSettings) error {
	if !slices.Contains(hookin.Schemes(), hookin.Scheme(h.Verify)) {
		return fmt.Errorf("verify is %.40q: use one of %s", h.Verify, words(hookin.Schemes()))
	}
	switch n := len(h.Secret); {
	case n == 0:
		return fmt.Errorf("secret is missing: write a reference such as %sGITHUB_WEBHOOK", secretScheme)
	case n > maxHookSecrets:
		return fmt.Errorf("secret has %d references: give 1 to %d", n, maxHookSecrets)
	}
	for _, ref := range h.Secret {
		if name, ok := strings.CutPrefix(ref, secretScheme); !ok || name == "" {
			return fmt.Errorf("secret is not a reference: write one such as %sGITHUB_WEBHOOK, never the secret itself", secretScheme)
		}
	}
	return checkRate(h.MaxPerMinute)
}

func checkHookRun(source sourceKind, r api.HookRun) error {
	if r.Agent == "" {
		return errors.New("run.agent is missing: name an agent")
	}
	if r.Priority != "" && !slices.Contains(state.Priorities(), state.Priority(r.Priority)) {
		return fmt.Errorf("run.priority is %q: use high, normal or low", r.Priority)
	}
	if n := len(r.Metadata); n > maxHookMetadata {
		return fmt.Errorf("run.metadata has %d entries, at most %d are allowed: remove some", n, maxHookMetadata)
	}
	for key := range r.Metadata {
		if key == "" || len(key) > maxKey {
			return fmt.Errorf("run.metadata %.40q: the key has %d bytes: use 1 to %d", key, len(key), maxKey)
		}
		if key == string(source) || key == metadataDelivery {
			return fmt.Errorf("run.metadata.%s is reserved for Turnpike: choose another key", key)
		}
	}
	return nil
}

func checkHookSignal(s api.HookSignal, run *api.HookRun) error {
	switch {
	case s.Message == "" && s.Answer == "":
		return errors.New("signal has neither message nor answer: give one of them")
	case s.Message != "" && s.Answer != "":
		return errors.New("signal has both message and answer: remove one of them")
	case s.Mode != "" && s.Message == "":
		return errors.New("signal.mode applies to a message, and this signal has none: remove mode, or give a message")
	case !slices.Contains([]string{"", api.ModeEnqueue, api.ModeInterrupt, api.ModeReject}, s.Mode):
		return fmt.Errorf("signal.mode is %q: use %s, %s or %s", s.Mode, api.ModeEnqueue, api.ModeInterrupt, api.ModeReject)
	case run == nil && s.Run == "":
		return errors.New("signal.run is missing: give an expression for the id of the run that gets the signal, or add run with a key")
	case run != nil && s.Run != "":
		return errors.New("both signal.run and run are given: remove one; with run, the signal goes to the run with the key run.key")
	case run != nil && run.Key == "":
		return errors.New("run.key is missing, and signal needs it: give an expression for the key that deliveries for the same run share")
	}
	return nil
}
