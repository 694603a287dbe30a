package natsbus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Each tenant has its own streams: a server drops a message whose id a stream has seen in the last
// two minutes, and clients choose the ids of submissions and aborts. In a shared stream one tenant
// could suppress the messages of another one, exhaust its share, and evict its dead letters.

// Kinds of streams that each tenant has. Those of the intake exist before a client publishes; the
// others are created with their first message, which a gateway or a worker publishes.
const (
	kindSubmit  = "SUBMIT"
	kindControl = "CONTROL"
	kindDead    = "DEAD"
	kindEvents  = "EVENTS"
)

// intakeKinds are the kinds that clients publish to.
var intakeKinds = []string{kindSubmit, kindControl}

// kindOf maps a word of a subject to the kind of its stream.
var kindOf = map[string]string{"submit": kindSubmit, "abort": kindControl, "dead": kindDead, "events": kindEvents}

// tenantName is the pattern of internal/access. The names of other streams have none of its
// letters.
var tenantName = regexp.MustCompile(`^[a-z0-9-]{1,40}$`)

// tenantSet is what this process has found of the streams of tenants.
type tenantSet struct {
	mu     sync.Mutex
	found  map[string]bool      // streams that exist
	right  map[string]bool      // streams whose settings this process has checked
	closed map[string]time.Time // the time at which a closed stream was first seen empty
}

// streamOf returns the name of a tenant's stream.
func (b *Bus) streamOf(tenant, kind string) string {
	if tenant == "" || tenant == state.DefaultTenant {
		return b.stream(kind)
	}
	return b.stream(kind + "_" + tenant)
}

// tenantStream returns the configuration of a tenant's stream. Each of the first 64 tenants gets a
// quarter of the default tenant's limit. Whenever the number of tenants doubles, the share of new
// ones is halved: a server reserves the maximum size of streams.
func (b *Bus) tenantStream(tenant, kind string) jetstream.StreamConfig {
	var s jetstream.StreamConfig
	for _, fixed := range b.defaultStreams() {
		if fixed.Name == b.stream(kind) {
			s = fixed
		}
	}
	s.Name = b.streamOf(tenant, kind)
	s.Subjects = []string{b.subjectOf(tenant, strings.TrimPrefix(s.Subjects[0], b.subject("")))}
	if s.MaxBytes > 0 {
		b.tenants.mu.Lock()
		n := len(b.tenants.found) / len(intakeKinds)
		b.tenants.mu.Unlock()
		share := s.MaxBytes / 4
		for ; n >= fullShares; n /= 2 {
			share /= 2
		}
		s.MaxBytes = max(share, minLimit)
	}
	return s
}

// fullShares is the number of tenants that get a full share of the space for streams.
const fullShares = 64

// closedTenant returns the only subject of a closed stream, which no process publishes to.
func (b *Bus) closedTenant(tenant, kind string) []string {
	return []string{b.subjectOf(tenant, "closed", strings.ToLower(kind))}
}

// OpenTenant implements bus.Intake.
func (b *Bus) OpenTenant(ctx context.Context, tenant string) error {
	if tenant == "" || tenant == state.DefaultTenant || b.cfg.ReadOnly {
		return nil
	}
	for _, kind := range intakeKinds {
		if err := b.ensureTenant(ctx, tenant, kind); err != nil {
			return err
		}
	}
	if err := b.followTenants(ctx); err != nil {
		return err
	}
	b.tell()
	return nil
}

// CloseTenant implements bus.Intake.
func (b *Bus) CloseTenant(ctx context.Context, tenant string) error {
	if tenant == "" || tenant == state.DefaultTenant || b.cfg.ReadOnly {
		return nil
	}
	for _, kind := range intakeKinds {
		s, err := b.js.Stream(ctx, b.streamOf(tenant, kind))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("close tenant %s: %w", tenant, err)
		}
		cfg := s.CachedInfo().Config
		cfg.Subjects = b.closedTenant(tenant, kind)
		if _, err := b.js.UpdateStream(ctx, cfg); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("close stream %s: %w", cfg.Name, err)
		}
		b.tenants.mu.Lock()
		delete(b.tenants.right, cfg.Name)
		b.tenants.mu.Unlock()
	}
	return nil
}

// KeepTenants implements bus.Intake.
func (b *Bus) KeepTenants(ctx context.Context, tenants []string) error {
	if b.cfg.ReadOnly {
		return nil
	}
	if err := b.followTenants(ctx); err != nil {
		return err
	}
	b.tenants.mu.Lock()
	found, right := maps.Clone(b.tenants.found), maps.Clone(b.tenants.right)
	b.tenants.mu.Unlock()
	all, created := errgroup.Group{}, false
	all.SetLimit(sideBySide)
	wanted := map[string]bool{}
	for _, tenant := range tenants {
		if tenant == "" || tenant == state.DefaultTenant {
			continue
		}
		for _, kind := range intakeKinds {
			name := b.streamOf(tenant, kind)
			wanted[name] = true
			if !found[name] || !right[name] {
				created = created || !found[name]
				all.Go(func() error {
					if err := ctx.Err(); err != nil {
						return err
					}
					return b.ensureTenant(ctx, tenant, kind)
				})
			}
		}
	}
	err := all.Wait()
	for _, kind := range intakeKinds {
		for name := range found {
			tenant, ok := strings.CutPrefix(name, b.stream(kind+"_"))
			if !ok || wanted[name] {
				continue
			}
			gone, dropErr := b.dropClosed(ctx, tenant, kind)
			err = errors.Join(err, dropErr)
			created = created || gone
		}
	}
	if created {
		err = errors.Join(err, b.followTenants(ctx))
		b.tell()
	}
	return err
}

// closedFor is the time that a closed stream of a tenant must be empty before it is deleted.
const closedFor = 10 * time.Second

// dropClosed deletes a stream that is closed and empty, and reports whether it did.
func (b *Bus) dropClosed(ctx context.Context, tenant, kind string) (gone bool, err error) {
	s, err := b.js.Stream(ctx, b.streamOf(tenant, kind))
	if err != nil {
		return errors.Is(err, jetstream.ErrStreamNotFound), notFoundIsFine(err)
	}
	info := s.CachedInfo()
	b.tenants.mu.Lock()
	since, seen := b.tenants.closed[info.Config.Name]
	switch empty := slices.Equal(info.Config.Subjects, b.closedTenant(tenant, kind)) && info.State.Msgs == 0; {
	case !empty:
		delete(b.tenants.closed, info.Config.Name)
	case !seen:
		since = time.Now()
		b.tenants.closed[info.Config.Name] = since
		fallthrough
	default:
		gone = time.Since(since) >= closedFor
	}
	b.tenants.mu.Unlock()
	if !gone {
		return false, nil
	}
	if err := notFoundIsFine(b.js.DeleteStream(ctx, info.Config.Name)); err != nil {
		return false, fmt.Errorf("delete stream %s: %w", info.Config.Name, err)
	}
	b.tenants.mu.Lock()
	defer b.tenants.mu.Unlock()
	delete(b.tenants.closed, info.Config.Name)
	delete(b.tenants.right, info.Config.Name)
	return true, nil
}

func notFoundIsFine(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	return err
}

// ensureTenant creates a stream of a tenant, or reopens a closed one, with its consumer. Concurrent
// calls share one request.
func (b *Bus) ensureTenant(ctx context.Context, tenant, kind string) error {
	name := b.streamOf(tenant, kind)
	ctx = context.WithoutCancel(ctx) // the context is that of the first caller
	_, err, _ := b.restoring.Do(name, func() (any, error) {
		ctx, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		if err := b.ensureTenantStream(ctx, b.tenantStream(tenant, kind), b.closedTenant(tenant, kind)); err != nil {
			return nil, err
		}
		if slices.Contains(intakeKinds, kind) {
			if err := b.ensureConsumer(ctx, b.gateway(tenant, kind)); err != nil {
				return nil, err
			}
		}
		b.tenants.mu.Lock()
		defer b.tenants.mu.Unlock()
		b.tenants.right[name] = true
		return nil, nil
	})
	return err
}

func (b *Bus) ensureTenantStream(ctx context.Context, want jetstream.StreamConfig, closed []string) error {
	s, err := b.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return b.createTenant(ctx, want)
	}
	if err != nil {
		return fmt.Errorf("open stream %s: %w", want.Name, err)
	}
	if have := s.CachedInfo().Config; slices.Equal(have.Subjects, closed) {
		have.Subjects = want.Subjects
		if _, err := b.js.UpdateStream(ctx, have); err != nil {
			return fmt.Errorf("open stream %s: %w", want.Name, err)
		}
	}
	if err := b.ensureStream(ctx, want); err != nil {
		return err
	}
	b.limitTo(ctx, []jetstream.StreamConfig{want})
	return nil
}

// createTenant creates a stream with its limit if that leaves some space for others, else without
// one. Check reports that.
func (b *Bus) createTenant(ctx context.Context, want jetstream.StreamConfig) error {
	limit := want.MaxBytes
	if limit > 0 {
		want.MaxBytes += reserve
	}
	_, err := b.js.CreateStream(ctx, want)
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && limit > 0 && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		b.log.Warn("stream has no limit", "error", api, "stream", want.Name, "max_bytes", limit, "hint", "raise max_file_store of NATS, or lower TURNPIKE_SUBMIT_MIB, TURNPIKE_CONTROL_MIB and TURNPIKE_DEAD_MIB")
		limit, want.MaxBytes = -1, -1
		_, err = b.js.CreateStream(ctx, want)
	}
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was faster
		return fmt.Errorf("create stream %s: %w", want.Name, err)
	}
	if err == nil && limit > 0 {
		want.MaxBytes = limit
		b.update(ctx, want)
	}
	return nil
}

// prepare creates the stream of a tenant that a subject belongs to, unless this process knows that
// it exists. The server does not report a missing stream if a client listens to the subject.
func (b *Bus) prepare(ctx context.Context, subject string) error {
	tenant, kind := b.tenantKind(subject)
	if kind == "" {
		return nil
	}
	b.tenants.mu.Lock()
	right := b.tenants.right[b.streamOf(tenant, kind)]
	b.tenants.mu.Unlock()
	if right {
		return nil
	}
	return b.ensureTenant(ctx, tenant, kind)
}

// doubt makes prepare check the stream of a subject again.
func (b *Bus) doubt(subject string) {
	if tenant, kind := b.tenantKind(subject); kind != "" {
		b.tenants.mu.Lock()
		defer b.tenants.mu.Unlock()
		delete(b.tenants.right, b.streamOf(tenant, kind))
	}
}

// tenantKind returns the tenant of a subject and the kind of its stream. The kind is empty if the
// tenant has none for it, or is the default tenant.
func (b *Bus) tenantKind(subject string) (tenant, kind string) {
	tenant = b.tenantOf(subject)
	if tenant == state.DefaultTenant {
		return tenant, ""
	}
	word, _, _ := strings.Cut(strings.TrimPrefix(subject, b.subjectOf(tenant, "")), ".")
	return tenant, kindOf[word]
}

// followTenants finds the streams of tenants, and takes messages from those of the intake.
func (b *Bus) followTenants(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	found := map[string]bool{}
	names := b.js.StreamNames(ctx)
	for name := range names.Name() {
		for _, kind := range intakeKinds {
			if tenant, ok := strings.CutPrefix(name, b.stream(kind+"_")); ok && tenantName.MatchString(tenant) {
				found[name] = true
			}
		}
	}
	if err := names.Err(); err != nil {
		return fmt.Errorf("list streams: %w", err)
	}
	b.adopting.Lock()
	defer b.adopting.Unlock()
	b.tenants.mu.Lock()
	same := maps.Equal(found, b.tenants.found)
	b.tenants.found = found
	b.tenants.mu.Unlock()
	if same {
		return nil
	}
	for p, kind := range b.intakes {
		if err := p.serve(b.intakeSpecs(kind)); err != nil && !errors.Is(err, bus.ErrClosed) {
			return err
		}
	}
	return nil
}

// tenantTicks is the number of times a process reads the layout before it looks for new tenants
// without a hint.
const tenantTicks = 5

// lookForTenants finds the streams of tenants if this process takes their messages.
func (b *Bus) lookForTenants(ctx context.Context) {
	b.adopting.Lock()
	takes := len(b.intakes) > 0
	b.adopting.Unlock()
	if !takes {
		return
	}
	if err := b.followTenants(ctx); err != nil {
		b.log.Debug("streams of tenants not listed", "error", err) // it looks again
	}
}

// intakeSpecs returns the consumers of a kind, one per tenant.
func (b *Bus) intakeSpecs(kind string) []consumerSpec {
	specs := []consumerSpec{b.gateway(state.DefaultTenant, kind)}
	b.tenants.mu.Lock()
	defer b.tenants.mu.Unlock()
	for name := range b.tenants.found {
		if tenant, ok := strings.CutPrefix(name, b.stream(kind+"_")); ok {
			specs = append(specs, b.gateway(tenant, kind))
		}
	}
	return specs
}

// intake opens a queue of a kind, for all tenants.
func (b *Bus) intake(ctx context.Context, kind string) (bus.Queue, error) {
	if err := b.followTenants(ctx); err != nil {
		return nil, err
	}
	b.adopting.Lock()
	defer b.adopting.Unlock()
	p, err := b.pull(ctx, b.intakeSpecs(kind), intakeBuffer)
	if err != nil {
		return nil, err
	}
	b.intakes[p] = kind
	return queue{p}, nil
}

// Close implements bus.Queue.
func (q queue) Close() error {
	q.b.adopting.Lock()
	delete(q.b.intakes, q.puller)
	q.b.adopting.Unlock()
	return q.puller.Close()
}
