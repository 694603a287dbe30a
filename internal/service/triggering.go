package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// triggersInterval is the time between two checks for changed triggers. triggersFresh is the time after which a
	// gateway reads the triggers of a tenant again although no change was marked.
	triggersInterval = time.Second
	triggersFresh    = 30 * time.Second

	// statusInterval is the minimum time between two writes of the status of a trigger by one gateway.
	statusInterval = 2 * time.Second
)

// readTriggers are the triggers of a tenant as they were read at a time.
type readTriggers struct {
	mark json.RawMessage
	at   time.Time
	defs map[string]json.RawMessage
}

// runner processes the messages of one trigger, with the settings that it started with.
type runner struct {
	s       *Triggers
	key     triggerKey
	stored  storedTrigger
	mapping *mapping
	allowed []api.TenantStream
	limiter *limiter        // of all settings of the trigger
	raw     json.RawMessage // the stored document with the settings
	stop    func()

	mu     sync.Mutex
	status storedStatus // changes that are not stored yet
	later  bool         // a call of flush is scheduled
}

// Keep starts runs and sends signals for the messages of triggers, until ctx ends; it returns when no message is in
// progress. It does nothing for paused triggers and suspended tenants, while a restored store waits for a decision, and
// without streams. Gateways share the work: NATS delivers a message to one gateway, and again, perhaps to another, only
// if the first rejects it or does not acknowledge it in time. A gateway acknowledges a message once its effect, if it
// has one, is durable. A second delivery has no second effect, unless in between the trigger was changed, the run was
// deleted, or the run received a thousand other signals.
func (s *Triggers) Keep(ctx context.Context) {
	if s.cfg.Streams == nil {
		return
	}
	var runners sync.WaitGroup
	defer runners.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	tick := time.NewTicker(triggersInterval)
	defer tick.Stop()
	failed := false
	for {
		err := s.look(ctx, &runners)
		if err != nil && !failed && ctx.Err() == nil {
			s.log.Warn("triggers not read, the gateway retries", "error", err, "hint", "run `turnpike doctor`: the store may be unreachable or refuse the operation")
		}
		failed = err != nil
		select {
		case <-tick.C:
		case <-s.kicked:
		case <-ctx.Done():
			return
		}
	}
}

// look starts and stops runners according to the stored triggers. If the store does not answer, the current runners
// continue.
func (s *Triggers) look(ctx context.Context, runners *sync.WaitGroup) error {
	marks, err := s.store.Documents(ctx, state.TriggersDocument)
	if err != nil {
		return err
	}
	for tenant := range s.read {
		if marks[tenant] == nil {
			delete(s.read, tenant)
		}
	}
	var errs []error
	wanted := map[triggerKey]*runner{}
	for tenant, mark := range marks {
		if err := s.lookAt(ctx, tenant, mark, wanted); err != nil {
			errs = append(errs, err)
			for key, r := range s.running { // a short failure must not stop the triggers of the tenant
				if key.tenant == tenant {
					wanted[key] = r
				}
			}
		}
	}
	for key, r := range s.running {
		if wanted[key] != r {
			r.stop()
			delete(s.running, key)
		}
	}
	for key, l := range s.limiters {
		if wanted[key] == nil && l.idle() {
			delete(s.limiters, key)
		}
	}
	for key, r := range wanted {
		if s.running[key] == nil {
			s.running[key] = r
			running, stop := context.WithCancel(ctx)
			r.stop = stop
			runners.Go(func() {
				r.run(running)
				r.flush(running)
			})
		}
	}
	return errors.Join(errs...)
}

// lookAt adds the runners for the triggers of a tenant to wanted.
func (s *Triggers) lookAt(ctx context.Context, tenant string, mark json.RawMessage, wanted map[triggerKey]*runner) error {
	read, now := s.read[tenant], time.Now()
	if !bytes.Equal(read.mark, mark) || now.Sub(read.at) > triggersFresh {
		defs, err := s.store.Documents(ctx, state.TriggersOf(tenant))
		if err != nil {
			return err
		}
		read = readTriggers{mark: mark, at: now, defs: defs}
		s.read[tenant] = read
	}
	if len(read.defs) == 0 || s.cfg.Restore.Waiting() {
		return nil
	}
	settings, err := s.tenants.Settings(ctx, tenant)
	if err != nil || settings.Suspended {
		return err
	}
	allowed, err := s.streamsOf(ctx, tenant)
	if err != nil {
		return err
	}
	for name, raw := range read.defs {
		if strings.HasSuffix(name, statusSuffix) {
			continue
		}
		key := triggerKey{tenant, name}
		if r := s.running[key]; r != nil && bytes.Equal(r.raw, raw) && reflect.DeepEqual(r.allowed, allowed) {
			wanted[key] = r
			continue
		}
		r := &runner{s: s, key: key, allowed: allowed, raw: raw}
		err := json.Unmarshal(raw, &r.stored)
		switch {
		case err != nil:
		case r.stored.Deleted:
			read.at = time.Time{} // read it again until it is gone
			s.read[tenant] = read
			if err := s.remove(ctx, tenant, name); err != nil && !errors.Is(err, state.ErrNotFound) {
				s.log.Debug("deletion of a trigger not finished", "error", err, "tenant", tenant, "trigger", name) // retried
			}
			continue
		case r.stored.Paused:
			continue
		default:
			r.mapping, err = s.compile(r.stored.TriggerSettings)
		}
		if err != nil {
			s.log.Error("a stored trigger is not valid for this build of Turnpike, it does not run", "error", err, "tenant", tenant, "trigger", name, "hint", "correct what the error names and save the trigger again, or upgrade this gateway if a newer build saved it")
			continue
		}
		if s.limiters[key] == nil {
			s.limiters[key] = &limiter{}
		}
		r.limiter, wanted[key] = s.limiters[key], r
	}
	return nil
}

// caller returns the caller in whose name the runner starts runs and sends signals.
func (r *runner) caller() access.Caller {
	return access.ForTrigger(r.key.tenant, r.key.name).For(r.stored.UpdatedBy)
}

// storedStatus is the document with the status of a trigger, apart from the document with its settings.
type storedStatus struct {
	Dead        int64       `json:"dead"`
	LastError   string      `json:"last_error,omitempty"`
	LastErrorAt *state.Time `json:"last_error_at,omitempty"`
}

// status returns the stored status of a trigger, and its document. A trigger without one has an empty status.
func (s *Triggers) status(ctx context.Context, tenant, name string) (status storedStatus, raw json.RawMessage, err error) {
	raw, err = s.store.Document(ctx, state.TriggersOf(tenant), name+statusSuffix)
	if errors.Is(err, state.ErrNotFound) {
		return status, nil, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &status)
	}
	return status, raw, err
}

// fail adds an error and a number of dead letters to the status, which flush stores within statusInterval.
func (r *runner) fail(ctx context.Context, err error, dead int64) {
	at := state.At(time.Now())
	r.mu.Lock()
	r.status.Dead += dead
	r.status.LastError, r.status.LastErrorAt = detailOf(err), &at
	later := r.later
	r.later = true
	r.mu.Unlock()
	if !later {
		time.AfterFunc(statusInterval, func() { r.flush(ctx) })
	}
}

// detailOf returns the text of an error for readers of the trigger.
func detailOf(err error) string {
	switch {
	case errors.Is(err, ErrStreamRefused):
		return Clip(err.Error(), MaxDetail)
	case errors.Is(err, ErrNoStream):
		return Clip(err.Error(), MaxDetail/2) + ": create it, or correct the trigger"
	}
	return ProblemOf(err).Detail
}

// flush adds the noted failures to the stored status. If the store does not answer, it keeps only the number of dead
// letters for the next flush.
func (r *runner) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusInterval)
	defer cancel()
	r.mu.Lock()
	more := r.status
	r.status, r.later = storedStatus{}, false
	r.mu.Unlock()
	if more.LastErrorAt == nil {
		return
	}
	stored, _, err := r.s.load(ctx, r.key.tenant, r.key.name)
	if err == nil && (stored.Deleted || stored.ID != r.stored.ID) || errors.Is(err, state.ErrNotFound) {
		return // a trigger that was put again starts without errors
	}
	err = state.ErrChanged
	for i := 0; i < maxTriggerChanges && errors.Is(err, state.ErrChanged); i++ {
		var status storedStatus
		var raw, data json.RawMessage
		if status, raw, err = r.s.status(ctx, r.key.tenant, r.key.name); err != nil {
			break
		}
		status = storedStatus{status.Dead + more.Dead, more.LastError, more.LastErrorAt}
		if data, err = json.Marshal(status); err == nil {
			err = r.s.store.ReplaceDocument(ctx, state.TriggersOf(r.key.tenant), r.key.name+statusSuffix, raw, data)
		}
	}
	if err != nil {
		r.s.log.Debug("status of a trigger not stored", "error", err, "tenant", r.key.tenant, "trigger", r.key.name)
		r.mu.Lock()
		r.status.Dead += more.Dead
		r.mu.Unlock()
	}
}
