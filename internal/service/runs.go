package service

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/retention"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Runs are the runs of a tenant: read, listed, cancelled and deleted.
type Runs struct {
	*core

	cleaner *retention.Cleaner
}

// Get returns a run. The error wraps state.ErrNotFound if it does not exist or the caller may not see it, or
// state.ErrDeleted if it was deleted.
func (s *Runs) Get(ctx context.Context, c access.Caller, id string) (state.State, error) {
	if err := s.permit(ctx, c, ReadRuns); err != nil {
		return state.State{}, err
	}
	return s.load(ctx, c, id)
}

// Log returns the log of a run, of which it has read the first page.
func (s *Runs) Log(ctx context.Context, c access.Caller, id string) (*RunLog, error) {
	first, err := s.logPage(ctx, c, id, 0, mostPage)
	if err != nil {
		return nil, err
	}
	return &RunLog{store: s.store, id: state.RunID(id), first: first}, nil
}

// logPage returns a page of the log of a run if the caller may see it. It asks the store for the run and for the page at
// once, because a store may be distant, and waits for both, so that a run of another tenant is like a missing one.
func (s *Runs) logPage(ctx context.Context, c access.Caller, name string, after int64, limit int) (page state.LogPage, err error) {
	if err := s.permit(ctx, c, ReadRuns); err != nil {
		return page, err
	}
	id, err := parseID(name)
	if err != nil {
		return page, err
	}
	var unread error
	err = s.readEach(ctx, 2, func(_ context.Context, i int) (err error) {
		if i == 0 {
			_, err = s.load(ctx, c, name)
			return err
		}
		page, unread = s.store.LogPage(ctx, id, after, limit, pageWeight)
		return nil // that of load says more about a run that is missing
	})
	if err = cmp.Or(err, unread); err != nil {
		return state.LogPage{}, err
	}
	return page, nil
}

// Entries returns up to p.Limit log entries of a run with numbers above after, fewer if they are large, and the number
// to pass as the next after, or 0 if the log had no more entries. It ignores p.Cursor.
func (s *Runs) Entries(ctx context.Context, c access.Caller, id string, after int64, p Page) (log []state.Entry, next int64, err error) {
	page, err := s.logPage(ctx, c, id, after, p.Limit)
	if err != nil {
		return nil, 0, err
	}
	if page.More {
		next = page.Entries[len(page.Entries)-1].Seq
	}
	return page.Entries, next, nil
}

// Follow returns up to limit log entries of a run with numbers above after, of about `bytes` bytes together. It checks
// no rights: the caller must have called Get. It waits while many others read. The error is ErrStopped if the service
// stops while Follow waits.
func (s *Runs) Follow(ctx context.Context, id state.RunID, after int64, limit, bytes int) (page state.LogPage, err error) {
	err = s.InTurn(ctx, func() error {
		page, err = s.store.LogPage(ctx, id, after, limit, bytes)
		return err
	})
	return page, err
}

// Now returns the time of the store, or an estimate if the store does not answer.
func (s *Runs) Now(ctx context.Context) (state.Time, error) { return s.clock.now(ctx) }

// Lose records that the store has lost a run that a caller waits for, and returns the stored run. The error is
// state.ErrDeleted if the run was deleted.
func (s *Runs) Lose(ctx context.Context, known state.State) (state.State, error) {
	return s.recordLost(ctx, known, "a client asked for the run, but the store does not have it")
}

// Clean deletes the runs whose retention has ended. It returns when ctx ends.
func (s *Runs) Clean(ctx context.Context) { s.cleaner.Run(ctx) }

// Delete deletes a run with all runs below it. They must have ended, and the run must not be the child of a run that
// exists; errors are as for retention.Cleaner.Delete. If the run was deleted within state.MarkerLifetime, Delete
// removes what that deletion may have left after a failure, and returns state.ErrDeleted.
func (s *Runs) Delete(ctx context.Context, c access.Caller, id string) error {
	if err := s.permit(ctx, c, DeleteRun); err != nil {
		return err
	}
	_, err := s.load(ctx, c, id)
	if err == nil || errors.Is(err, state.ErrDeleted) {
		_, err = s.cleaner.Delete(ctx, c.Tenant, state.RunID(id))
	}
	s.note(ctx, c, DeleteRun, id, err)
	return err
}

// Listing is a request for a list of runs.
type Listing struct {
	Filter state.Filter // List sets the tenant
	Text   string       // text that the runs must contain, in lower case; empty: any

	// Troubled selects runs with failures: see state.Trouble.
	Troubled bool

	examined int // the number of runs that List has read for earlier pages, to find Text and Troubled
}

// searches reports whether List must read the runs to select them, because the store cannot.
func (l *Listing) searches() bool { return l.Text != "" || l.Troubled }

// ParseListing reads the parameters of a list of runs, and removes text and trouble from query. It refuses unknown
// parameters.
func ParseListing(query url.Values) (l Listing, err error) {
	if l.Text, err = searchOf(query["text"]); err != nil {
		return l, err
	}
	query.Del("text")
	if l.Troubled, err = troubleOf(query["trouble"]); err != nil {
		return l, err
	}
	query.Del("trouble")
	if l.searches() {
		var rest string
		if rest, l.examined, err = cursorOf(query.Get("cursor")); err != nil {
			return l, err
		}
		if query.Has("cursor") {
			query.Set("cursor", rest)
		}
	}
	l.Filter, err = ParseFilter(query)
	return l, err
}

// List returns a page of the runs that the caller may see, the newest first. A search for a
// text or for failures reads a limited number of runs; the page then has the number of runs
// read so far, including earlier pages (Examined), and whether these were all (Complete).
func (s *Runs) List(ctx context.Context, c access.Caller, l Listing) (api.Page[state.State], error) {
	if err := s.permit(ctx, c, ReadRuns); err != nil {
		return api.Page[state.State]{}, err
	}
	f := l.Filter
	if f.Loop != "" && !slices.Contains(s.cfg.Known.Loops, f.Loop) {
		return api.Page[state.State]{}, invalid("loop is %q: use one of %s", f.Loop, strings.Join(s.cfg.Known.Loops, ", "))
	}
	if err := s.Select(ctx, c, &f); err != nil {
		return api.Page[state.State]{}, err
	}
	f.Bytes = ListBytes
	if err := s.byIndex(ctx, &f); err != nil {
		return api.Page[state.State]{}, err
	}
	if l.searches() {
		search := &search{k: s.core, text: l.Text, troubled: l.Troubled, limit: f.Limit, examined: l.examined}
		next, complete, err := search.run(ctx, f)
		if err != nil {
			return api.Page[state.State]{}, err
		}
		page := api.NewPage(search.found, next)
		page.Examined, page.Complete = &search.examined, &complete
		return page, nil
	}
	page, err := s.store.List(ctx, f)
	if err != nil {
		return api.Page[state.State]{}, err
	}
	return api.NewPage(page.Runs, page.Next), nil
}

// Canceling is a request to cancel a run.
type Canceling struct {
	Run    string
	Reason string

	// Published reports that the request is a message of the bus, which workers receive too and which the bus repeats
	// until it is acknowledged. The audit then does not record a failure. It records an ended run as cancelled, because
	// a worker may have ended the run for the same message.
	Published bool
}

// Cancel sets a durable abort flag of a run, notifies the workers, and returns the run, which may not have ended yet.
// Operators may cancel all runs, submitters those that they have submitted, and callers with a token of a user those
// that they may see. The error for an ended run is a *state.TerminalError.
func (s *Runs) Cancel(ctx context.Context, c access.Caller, in Canceling) (state.State, error) {
	if err := s.permit(ctx, c, Cancel); err != nil {
		return state.State{}, err
	}
	st, err := s.cancel(ctx, c, in)
	_, ended := errors.AsType[*state.TerminalError](err)
	switch {
	case !in.Published:
		s.note(ctx, c, Cancel, in.Run, err)
	case err == nil || ended: // a worker may have ended the run for the same message
		s.note(ctx, c, Cancel, in.Run, nil)
	}
	return st, err
}

func (s *Runs) cancel(ctx context.Context, c access.Caller, in Canceling) (state.State, error) {
	st, err := s.load(ctx, c, in.Run)
	if err != nil {
		return state.State{}, err
	}
	if err := checkReason(in.Reason); err != nil {
		return state.State{}, err
	}
	if err := s.ownOrOperator(ctx, c, st.ID); err != nil {
		return state.State{}, err
	}
	if err := s.abort(ctx, c, st, in); err != nil {
		return state.State{}, err
	}
	return s.store.Load(ctx, st.ID)
}

func checkReason(reason string) error {
	if len(reason) > maxValue {
		return invalid("reason has %d bytes, at most %d are allowed: shorten it", len(reason), maxValue)
	}
	return nil
}

// abort aborts a run in the name of the caller, without checks.
func (s *Runs) abort(ctx context.Context, c access.Caller, st state.State, in Canceling) error {
	// The flag is durable; the messages only make it instant.
	abort := state.Abort{Reason: in.Reason, By: c.By()}
	wake, err := s.store.Abort(ctx, st.ID, abort, s.cfg.RedeliveryDelay)
	if err != nil {
		return err
	}
	id, tenant, trace := st.ID, st.Tenant, span.Parent(ctx)
	s.publish(ctx, func(ctx context.Context) error {
		if in.Published {
			return s.dispatch.WakeAborted(ctx, id, wake, trace)
		}
		return s.dispatch.Abort(ctx, id, tenant, in.Reason, wake, trace)
	})
	s.cfg.Changed(st.Tenant, st.ID)
	return nil
}

// submitter returns the principal who submitted a run, or nil if it is not known.
func (k *core) submitter(ctx context.Context, id state.RunID) (*state.By, error) {
	first, err := k.store.Log(ctx, id, 0, 1)
	if err != nil || len(first) == 0 {
		return nil, err
	}
	return first[0].By, nil
}

// ownOrOperator returns nil if the caller is an operator, has submitted the run, or is bound; else a problem.
func (k *core) ownOrOperator(ctx context.Context, c access.Caller, id state.RunID) error {
	if c.May(access.Operator) || c.Principal.Bound != nil { // load has checked that the run belongs to the bound caller
		return nil
	}
	by, err := k.submitter(ctx, id)
	if err != nil {
		return err
	}
	if by == nil || by.Principal != c.Principal.Name {
		return problem(denied, api.CodeForbidden, "%s may cancel only runs that it has submitted: ask an operator, who may cancel any", c.Principal.Name)
	}
	return nil
}

// words joins the allowed values of a parameter with commas.
func words[T ~string](list []T) string {
	texts := make([]string, len(list))
	for i, one := range list {
		texts[i] = string(one)
	}
	return strings.Join(texts, ", ")
}
