package service

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// maxTriggers is the maximum number of triggers of a tenant.
	maxTriggers = 200

	// maxTriggerSubjects is the maximum number of subjects of a trigger.
	maxTriggerSubjects = 20

	// maxTriggerChanges is the number of attempts to change a trigger while others change the same one.
	maxTriggerChanges = 10

	// statusSuffix ends the name of the document with the status of a trigger. Names have no space.
	statusSuffix = " status"
)

// storedTrigger is the document of a trigger.
type storedTrigger struct {
	api.TriggerSettings

	// ID is part of the name of the consumer. A trigger that starts over has a new ID.
	ID string `json:"id"`

	// Since is the time from which the trigger reads messages if From is new, by the clock of NATS.
	Since time.Time `json:"since"`

	// Deleted reports that the trigger is being deleted: its consumer may still exist.
	Deleted bool `json:"deleted,omitempty"`

	UpdatedAt state.Time `json:"updated_at"`
	UpdatedBy string     `json:"updated_by"`
}

// Triggers start runs and send signals for the messages of JetStream streams. They have many methods
// because requests and Keep, which reads the messages, change the same documents.
type Triggers struct {
	*deliveries

	kicked   chan struct{} // holds a token if Keep must check the triggers now
	share    *shares
	outcomes *prometheus.CounterVec
	running  map[triggerKey]*runner  // used only by Keep, as are the following
	limiters map[triggerKey]*limiter // also of triggers that were stopped less than a minute ago, and may be resumed
	read     map[string]readTriggers
}

type triggerKey struct{ tenant, name string }

func newTriggers(d *deliveries) *Triggers {
	return &Triggers{
		deliveries: d, kicked: make(chan struct{}, 1), share: newShares(), running: map[triggerKey]*runner{}, limiters: map[triggerKey]*limiter{}, read: map[string]readTriggers{},
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "turnpike_trigger_deliveries_total", Help: "Messages of triggers by outcome."}, []string{"outcome"}),
	}
}

func triggerNotFound(name string) error {
	return notFound(api.CodeTriggerNotFound, "there is no trigger %.64q: list them with GET /v1/triggers", name)
}

// Put creates a trigger with its consumer, or replaces its settings. The trigger starts over if stream or from change.
// first reports whether the trigger is new.
func (s *Triggers) Put(ctx context.Context, c access.Caller, name string, settings api.TriggerSettings) (t api.Trigger, first bool, err error) {
	if err := s.permit(ctx, c, PutTrigger); err != nil {
		return api.Trigger{}, false, err
	}
	t, first, err = s.put(ctx, c, name, settings)
	s.note(ctx, c, PutTrigger, name, err)
	return t, first, err
}

func (s *Triggers) put(ctx context.Context, c access.Caller, name string, settings api.TriggerSettings) (t api.Trigger, first bool, err error) {
	if !resourceName.MatchString(name) {
		return t, false, invalid("trigger %.80q: the name is not valid: use 1 to 64 lowercase letters, digits and hyphens", name)
	}
	settings.From = cmp.Or(settings.From, api.FromNew)
	if _, err := s.compile(settings); err != nil {
		return t, false, invalid("%v", err)
	}
	if s.cfg.Streams == nil {
		return t, false, problem(conflict, api.CodeNotSupported, "triggers read streams of NATS, and this gateway runs without NATS: connect it to NATS with JetStream")
	}
	allowed, err := s.streamsOf(ctx, c.Tenant)
	if err != nil {
		return t, false, err
	}
	info, err := s.inspect(ctx, c.Tenant, allowed, settings)
	if err != nil {
		return t, false, err
	}
	now, err := s.clock.now(ctx)
	if err != nil {
		return t, false, err
	}
	for range maxTriggerChanges {
		was, raw, err := s.load(ctx, c.Tenant, name)
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return t, false, err
		}
		stored := storedTrigger{TriggerSettings: settings, ID: strings.ToLower(rand.Text()[:8]), Since: info.Now, UpdatedAt: now, UpdatedBy: c.Principal.Name}
		first = was == nil || was.Deleted
		if first {
			if err := s.checkCount(ctx, c.Tenant); err != nil {
				return t, false, err
			}
			if err := s.store.DeleteDocument(ctx, state.TriggersOf(c.Tenant), name+statusSuffix); err != nil {
				return t, false, err
			}
		} else if was.Stream == settings.Stream && was.From == settings.From {
			stored.ID, stored.Since = was.ID, was.Since
		}
		data, err := json.Marshal(stored)
		if err != nil {
			return t, false, err
		}
		// The document comes first: another gateway creates the consumer if this one dies.
		if err := s.store.ReplaceDocument(ctx, state.TriggersOf(c.Tenant), name, raw, data); errors.Is(err, state.ErrChanged) {
			continue
		} else if err != nil {
			return t, false, err
		}
		if err := s.begin(ctx, c.Tenant, name, was, stored); err != nil {
			if errors.Is(err, ErrStreamRefused) {
				err = errors.Join(s.undo(ctx, c.Tenant, name, stored, raw), invalid("stream %s: %v", settings.Stream, err))
			}
			return t, false, err
		}
		if err := s.changed(ctx, c.Tenant); err != nil {
			return t, false, err
		}
		t = s.shown(name, stored, storedStatus{})
		t.Warnings, err = s.warnings(ctx, c.Tenant, settings.Run)
		return t, first, err
	}
	return t, false, contended("trigger", name)
}

// undo restores the previous document of a trigger, unless stored was replaced since.
func (s *Triggers) undo(ctx context.Context, tenant, name string, stored storedTrigger, before json.RawMessage) error {
	now, raw, err := s.load(ctx, tenant, name)
	if err != nil || now.ID != stored.ID || now.UpdatedAt != stored.UpdatedAt {
		return err
	}
	return s.store.ReplaceDocument(ctx, state.TriggersOf(tenant), name, raw, before)
}

// begin creates the consumer of a trigger that was stored, and deletes the consumer of its previous settings if that is
// another.
func (s *Triggers) begin(ctx context.Context, tenant, name string, was *storedTrigger, stored storedTrigger) error {
	if _, err := s.cfg.Streams.Open(ctx, s.consumer(tenant, name, stored)); err != nil {
		return streamError(err)
	}
	if was == nil || was.ID == stored.ID {
		return nil
	}
	return streamError(s.cfg.Streams.Remove(ctx, was.Stream, s.consumer(tenant, name, *was).Name))
}

// streamError marks an error of NATS as a *BusError; it returns ErrStreamRefused and ErrNoStream unchanged.
func streamError(err error) error {
	if err == nil || errors.Is(err, ErrStreamRefused) || errors.Is(err, ErrNoStream) {
		return err
	}
	return &BusError{err}
}

// consumer returns the specification of a trigger's consumer. Its name is unique, provided that the prefixes of
// deployments still differ when dots are replaced with underscores: names of tenants and triggers contain no
// underscore.
func (s *Triggers) consumer(tenant, name string, stored storedTrigger) ConsumerSpec {
	spec := ConsumerSpec{
		Stream: stored.Stream, Name: strings.Join([]string{strings.ReplaceAll(s.cfg.Prefix, ".", "_"), "trigger", tenant, name, stored.ID}, "_"),
		Subjects: stored.Subjects, InOrder: stored.Signal != nil,
	}
	if stored.From == api.FromNew {
		spec.From = stored.Since
	}
	return spec
}

func (s *Triggers) checkCount(ctx context.Context, tenant string) error {
	names, err := s.names(ctx, tenant)
	if err == nil && len(names) >= maxTriggers {
		err = problem(conflict, api.CodeTooManyTriggers, "the tenant has %d triggers, at most %d are allowed: delete one that is not in use", len(names), maxTriggers)
	}
	return err
}

// names returns the names of the triggers of a tenant.
func (s *Triggers) names(ctx context.Context, tenant string) ([]string, error) {
	names, err := s.store.DocumentNames(ctx, state.TriggersOf(tenant))
	return slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, statusSuffix) }), err
}

// changed makes all gateways check the triggers of a tenant.
func (s *Triggers) changed(ctx context.Context, tenant string) error {
	mark, err := json.Marshal(rand.Text())
	if err == nil {
		err = s.store.PutDocument(ctx, state.TriggersDocument, tenant, mark)
	}
	s.kick()
	return err
}

func (s *Triggers) kick() {
	select {
	case s.kicked <- struct{}{}:
	default:
	}
}

var streamName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// compile checks settings as far as possible without the stream, and compiles their expressions.
func (s *Triggers) compile(t api.TriggerSettings) (*mapping, error) {
	if !streamName.MatchString(t.Stream) {
		return nil, fmt.Errorf("stream %.140q: the name is not valid: use 1 to 128 letters, digits, _ and -", t.Stream)
	}
	if !slices.Contains([]string{"", api.FromNew, api.FromAll}, t.From) {
		return nil, fmt.Errorf("from is %.40q: use %s or %s", t.From, api.FromNew, api.FromAll)
	}
	if n := len(t.Subjects); n > maxTriggerSubjects {
		return nil, fmt.Errorf("subjects has %d entries, at most %d are allowed: remove some, or use wildcards", n, maxTriggerSubjects)
	}
	for i, subject := range t.Subjects {
		if err := policy.CheckSubject(subject); err != nil {
			return nil, fmt.Errorf("subjects[%d]: %w", i, err)
		}
		if slices.ContainsFunc(t.Subjects[:i], func(before string) bool { return policy.Overlap(before, subject) }) {
			return nil, fmt.Errorf("subjects[%d]: %.80q overlaps an earlier subject, and NATS allows each message to match only one: remove one of them", i, subject)
		}
	}
	if err := checkRate(t.MaxPerMinute); err != nil {
		return nil, err
	}
	return compileMapping(sourceTrigger, t.Filter, t.Run, t.Signal)
}

// streamsOf returns the streams that triggers of a tenant may read.
func (s *Triggers) streamsOf(ctx context.Context, tenant string) ([]api.TenantStream, error) {
	settings, err := s.tenants.Settings(ctx, tenant)
	if err != nil || settings.Streams != nil || tenant != s.cfg.Tenant {
		return settings.Streams, err
	}
	names, err := s.store.DocumentNames(ctx, state.TenantDocument)
	if err != nil || slices.ContainsFunc(names, func(name string) bool { return name != tenant }) {
		return nil, err
	}
	return []api.TenantStream{{Name: "*"}}, nil
}

// inspect describes a stream if a trigger with these settings may read it. The error is a problem, unless the store or
// NATS did not answer.
func (s *Triggers) inspect(ctx context.Context, tenant string, allowed []api.TenantStream, t api.TriggerSettings) (StreamInfo, error) {
	refused := func(err error) (StreamInfo, error) {
		return StreamInfo{}, problem(denied, api.CodeNotPermitted, "%v", err)
	}
	if err := policy.Stream(tenant, allowed, t.Stream, nil); err != nil {
		return refused(err) // the caller must not learn whether the stream exists
	}
	info, err := s.cfg.Streams.Inspect(ctx, t.Stream)
	if errors.Is(err, ErrNoStream) {
		return StreamInfo{}, invalid("there is no stream %s: create it, or correct the name, which is case-sensitive", t.Stream)
	}
	if err != nil {
		return StreamInfo{}, streamError(err)
	}
	if info.Own {
		return refused(fmt.Errorf("triggers cannot read stream %s, which belongs to Turnpike, copies such a stream, or is a bucket: name another stream", t.Stream))
	}
	// Other subjects of the stream may belong to other tenants: error texts must not name them.
	other := func(subject string) bool { return policy.Stream(tenant, allowed, t.Stream, []string{subject}) != nil }
	for i, subject := range t.Subjects {
		if !slices.ContainsFunc(info.Subjects, func(stored string) bool { return policy.Overlap(stored, subject) }) {
			stored := ""
			if own := slices.DeleteFunc(slices.Clone(info.Subjects), other); len(own) > 0 {
				stored = ", it stores " + strings.Join(own, ", ")
			}
			return StreamInfo{}, invalid("subjects[%d]: stream %s does not store the subject %s%.200s: name one that it stores", i, t.Stream, subject, stored)
		}
	}
	if len(t.Subjects) == 0 && slices.ContainsFunc(info.Subjects, other) {
		return refused(policy.StreamInPart(tenant, t.Stream))
	}
	if err := policy.Stream(tenant, allowed, t.Stream, t.Subjects); err != nil {
		return refused(err)
	}
	return info, nil
}

// errUnreadable marks a message that a trigger must not read. The message stays in the stream.
var errUnreadable = errors.New("the trigger may not read this message")

// readable returns an error that wraps errUnreadable, with the reason, for a message on a subject that a trigger must
// not read: the stream may have changed since inspect, or may copy other streams. Readers of the trigger see the
// reason, so it must not name the subject, which may belong to another tenant.
func (s *Triggers) readable(tenant string, allowed []api.TenantStream, stream, subject string) error {
	err := policy.Stream(tenant, allowed, stream, nil)
	if err == nil && policy.Stream(tenant, allowed, stream, []string{subject}) != nil {
		err = policy.StreamInPart(tenant, stream)
	}
	if strings.HasPrefix(subject, "$") || policy.Within(subject, s.cfg.Prefix+".>") {
		err = fmt.Errorf("stream %s has a message with a subject that is reserved for Turnpike or NATS: set subjects in the trigger that exclude it, or let an operator remove the subject from the stream and delete the message", stream)
	}
	if err != nil {
		s.log.Debug("message not read", "tenant", tenant, "stream", stream, "subject", subject)
		return errors.Join(errUnreadable, problem(denied, api.CodeNotPermitted, "%v", err))
	}
	return nil
}

// load returns a trigger and its document, or nil and state.ErrNotFound.
func (s *Triggers) load(ctx context.Context, tenant, name string) (*storedTrigger, json.RawMessage, error) {
	if !resourceName.MatchString(name) {
		return nil, nil, state.ErrNotFound
	}
	raw, err := s.store.Document(ctx, state.TriggersOf(tenant), name)
	if err != nil {
		return nil, nil, err
	}
	var stored storedTrigger
	if err := json.Unmarshal(raw, &stored); err != nil {
		return nil, nil, fmt.Errorf("decode trigger %s: %w", name, err)
	}
	return &stored, raw, nil
}

func (s *Triggers) shown(name string, stored storedTrigger, status storedStatus) api.Trigger {
	return api.Trigger{
		Name: name, TriggerSettings: stored.TriggerSettings, UpdatedAt: stored.UpdatedAt, UpdatedBy: stored.UpdatedBy,
		Status: api.TriggerStatus{Dead: status.Dead, LastError: status.LastError, LastErrorAt: status.LastErrorAt},
	}
}

// readOne returns a trigger with the stored part of its status, and the size of its document.
func (s *Triggers) readOne(ctx context.Context, tenant, name string) (api.Trigger, *storedTrigger, int, error) {
	stored, raw, err := s.load(ctx, tenant, name)
	if err == nil && stored.Deleted {
		err = state.ErrNotFound
	}
	if err != nil {
		return api.Trigger{}, nil, 0, err
	}
	status, _, err := s.status(ctx, tenant, name)
	return s.shown(name, *stored, status), stored, len(raw), err
}

// Get returns a trigger with its status. The numbers of messages are nil if NATS does not answer. The problem is
// trigger_not_found if it does not exist.
func (s *Triggers) Get(ctx context.Context, c access.Caller, name string) (api.Trigger, error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Trigger{}, err
	}
	t, stored, _, err := s.readOne(ctx, c.Tenant, name)
	if errors.Is(err, state.ErrNotFound) {
		return api.Trigger{}, triggerNotFound(name)
	}
	if err != nil || s.cfg.Streams == nil {
		return t, err
	}
	// Without an answer of NATS, the caller still gets the settings and the last error.
	if pending, inFlight, err := s.cfg.Streams.Pending(ctx, stored.Stream, s.consumer(c.Tenant, name, *stored).Name); err == nil {
		t.Status.Pending, t.Status.InFlight = &pending, &inFlight
	}
	return t, nil
}

// List returns the triggers of a tenant, by name, without the numbers of messages.
func (s *Triggers) List(ctx context.Context, c access.Caller, p Page) (api.Page[api.Trigger], error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Page[api.Trigger]{}, err
	}
	names, err := s.names(ctx, c.Tenant)
	if err != nil {
		return api.Page[api.Trigger]{}, err
	}
	return readPage(ctx, s.core, p, names, func(ctx context.Context, name string) (api.Trigger, int, error) {
		t, _, size, err := s.readOne(ctx, c.Tenant, name)
		return t, size, err
	})
}

// Delete deletes a trigger and its consumer. The runs that it has started continue. The problem is trigger_not_found if
// it does not exist.
func (s *Triggers) Delete(ctx context.Context, c access.Caller, name string) error {
	if err := s.permit(ctx, c, DeleteTrigger); err != nil {
		return err
	}
	err := s.remove(ctx, c.Tenant, name)
	if errors.Is(err, state.ErrNotFound) {
		err = triggerNotFound(name)
	}
	s.note(ctx, c, DeleteTrigger, name, err)
	return err
}

// remove deletes a trigger. It marks the document first, so that no gateway creates the consumer, and each gateway can
// finish the deletion that another has begun.
func (s *Triggers) remove(ctx context.Context, tenant, name string) error {
	kind := state.TriggersOf(tenant)
	marked := false
	for range maxTriggerChanges {
		stored, raw, err := s.load(ctx, tenant, name)
		if marked && errors.Is(err, state.ErrNotFound) {
			return nil // Keep has finished the deletion
		}
		if err != nil {
			return err
		}
		if !stored.Deleted {
			stored.Deleted = true
			data, err := json.Marshal(stored)
			if err == nil {
				err = s.store.ReplaceDocument(ctx, kind, name, raw, data)
			}
			marked = marked || err == nil
			if err == nil {
				err = s.changed(ctx, tenant)
			}
			if err != nil && !errors.Is(err, state.ErrChanged) {
				return err
			}
			continue
		}
		if s.cfg.Streams != nil {
			if err := s.cfg.Streams.Remove(ctx, stored.Stream, s.consumer(tenant, name, *stored).Name); err != nil {
				return streamError(err)
			}
		}
		if err := s.store.DeleteDocument(ctx, kind, name+statusSuffix); err != nil {
			return err
		}
		err = s.store.ReplaceDocument(ctx, kind, name, raw, nil)
		if errors.Is(err, state.ErrChanged) {
			return nil // another request has stored or deleted it
		}
		return err
	}
	return contended("trigger", name)
}

// removeAll deletes the triggers of a tenant.
func (s *Triggers) removeAll(ctx context.Context, tenant string) error {
	names, err := s.names(ctx, tenant)
	if err != nil {
		return err
	}
	err = s.readEach(ctx, len(names), func(ctx context.Context, i int) error {
		if err := s.remove(ctx, tenant, names[i]); !errors.Is(err, state.ErrNotFound) {
			return err
		}
		return nil
	})
	if err == nil {
		err = s.store.DeleteDocument(ctx, state.TriggersDocument, tenant)
	}
	return err
}
