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
	"golang.org/x/sync/singleflight"

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

// tenantStreams are the streams of all tenants but the default one, and the queues of the intake that
// this process reads.
type tenantStreams struct {
	*connection

	restoring singleflight.Group

	adopting sync.Mutex         // guards queues, and is held while found changes
	queues   map[*puller]string // the kind of each

	creating sync.Mutex // held while a stream is created: a server checks its space for one at a time only

	mu     sync.Mutex
	known  int                  // tenants, by the latest KeepTenants
	halved int                  // how often shares were halved because the server had no space for them
	found  map[string]bool      // streams that exist
	right  map[string]bool      // streams whose settings this process has checked
	closed map[string]time.Time // the time at which a closed stream was first seen empty
}

func newTenantStreams(conn *connection) *tenantStreams {
	return &tenantStreams{connection: conn, queues: map[*puller]string{}, right: map[string]bool{}, closed: map[string]time.Time{}}
}

// tenantStream returns the configuration of a tenant's stream. A new stream gets a quarter of the limit of the
// default tenant's stream of that kind, or no limit if that has none. The share is halved from 64 tenants on, again
// from 128, from 256 and so on, and each time this process found no space for another stream, because a server
// reserves the maximum size of streams. It is never less than minLimit.
func (ts *tenantStreams) tenantStream(tenant, kind string) jetstream.StreamConfig {
	var s jetstream.StreamConfig
	for _, fixed := range ts.defaultStreams() {
		if fixed.Name == ts.stream(kind) {
			s = fixed
		}
	}
	s.Name = ts.streamOf(tenant, kind)
	s.Subjects = []string{ts.subjectOf(tenant, strings.TrimPrefix(s.Subjects[0], ts.subject("")))}
	if s.MaxBytes > 0 {
		ts.mu.Lock()
		n, halved := max(ts.known, len(ts.found)/len(intakeKinds)), ts.halved
		ts.mu.Unlock()
		share := s.MaxBytes / 4 >> halved
		for ; n >= fullShares; n /= 2 {
			share /= 2
		}
		s.MaxBytes = max(share, minLimit)
	}
	return s
}

// fullShares is the number of tenants from which on each gets only a part of a full share of the space for streams.
const fullShares = 64

// OpenTenant implements bus.Intake.
func (ts *tenantStreams) OpenTenant(ctx context.Context, tenant string) error {
	if tenant == "" || tenant == state.DefaultTenant || ts.cfg.ReadOnly {
		return nil
	}
	for _, kind := range intakeKinds {
		if err := ts.ensureTenant(ctx, tenant, kind); err != nil {
			return err
		}
	}
	if err := ts.followTenants(ctx); err != nil {
		return err
	}
	ts.tell()
	return nil
}

// CloseTenant implements bus.Intake.
func (ts *tenantStreams) CloseTenant(ctx context.Context, tenant string) error {
	if tenant == "" || tenant == state.DefaultTenant || ts.cfg.ReadOnly {
		return nil
	}
	for _, kind := range intakeKinds {
		s, err := ts.js.Stream(ctx, ts.streamOf(tenant, kind))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("close tenant %s: %w", tenant, err)
		}
		cfg := s.CachedInfo().Config
		cfg.Subjects = ts.closedTenant(tenant, kind)
		if _, err := ts.js.UpdateStream(ctx, cfg); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("close stream %s: %w", cfg.Name, err)
		}
		ts.mu.Lock()
		delete(ts.right, cfg.Name)
		ts.mu.Unlock()
	}
	return nil
}

// KeepTenants implements bus.Intake.
func (ts *tenantStreams) KeepTenants(ctx context.Context, tenants []string) error {
	if ts.cfg.ReadOnly {
		return nil
	}
	if err := ts.followTenants(ctx); err != nil {
		return err
	}
	ts.mu.Lock()
	ts.known = len(tenants)
	found, right := maps.Clone(ts.found), maps.Clone(ts.right)
	ts.mu.Unlock()
	all, created := errgroup.Group{}, false
	all.SetLimit(sideBySide)
	wanted := map[string]bool{}
	for _, tenant := range tenants {
		if tenant == "" || tenant == state.DefaultTenant {
			continue
		}
		for _, kind := range intakeKinds {
			name := ts.streamOf(tenant, kind)
			wanted[name] = true
			if !found[name] || !right[name] {
				created = created || !found[name]
				all.Go(func() error {
					if err := ctx.Err(); err != nil {
						return err
					}
					return ts.ensureTenant(ctx, tenant, kind)
				})
			}
		}
	}
	err := all.Wait()
	for _, kind := range intakeKinds {
		for name := range found {
			tenant, ok := strings.CutPrefix(name, ts.stream(kind+"_"))
			if !ok || wanted[name] {
				continue
			}
			gone, dropErr := ts.dropClosed(ctx, tenant, kind)
			err = errors.Join(err, dropErr)
			created = created || gone
		}
	}
	if created {
		err = errors.Join(err, ts.followTenants(ctx))
		ts.tell()
	}
	return err
}

// closedFor is the time that a closed stream of a tenant must be empty before it is deleted.
const closedFor = 10 * time.Second

// dropClosed deletes a stream that is closed and empty, and reports whether it did.
func (ts *tenantStreams) dropClosed(ctx context.Context, tenant, kind string) (gone bool, err error) {
	s, err := ts.js.Stream(ctx, ts.streamOf(tenant, kind))
	if err != nil {
		return errors.Is(err, jetstream.ErrStreamNotFound), notFoundIsFine(err)
	}
	info := s.CachedInfo()
	ts.mu.Lock()
	since, seen := ts.closed[info.Config.Name]
	switch empty := slices.Equal(info.Config.Subjects, ts.closedTenant(tenant, kind)) && info.State.Msgs == 0; {
	case !empty:
		delete(ts.closed, info.Config.Name)
	case !seen:
		since = time.Now()
		ts.closed[info.Config.Name] = since
		fallthrough
	default:
		gone = time.Since(since) >= closedFor
	}
	ts.mu.Unlock()
	if !gone {
		return false, nil
	}
	if err := notFoundIsFine(ts.js.DeleteStream(ctx, info.Config.Name)); err != nil {
		return false, fmt.Errorf("delete stream %s: %w", info.Config.Name, err)
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	delete(ts.closed, info.Config.Name)
	delete(ts.right, info.Config.Name)
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
func (ts *tenantStreams) ensureTenant(ctx context.Context, tenant, kind string) error {
	name := ts.streamOf(tenant, kind)
	ctx = context.WithoutCancel(ctx) // the context is that of the first caller
	_, err, _ := ts.restoring.Do(name, func() (any, error) {
		ctx, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		if err := ts.ensureTenantStream(ctx, tenant, kind); err != nil {
			return nil, err
		}
		if slices.Contains(intakeKinds, kind) {
			if err := ts.ensureConsumer(ctx, ts.gateway(tenant, kind)); err != nil {
				return nil, err
			}
		}
		ts.mu.Lock()
		defer ts.mu.Unlock()
		ts.right[name] = true
		return nil, nil
	})
	return err
}

func (ts *tenantStreams) ensureTenantStream(ctx context.Context, tenant, kind string) error {
	want := ts.tenantStream(tenant, kind)
	s, err := ts.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return ts.createTenant(ctx, want, func() int64 {
			if !ts.halveShares(ctx) {
				return 0
			}
			return ts.tenantStream(tenant, kind).MaxBytes
		})
	}
	if err != nil {
		return openError("stream "+want.Name, err)
	}
	if have := s.CachedInfo().Config; slices.Equal(have.Subjects, ts.closedTenant(tenant, kind)) {
		have.Subjects = want.Subjects
		if _, err := ts.js.UpdateStream(ctx, have); err != nil {
			return openError("stream "+want.Name, err)
		}
	}
	if err := ts.ensureStream(ctx, want); err != nil {
		return err
	}
	ts.limitTo(ctx, []jetstream.StreamConfig{want})
	return nil
}

// createTenant creates a stream with its limit if that leaves some space for others. If the server refuses that, it
// tries the limits that less returns, until that is 0. Then it creates the stream without a limit. Check reports such
// streams of submissions, aborts and files. A stream that another process has created meanwhile stays as it is.
func (ts *tenantStreams) createTenant(ctx context.Context, want jetstream.StreamConfig, less func() int64) error {
	ts.creating.Lock()
	defer ts.creating.Unlock()
	limit := want.MaxBytes
	create := func() (err error) {
		cfg := want
		if cfg.MaxBytes = limit; limit > 0 {
			cfg.MaxBytes += reserve
		}
		_, err = ts.js.CreateStream(ctx, cfg)
		return err
	}
	err := create()
	for limit > 0 && isFull(err) {
		smaller := less()
		if smaller == 0 {
			break
		}
		limit = smaller
		err = create()
	}
	if limit > 0 && isFull(err) {
		ts.log.Warn("size limit of the tenant's stream not set", "error", err, "stream", want.Name, "max_bytes", limit, "hint", "raise max_file_store of NATS, or lower TURNPIKE_SUBMIT_MIB, TURNPIKE_CONTROL_MIB, TURNPIKE_DEAD_MIB, TURNPIKE_EVENTS_MIB and TURNPIKE_FILES_MIB (in Go, NATS.Limits)")
		limit = -1
		err = create()
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another process was faster
		return nil
	}
	if err != nil {
		return openError("stream "+want.Name, err)
	}
	if want.MaxBytes = limit; limit > 0 {
		ts.update(ctx, want)
	}
	return nil
}

// isFull reports whether the server or the account refused to reserve more space, or gave another reason
// that a stream without a limit may not have.
func isFull(err error) bool {
	_, ok := errors.AsType[*jetstream.APIError](err)
	return ok && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse)
}

// halveShares halves the share that this process gives each tenant, and tries to lower the limits of existing streams
// of tenants other than the default one, but not below what a stream holds. It reports whether a share became smaller.
func (ts *tenantStreams) halveShares(ctx context.Context) bool {
	share := func() (total int64) {
		for _, kind := range ts.limitedKinds() {
			total += ts.tenantStream("", kind).MaxBytes
		}
		return total
	}
	before := share()
	ts.mu.Lock()
	ts.halved++
	ts.mu.Unlock()
	if share() == before {
		ts.mu.Lock()
		ts.halved--
		ts.mu.Unlock()
		return false
	}
	freed := int64(0)
	streams := ts.js.ListStreams(ctx)
	for s := range streams.Info() {
		for _, kind := range ts.limitedKinds() {
			tenant, ok := strings.CutPrefix(s.Config.Name, ts.stream(kind+"_"))
			if !ok || !tenantName.MatchString(tenant) {
				continue
			}
			cfg := s.Config
			cfg.MaxBytes = max(ts.tenantStream(tenant, kind).MaxBytes, int64(s.State.Bytes)) //nolint:gosec // the size of a stream
			if cfg.MaxBytes < s.Config.MaxBytes && ts.update(ctx, cfg) {
				freed += s.Config.MaxBytes - cfg.MaxBytes
			}
		}
	}
	if err := streams.Err(); err != nil {
		ts.log.Debug("streams of tenants not listed", "error", err) // the caller tries again with a smaller share
	}
	if freed == 0 {
		return true
	}
	ts.log.Info("size limits of tenants' streams lowered, since max_file_store of NATS is used up", "freed_bytes", freed, "hint", "raise max_file_store of NATS")
	return true
}

// limitedKinds returns the kinds of tenants' streams that have a limit.
func (ts *tenantStreams) limitedKinds() (kinds []string) {
	for _, s := range ts.defaultStreams() {
		if s.MaxBytes > 0 {
			kinds = append(kinds, strings.TrimPrefix(s.Name, ts.stream("")))
		}
	}
	return kinds
}

// prepare creates or reopens the stream that a subject of a tenant other than the default one belongs to, unless this
// process has checked it and no publish to it has failed since. The server would not report a missing stream if a
// client listens to the subject.
func (ts *tenantStreams) prepare(ctx context.Context, subject string) error {
	tenant, kind := ts.tenantKind(subject)
	if kind == "" {
		return nil
	}
	ts.mu.Lock()
	right := ts.right[ts.streamOf(tenant, kind)]
	ts.mu.Unlock()
	if right {
		return nil
	}
	return ts.ensureTenant(ctx, tenant, kind)
}

// doubt makes prepare check the stream of a subject again.
func (ts *tenantStreams) doubt(subject string) {
	if tenant, kind := ts.tenantKind(subject); kind != "" {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		delete(ts.right, ts.streamOf(tenant, kind))
	}
}

// followTenants finds the streams of tenants, and takes messages from those of the intake.
func (ts *tenantStreams) followTenants(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	found := map[string]bool{}
	names := ts.js.StreamNames(ctx)
	for name := range names.Name() {
		for _, kind := range intakeKinds {
			if tenant, ok := strings.CutPrefix(name, ts.stream(kind+"_")); ok && tenantName.MatchString(tenant) {
				found[name] = true
			}
		}
	}
	if err := names.Err(); err != nil {
		return fmt.Errorf("list streams: %w", err)
	}
	ts.adopting.Lock()
	defer ts.adopting.Unlock()
	ts.mu.Lock()
	same := maps.Equal(found, ts.found)
	ts.found = found
	ts.mu.Unlock()
	if same {
		return nil
	}
	for p, kind := range ts.queues {
		if err := p.serve(ts.intakeSpecs(kind)); err != nil && !errors.Is(err, bus.ErrClosed) {
			return err
		}
	}
	return nil
}

// exists reports whether followTenants has found a stream.
func (ts *tenantStreams) exists(stream string) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.found[stream]
}

// tenantTicks is the number of times a process reads the layout before it looks for new tenants
// without a hint.
const tenantTicks = 5

// lookForTenants finds the streams of tenants if this process takes their messages.
func (ts *tenantStreams) lookForTenants(ctx context.Context) {
	ts.adopting.Lock()
	takes := len(ts.queues) > 0
	ts.adopting.Unlock()
	if !takes {
		return
	}
	if err := ts.followTenants(ctx); err != nil {
		ts.log.Debug("streams of tenants not listed", "error", err) // it looks again
	}
}

// intakeSpecs returns the consumers of a kind, one per tenant.
func (ts *tenantStreams) intakeSpecs(kind string) []consumerSpec {
	specs := []consumerSpec{ts.gateway(state.DefaultTenant, kind)}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for name := range ts.found {
		if tenant, ok := strings.CutPrefix(name, ts.stream(kind+"_")); ok {
			specs = append(specs, ts.gateway(tenant, kind))
		}
	}
	return specs
}

// intake opens a queue of a kind, for all tenants.
func (b *Bus) intake(ctx context.Context, kind string) (bus.Queue, error) {
	if err := b.followTenants(ctx); err != nil {
		return nil, err
	}
	b.tenantStreams.adopting.Lock()
	defer b.tenantStreams.adopting.Unlock()
	p, err := b.pull(ctx, b.intakeSpecs(kind), intakeBuffer)
	if err != nil {
		return nil, err
	}
	b.tenantStreams.queues[p] = kind
	return queue{p}, nil
}

// Close implements bus.Queue.
func (q queue) Close() error {
	intake := q.b.tenantStreams
	intake.adopting.Lock()
	delete(intake.queues, q.puller)
	intake.adopting.Unlock()
	return q.puller.Close()
}
