package restore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// pageSize is the number of runs requested from the store at once.
	pageSize = 500

	// sideBySide is the number of runs that are read or aborted at once.
	sideBySide = 32

	// settled is the time after the last mark on the bus from which a new run is certain not to be in the copy. The copy
	// is older than the mark by more than Tolerance, so the clocks of store and bus may differ by 20 seconds.
	settled = Tolerance * Interval

	// maxArguments bounds the arguments of a call in a report, in bytes.
	maxArguments = 2000
)

// AbandonReason is the abort reason that Abandon gives.
const AbandonReason = "abandoned: the store was restored from an older copy"

// Pending has the turn messages that no worker has acknowledged.
type Pending interface {
	// PendingTurns calls fn for each such message. untouched reports that no worker has received it.
	PendingTurns(ctx context.Context, fn func(t bus.Turn, untouched bool)) error
}

// Review describes the consequences of a decision, and carries it out. A nil Review has nothing to
// decide. Its methods may be called from any goroutine.
type Review struct {
	watch   *Watch
	store   state.Store
	pending Pending
}

// NewReview returns a review of a deployment.
func NewReview(watch *Watch, store state.Store, pending Pending) *Review {
	return &Review{watch, store, pending}
}

// Waiting reports whether the deployment waits, as far as this process knows.
func (r *Review) Waiting() bool { return r != nil && r.watch.Waiting() }

// Err is Watch.Err.
func (r *Review) Err() error {
	if r == nil {
		return nil
	}
	return r.watch.Err()
}

// Status returns what this process found when it last compared the marks.
func (r *Review) Status() Status {
	if r == nil {
		return Status{}
	}
	return r.watch.Status()
}

// named is what the pending turn messages say about a run.
type named struct {
	tenant  string
	version int64 // the newest
	touched map[int64]bool
}

// Report compares the marks again and lists up to limit of the runs that the store may have in an older state.
// It lists none if the deployment does not wait for a decision. The error is that of the store or the bus.
func (r *Review) Report(ctx context.Context, limit int) (api.Restore, error) {
	report := api.Restore{Status: api.RestoreOK, Runs: []api.RestoreRun{}}
	if r == nil {
		return report, nil
	}
	if err := r.watch.look(ctx, true); err != nil {
		return report, err
	}
	s := r.watch.Status()
	report.Epoch = s.Epoch
	if !s.Waiting {
		return report, nil
	}
	report.Status, report.BehindSeconds = api.RestoreWaiting, int64(s.Behind/time.Second)
	if !s.Since.IsZero() {
		at := state.At(s.Since)
		report.Since = &at
	}
	runs, err := r.find(ctx)
	if err != nil {
		return report, err
	}
	if err := r.addCalls(ctx, runs); err != nil {
		return report, err
	}
	for _, run := range runs {
		switch run.Found {
		case api.RestoreAhead:
			report.Counts.Ahead++
		case api.RestoreMissing:
			report.Counts.Missing++
		default:
			report.Counts.Active++
		}
		report.Counts.Calls += len(run.Calls)
	}
	report.Truncated = len(runs) > limit
	report.Runs = append(report.Runs, runs[:min(limit, len(runs))]...)
	return report, nil
}

// find returns all runs that the store may have in an older state.
func (r *Review) find(ctx context.Context) ([]api.RestoreRun, error) {
	messages, err := r.messages(ctx)
	if err != nil {
		return nil, err
	}
	found, w := map[state.RunID]api.RestoreRun{}, waiters{}
	for _, f := range []state.Filter{{Status: []state.Status{state.Queued, state.Running}}, {Status: []state.Status{state.Waiting}}} {
		if err := r.active(ctx, f, messages, found, w); err != nil {
			return nil, err
		}
	}
	if err := r.byMessage(ctx, messages, found); err != nil {
		return nil, err
	}
	if err := r.addWaiters(ctx, w, found); err != nil {
		return nil, err
	}
	runs := make([]api.RestoreRun, 0, len(found))
	for _, run := range found {
		runs = append(runs, run)
	}
	order := []string{api.RestoreMissing, api.RestoreAhead, api.RestoreActive}
	slices.SortFunc(runs, func(a, b api.RestoreRun) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Found), slices.Index(order, b.Found)), cmp.Compare(a.RunID, b.RunID))
	})
	return runs, nil
}

func (r *Review) messages(ctx context.Context) (map[state.RunID]*named, error) {
	messages := map[state.RunID]*named{}
	err := r.pending.PendingTurns(ctx, func(t bus.Turn, untouched bool) {
		m := messages[t.Run]
		if m == nil {
			m = &named{tenant: t.Tenant, touched: map[int64]bool{}}
			messages[t.Run] = m
		}
		m.version = max(m.version, t.Version)
		if !untouched {
			m.touched[t.Version] = true
		}
	})
	return messages, err
}

// active adds the runs of the store that would continue without a signal, and notes in w those that wait for other
// runs. It omits a run whose turn message no worker has received, and one that was submitted during the wait: no newer
// state of that run can exist.
func (r *Review) active(ctx context.Context, f state.Filter, messages map[state.RunID]*named, found map[state.RunID]api.RestoreRun, w waiters) error {
	f.Limit = pageSize
	since := r.watch.Status().Since
	for {
		page, err := r.store.List(ctx, f)
		if err != nil {
			return err
		}
		for _, st := range page.Runs {
			m := messages[st.ID]
			if m != nil && m.version == st.Version && !m.touched[st.Version] {
				continue
			}
			if st.Status == state.Waiting && (st.Due().IsZero() || st.Due().After(time.Now())) {
				w.note(st, m)
				continue // nothing continues it before a signal does
			}
			if st.Version == 1 && !since.IsZero() && st.CreatedAt.Sub(since) > settled {
				continue
			}
			found[st.ID] = entry(st, api.RestoreActive, m)
		}
		if f.Cursor = page.Next; f.Cursor == "" {
			return nil
		}
	}
}

// byMessage adds the runs whose messages are newer than the store.
func (r *Review) byMessage(ctx context.Context, messages map[state.RunID]*named, found map[state.RunID]api.RestoreRun) error {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(sideBySide)
	for id, m := range messages {
		group.Go(func() error {
			st, err := r.store.Load(ctx, id)
			var run api.RestoreRun
			switch {
			case errors.Is(err, state.ErrDeleted), errors.Is(err, state.ErrFormat):
				return nil
			case errors.Is(err, state.ErrNotFound):
				run = entry(state.State{ID: id, Tenant: m.tenant}, api.RestoreMissing, m)
			case err != nil:
				return fmt.Errorf("load run %s: %w", id, err)
			case m.version > st.Version:
				run = entry(st, api.RestoreAhead, m)
			default:
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			found[id] = run
			return nil
		})
	}
	return group.Wait()
}

func entry(st state.State, found string, m *named) api.RestoreRun {
	run := api.RestoreRun{
		RunID: string(st.ID), Tenant: cmp.Or(st.Tenant, state.DefaultTenant), Agent: st.Agent, Found: found, Status: string(st.Status), Version: st.Version, Calls: []api.RestoreCall{},
	}
	if m != nil {
		run.NATSVersion = m.version
	}
	return run
}

// addCalls adds the calls that have no result in the store. A call that waits for a child run is not made again.
func (r *Review) addCalls(ctx context.Context, runs []api.RestoreRun) error {
	tools := definitions{agents: r.store, known: map[string]map[string]bool{}}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(sideBySide)
	for i := range runs {
		run := &runs[i]
		if run.Found == api.RestoreMissing {
			continue
		}
		group.Go(func() error {
			st, err := r.store.Load(ctx, state.RunID(run.RunID))
			if errors.Is(err, state.ErrNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			if st.Status.Terminal() {
				return nil
			}
			if run.Calls, err = r.openCalls(ctx, st.ID); err != nil {
				return err
			}
			run.Calls = slices.DeleteFunc(run.Calls, func(c api.RestoreCall) bool {
				return slices.ContainsFunc(st.Open, func(o state.OpenCall) bool { return o.ID == c.ID && o.Needs == state.NeedChild })
			})
			for i := range run.Calls {
				run.Calls[i].Idempotent = tools.idempotent(ctx, st, run.Calls[i].Tool)
			}
			return nil
		})
	}
	return group.Wait()
}

const (
	// pageEntries and pageBytes bound one read of a log, which holds at most that and one entry.
	pageEntries = 256
	pageBytes   = 2 << 20
)

// openCalls returns the calls that responses of a run propose and that have no result, with shortened arguments. It
// keeps no entry of the log in memory.
func (r *Review) openCalls(ctx context.Context, id state.RunID) ([]api.RestoreCall, error) {
	open, from := []api.RestoreCall{}, []string{} // from: the ids of the responses with the calls
	remove := func(gone func(call, response string) bool) {
		n := 0
		for i := range open {
			if !gone(open[i].ID, from[i]) {
				open[n], from[n] = open[i], from[i]
				n++
			}
		}
		open, from = open[:n], from[:n]
	}
	for after := int64(0); ; {
		page, err := r.store.LogPage(ctx, id, after, pageEntries, pageBytes)
		if err != nil {
			return nil, err
		}
		for _, e := range page.Entries {
			switch e.Type { //nolint:exhaustive // no other entry proposes or ends a call
			case state.EntryTool, state.EntryReused:
				remove(func(call, _ string) bool { return call == e.CallID })
			case state.EntryTombstoned:
				remove(func(_, response string) bool { return slices.Contains(e.MessageIDs, response) })
			case state.EntryModel:
				if e.Message == nil {
					continue
				}
				for _, c := range e.Message.Calls() {
					open = append(open, api.RestoreCall{
						ID: strings.Clone(c.ID), Tool: strings.Clone(c.Name), Arguments: strings.Clone(strings.ToValidUTF8(c.Arguments[:min(len(c.Arguments), maxArguments)], "")),
					})
					from = append(from, strings.Clone(e.Message.ID))
				}
			}
		}
		if !page.More {
			return open, nil
		}
		after += int64(len(page.Entries))
	}
}

// definitions caches which tools of agents are idempotent.
type definitions struct {
	agents state.Agents

	mu    sync.Mutex
	known map[string]map[string]bool
}

func (d *definitions) idempotent(ctx context.Context, st state.State, tool string) bool {
	key := fmt.Sprintf("%s/%s@%d", st.Tenant, st.Agent, st.AgentVersion)
	d.mu.Lock()
	tools, ok := d.known[key]
	d.mu.Unlock()
	if !ok {
		tools = map[string]bool{}
		var definition struct {
			Tools []struct {
				Name       string `json:"name"`
				Kind       string `json:"kind"`
				Idempotent bool   `json:"idempotent"`
			} `json:"tools"`
		}
		v, err := d.agents.Agent(ctx, cmp.Or(st.Tenant, state.DefaultTenant), st.Agent, st.AgentVersion)
		if err == nil && json.Unmarshal(v.Definition, &definition) == nil {
			for _, t := range definition.Tools {
				tools[t.Name] = t.Idempotent || t.Kind == toolspec.Memory
			}
		}
		d.mu.Lock()
		d.known[key] = tools
		d.mu.Unlock()
	}
	return tools[tool]
}

// Accept makes the older state the current one: every run continues from it. See Watch.Accept.
func (r *Review) Accept(ctx context.Context) (api.RestoreDecided, error) {
	if r == nil {
		return api.RestoreDecided{}, ErrNotWaiting
	}
	err := r.watch.Accept(ctx)
	return api.RestoreDecided{Decision: "accept", Epoch: r.watch.Status().Epoch}, err
}

// Abandon aborts all runs that Report finds, also those beyond its limit, in the name of by, and then accepts: the
// others continue. Every abort is recorded before a run may continue, so the end of one run starts none of those that
// wait for it. It aborts no run that the store lacks: such a run ends as lost later. Each abort is due after delay.
// The error is ErrNotWaiting if the store is not behind. After another error some runs may be aborted, and the
// deployment may still wait. The caller may repeat the call: ErrNotWaiting then means that the wait is over.
func (r *Review) Abandon(ctx context.Context, by *state.By, delay time.Duration) (api.RestoreDecided, error) {
	decided := api.RestoreDecided{Decision: "abandon"}
	if r == nil {
		return decided, ErrNotWaiting
	}
	if err := r.watch.look(ctx, true); err != nil {
		return decided, err
	}
	if !r.watch.Waiting() {
		return decided, ErrNotWaiting
	}
	runs, err := r.find(ctx)
	if err != nil {
		return decided, err
	}
	var mu sync.Mutex
	group, within := errgroup.WithContext(ctx)
	group.SetLimit(sideBySide)
	for _, run := range runs {
		if run.Found == api.RestoreMissing {
			continue
		}
		group.Go(func() error {
			_, err := r.store.Abort(within, state.RunID(run.RunID), state.Abort{Reason: AbandonReason, By: by}, delay)
			if _, ended := errors.AsType[*state.TerminalError](err); ended || errors.Is(err, state.ErrNotFound) {
				return nil
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			decided.Cancelled++
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return decided, fmt.Errorf("abort runs: %w", err)
	}
	err = r.watch.Accept(ctx)
	decided.Epoch = r.watch.Status().Epoch
	return decided, err
}
