package explore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// store is the store as one process reaches it, without the methods that no process here calls. It has many
// methods because each call of the port passes a gate.
type store struct {
	state.Store

	p *process
}

func (s store) write(what string, id state.RunID, version int64) request {
	name := fmt.Sprintf("%s: %s %s", s.p.name, what, s.p.s.short(id))
	if version > 0 {
		name += fmt.Sprint(" at ", version)
	}
	return request{name: name, can: writes, again: true}
}

func (s store) read(what string, of any) request {
	return request{name: fmt.Sprintf("%s: %s %v", s.p.name, what, of), can: reads}
}

// The context of a call that is repeated because its outcome is unknown may have ended.
func live() context.Context { return context.Background() }

// Now is not a step: a gateway knows the time from an earlier call.
func (s store) Now(context.Context) (time.Time, error) { return time.Now(), nil }

func (s store) Ready(context.Context) error { return nil }

func (s store) Create(ctx context.Context, run state.NewRun) (state.Created, error) {
	return ask(ctx, s.p, s.write("create", run.State.ID, 0), func() (state.Created, error) {
		s.p.s.creates(run)
		return s.p.s.store.Create(live(), run)
	})
}

func (s store) Load(ctx context.Context, id state.RunID) (state.State, error) {
	return ask(ctx, s.p, s.read("load", s.p.s.short(id)), func() (state.State, error) { return s.p.s.store.Load(live(), id) })
}

func (s store) LoadByKey(ctx context.Context, tenant, key, fingerprint string) (state.State, error) {
	return ask(ctx, s.p, s.read("load by key", key), func() (state.State, error) {
		return s.p.s.store.LoadByKey(live(), tenant, key, fingerprint)
	})
}

func (s store) Log(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error) {
	return ask(ctx, s.p, s.read("log of", s.p.s.short(id)), func() ([]state.Entry, error) { return s.p.s.store.Log(live(), id, after, limit) })
}

func (s store) LogPage(ctx context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error) {
	return ask(ctx, s.p, s.read("page of the log of", s.p.s.short(id)), func() (state.LogPage, error) { return s.p.s.store.LogPage(live(), id, after, limit, bytes) })
}

func (s store) Admit(ctx context.Context, root state.RunID, runs []state.RunID, limit int) (state.Admitted, error) {
	return ask(ctx, s.p, s.write("admit below", root, 0), func() (state.Admitted, error) { return s.p.s.store.Admit(live(), root, runs, limit) })
}

// FoldFigures is not a step: it changes no run.
func (s store) FoldFigures(context.Context) error { return nil }

// ClaimTimers returns no timers: these scenarios have no schedules and no webhooks.
func (s store) ClaimTimers(context.Context, state.TimerKind, int, time.Duration) ([]state.TimerClaim, error) {
	return nil, nil
}

// AgentNames returns no agents: the gateway calls it to find expired runs, and these scenarios have
// none.
func (s store) AgentNames(context.Context, string) ([]string, error) { return nil, nil }

// Document reports that the tenant has no settings.
func (s store) Document(context.Context, state.DocumentKind, string) (json.RawMessage, error) {
	return nil, state.ErrNotFound
}

// Documents returns no tenants: everything belongs to the default one.
func (s store) Documents(context.Context, state.DocumentKind) (map[string]json.RawMessage, error) {
	return nil, nil
}

// DocumentNames returns no tenants either.
func (s store) DocumentNames(context.Context, state.DocumentKind) ([]string, error) { return nil, nil }

func (s store) Agent(ctx context.Context, tenant, name string, version int) (state.AgentVersion, error) {
	return ask(ctx, s.p, s.read("agent", name), func() (state.AgentVersion, error) { return s.p.s.store.Agent(live(), tenant, name, version) })
}

func (s store) Pin(ctx context.Context, key string, value []byte) ([]byte, error) {
	r := request{name: fmt.Sprintf("%s: pin %s", s.p.name, key), can: writes}
	return ask(ctx, s.p, r, func() ([]byte, error) { return s.p.s.store.Pin(live(), key, value) })
}

func (s store) Claim(ctx context.Context, r state.ClaimRequest) (*state.Claim, error) {
	return ask(ctx, s.p, s.write("claim", r.Run, r.Version), func() (*state.Claim, error) {
		c, err := s.p.s.store.Claim(live(), r)
		if c.Abort != nil {
			s.p.aborted[r.Run] = true
		}
		if err == nil && c.Outcome == state.Claimed {
			s.p.s.takes(s.p, c)
		}
		return c, err
	})
}

func (s store) Renew(ctx context.Context, l state.Lease, lease, delay time.Duration) (*state.Abort, error) {
	return ask(ctx, s.p, s.write("renew", l.Run, l.Version), func() (*state.Abort, error) {
		abort, err := s.p.s.store.Renew(live(), l, lease, delay)
		if abort != nil {
			s.p.aborted[l.Run] = true
		}
		return abort, err
	})
}

func (s store) Record(ctx context.Context, l state.Lease, r state.Record) (*state.Abort, error) {
	s.p.s.writes(s.p, r.Results)
	return ask(ctx, s.p, s.write("record", l.Run, l.Version), func() (*state.Abort, error) {
		abort, err := s.p.s.store.Record(live(), l, r)
		s.p.s.fences(l, err)
		s.p.s.journals(s.p, l, err)
		if abort != nil {
			s.p.aborted[l.Run] = true
		}
		return abort, err
	})
}

func (s store) Commit(ctx context.Context, l state.Lease, c state.Commit) (state.Committed, error) {
	s.p.s.writes(s.p, state.After(c.State.Log, c.From))
	return ask(ctx, s.p, s.write("commit", l.Run, l.Version), func() (state.Committed, error) {
		before, _ := s.p.s.record(l.Run)
		got, err := s.p.s.store.Commit(live(), l, c)
		s.p.s.changed()
		s.p.s.finishes(before, c, err)
		if err == nil {
			s.p.s.commits(l.Run, before.Version)
		}
		return got, err
	})
}

func (s store) Release(ctx context.Context, l state.Lease, delay time.Duration) error {
	return ask0(ctx, s.p, s.write("release", l.Run, l.Version), func() error {
		err := s.p.s.store.Release(live(), l, delay)
		s.p.s.changed()
		s.p.s.releases(s.p, l, delay, err)
		return err
	})
}

func (s store) Signal(ctx context.Context, id state.RunID, sig state.Signal, delay time.Duration) (state.Wake, error) {
	return ask(ctx, s.p, s.write("signal", id, 0), func() (state.Wake, error) {
		w, err := s.p.s.store.Signal(live(), id, sig, delay)
		if repeated := w.Version == 0; err == nil && sig.Message != nil && !repeated {
			s.p.s.speaks(id)
		}
		return w, err
	})
}

func (s store) Abort(ctx context.Context, id state.RunID, abort state.Abort, delay time.Duration) (state.Wake, error) {
	return ask(ctx, s.p, s.write("abort", id, 0), func() (state.Wake, error) {
		s.p.s.abortTried = true
		w, err := s.p.s.store.Abort(live(), id, abort, delay)
		if err == nil {
			s.p.s.aborts(id)
		}
		return w, err
	})
}

func (s store) Sweep(ctx context.Context, limit int, delay time.Duration, backlog state.Backlog) ([]state.Due, error) {
	r := request{name: s.p.name + ": sweep", can: writes, quiet: func() bool {
		due := s.p.s.store.Snapshot().Due()
		return due.IsZero() || time.Now().Before(due)
	}}
	return ask(ctx, s.p, r, func() ([]state.Due, error) { return s.p.s.store.Sweep(live(), limit, delay, backlog) })
}

func (s store) Evict(ctx context.Context, worker string, limit int, delay time.Duration) ([]state.Due, error) {
	r := request{name: fmt.Sprintf("%s: evict %s", s.p.name, worker), can: writes, quiet: func() bool { return !s.p.s.owns(worker) }}
	return ask(ctx, s.p, r, func() ([]state.Due, error) { return s.p.s.store.Evict(live(), worker, limit, delay) })
}

func (s store) Owners(ctx context.Context) ([]string, error) {
	owners := func() ([]string, error) { return s.p.s.store.Owners(live()) }
	r := request{name: s.p.name + ": owners of leases", can: reads, quiet: func() bool {
		have, _ := owners()
		return len(have) == 0
	}}
	return ask(ctx, s.p, r, owners)
}

func (s store) List(ctx context.Context, f state.Filter) (state.RunPage, error) {
	return ask(ctx, s.p, s.read("list", "runs"), func() (state.RunPage, error) { return s.p.s.store.List(live(), f) })
}

func (s store) Seal(ctx context.Context, id state.RunID, token string) ([]state.RunID, error) {
	return ask(ctx, s.p, s.write("seal", id, 0), func() ([]state.RunID, error) {
		defer s.p.s.changed()
		return s.p.s.store.Seal(live(), id, token)
	})
}

func (s store) Unseal(ctx context.Context, id state.RunID, token string) error {
	return ask0(ctx, s.p, s.write("unseal", id, 0), func() error {
		defer s.p.s.changed()
		return s.p.s.store.Unseal(live(), id, token)
	})
}

func (s store) Delete(ctx context.Context, id state.RunID) error {
	return ask0(ctx, s.p, s.write("delete", id, 0), func() error {
		before, _ := s.p.s.record(id)
		err := s.p.s.store.Delete(live(), id)
		s.p.s.deletes(before, id)
		return err
	})
}

func (s store) DeletedOfBatch(ctx context.Context, first state.RunID) (state.DeletedBatch, error) {
	return ask(ctx, s.p, s.read("deleted runs of the batch of", s.p.s.short(first)), func() (state.DeletedBatch, error) { return s.p.s.store.DeletedOfBatch(live(), first) })
}

func (s store) PreventCreation(ctx context.Context, tenant string, id state.RunID) error {
	return ask0(ctx, s.p, s.write("prevent the creation of", id, 0), func() error { return s.p.s.store.PreventCreation(live(), tenant, id) })
}

func (s store) PutDocument(ctx context.Context, kind state.DocumentKind, name string, data json.RawMessage) error {
	r := request{name: fmt.Sprintf("%s: put document %s", s.p.name, kind), can: writes}
	return ask0(ctx, s.p, r, func() error { return s.p.s.store.PutDocument(live(), kind, name, data) })
}

func (s store) DeleteDocument(ctx context.Context, kind state.DocumentKind, name string) error {
	r := request{name: fmt.Sprintf("%s: delete document %s", s.p.name, kind), can: writes}
	return ask0(ctx, s.p, r, func() error { return s.p.s.store.DeleteDocument(live(), kind, name) })
}

// Heartbeat is not a separate step: a dead or sleeping process writes none.
func (s store) Heartbeat(_ context.Context, worker string, lasts time.Duration) error {
	s.p.passes()
	s.p.s.mu.Lock()
	defer s.p.s.mu.Unlock()
	if s.p.awake() {
		s.p.s.alive[worker] = time.Now().Add(lasts)
	}
	return nil
}

func (s store) Alive(ctx context.Context, worker string) (bool, error) {
	alive := func() bool { return time.Now().Before(s.p.s.alive[worker]) }
	r := request{name: fmt.Sprintf("%s: is %s alive", s.p.name, worker), can: reads, quiet: alive}
	return ask(ctx, s.p, r, func() (bool, error) { return alive(), nil })
}

// SetFormat does nothing: internal/e2e tests two builds. It is not a gate because a process that
// sleeps would wake in it and in its other timers at the same instant, in any order.
func (store) SetFormat(int) {}

func (s store) MarkFinalized(ctx context.Context, id state.RunID, seq int64) error {
	return ask0(ctx, s.p, s.write("note as finalized", id, 0), func() error { return s.p.s.store.MarkFinalized(live(), id, seq) })
}

func (s store) Paused(context.Context) ([]string, error) { return nil, nil }

func (s store) PutAgent(_ context.Context, tenant, name string, definition json.RawMessage, always bool) (state.AgentVersion, error) {
	return s.p.s.store.PutAgent(live(), tenant, name, definition, always)
}
