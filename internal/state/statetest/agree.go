package statetest

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Agree makes the same random calls on a store and on a model, which is a store that is known to be correct, and
// compares every answer. It covers a reimplementation of the rules of stores as a whole, which the topics of Exercise
// cannot.
//
// Leases and delays end at once or never, so the clocks of the two stores do not matter. Both open functions return
// empty stores; Agree closes those that are an io.Closer after each sequence.
func Agree[S, M state.RunStore](t *testing.T, open func(t *testing.T) S, model func(t *testing.T) M) {
	t.Helper()
	rapid.Check(t, func(rt *rapid.T) {
		d := &duel{t: t, rt: rt, store: open(t), model: model(t), id: state.RunID(state.RunPrefix + ulid.Make().String())}
		defer func() {
			for _, s := range []state.RunStore{d.store, d.model} {
				if c, ok := s.(io.Closer); ok {
					_ = c.Close()
				}
			}
		}()
		run := newRun(t)
		run.ID = d.id
		if rapid.Bool().Draw(rt, "starts later") {
			run.Status, run.ResumeAt = state.Waiting, past
			run.Waiting = &state.Wait{Reason: state.WaitingSchedule, Since: created, Calls: []state.WaitCall{}}
			run.Batch = rapid.SampledFrom([]*state.Batch{nil, {Index: 1, Size: 2, MaxParallel: 1, PendingInBatch: true}}).Draw(rt, "batch")
		}
		d.both("Create", func(s state.RunStore) (any, error) {
			made, err := s.Create(t.Context(), state.NewRun{State: run, RedeliveryDelay: d.span("delay")})
			return made.Existing, err
		})
		// Calls that continue a run are more frequent than those that interrupt it.
		rt.Repeat(map[string]func(*rapid.T){
			"claim": d.claim, "claim 2": d.claim, "claim 3": d.claim, "commit": d.commit, "commit 2": d.commit, "commit 3": d.commit, "eager": d.eager, "eager 2": d.eager,
			"record": d.record, "record 2": d.record, "signal": d.signal, "signal 2": d.signal, "signal 3": d.signal,
			"renew": d.renew, "release": d.release, "abort": d.abort, "sweep": d.sweep, "sweep 2": d.sweep, "sweep 3": d.sweep, "evict": d.evict, "mark finalized": d.markFinalized, "seal": d.seal, "unseal": d.unseal,
			"format": d.format,
			"":       d.read,
		})
	})
}

var (
	past   = state.At(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
	future = state.At(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC))
)

// duel is one sequence of calls, on one run.
type duel struct {
	t            *testing.T
	rt           *rapid.T
	store, model state.RunStore
	id           state.RunID
	claims       []turn
	commits      []sent
	tokens       int // counters for other unique words
	drawn        map[string]time.Duration
	eagerly      bool // the next commit claims a turn, if one can be claimed
}

// turn is a granted claim with its recorded entries.
type turn struct {
	*state.Claim
	recorded []state.Entry
	eager    bool // by a commit
}

type sent struct {
	lease  state.Lease
	commit state.Commit
}

// span is a duration that ends at once or never; both stores get the same.
func (d *duel) span(label string) time.Duration {
	if v, ok := d.drawn[label]; ok {
		return v
	}
	if d.drawn == nil {
		d.drawn = map[string]time.Duration{}
	}
	v := rapid.SampledFrom([]time.Duration{0, long}).Draw(d.rt, label)
	d.drawn[label] = v
	return v
}

// both makes one call on the model and on the store, and returns the model's answer.
func (d *duel) both(name string, call func(state.RunStore) (any, error)) any {
	d.drawn = nil
	want, wantErr := call(d.model)
	got, err := call(d.store)
	if diff := cmp.Diff(describe(d.t, want, wantErr), describe(d.t, got, err)); diff != "" {
		d.rt.Fatalf("%s: -model +store\n%s", name, diff)
	}
	return want
}

// describe formats an answer without the parts that may differ: times of the store's clock, and the
// text of errors that no caller branches on.
func describe(t *testing.T, v any, err error) string {
	var waiting *state.NotWaitingError
	var ended *state.TerminalError
	switch {
	case err == nil:
	case errors.Is(err, state.ErrFenced):
		return "fenced"
	case errors.Is(err, state.ErrNotFound):
		return "not found"
	case errors.As(err, &waiting):
		return waiting.Error()
	case errors.As(err, &ended):
		return ended.Error()
	default:
		return "another error"
	}
	switch v := v.(type) {
	case *state.Claim:
		v.Now, v.Busy, v.LogRead = time.Time{}, 0, 0
		if !v.TakenOver.IsZero() {
			v.TakenOver = created
		}
		if v.State == nil {
			return encode(t, v)
		}
		s := timeless(*v.State)
		v.State = &s
		return encode(t, v) + encode(t, s.Log)
	case state.State:
		return encode(t, timeless(v))
	default:
		return encode(t, v)
	}
}

func timeless(s state.State) state.State {
	if !s.StartedAt.IsZero() {
		s.StartedAt = created
	}
	return s
}

// format sets the format that both write from now on.
func (d *duel) format(rt *rapid.T) {
	n := rapid.IntRange(1, state.Format).Draw(rt, "format")
	d.store.SetFormat(n)
	d.model.SetFormat(n)
}

// seal begins a deletion, and unseal cancels it: the run accepts signals again.
func (d *duel) seal(rt *rapid.T) {
	token := rapid.SampledFrom([]string{"s1", "s2"}).Draw(rt, "seal")
	d.both("Seal", func(s state.RunStore) (any, error) {
		admitted, err := s.Seal(d.t.Context(), d.id, token)
		return len(admitted), err
	})
}

func (d *duel) unseal(rt *rapid.T) {
	token := rapid.SampledFrom([]string{"s1", "s2"}).Draw(rt, "seal")
	d.both("Unseal", func(s state.RunStore) (any, error) { return nil, s.Unseal(d.t.Context(), d.id, token) })
}

func (d *duel) version() int64 {
	s, err := d.model.Load(d.t.Context(), d.id)
	if err != nil {
		d.rt.Fatalf("Load: %v", err)
	}
	return s.Version
}

func (d *duel) claim(rt *rapid.T) {
	d.tokens++
	token := fmt.Sprint("token", d.tokens)
	// An eager claim may be served from memory, without later changes.
	if len(d.claims) > 0 && !d.claims[len(d.claims)-1].eager && rapid.IntRange(0, 4).Draw(rt, "its own token") == 0 {
		token = d.claims[len(d.claims)-1].Lease.Token
	}
	var refuse state.Attempts
	if rapid.IntRange(0, 4).Draw(rt, "refuses attempts") == 0 {
		refuse = state.Attempts{From: rapid.IntRange(2, 3).Draw(rt, "from"), To: rapid.IntRange(2, 4).Draw(rt, "to")}
	}
	q := state.ClaimRequest{
		Run: d.id, Version: d.version() + int64(rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, -1, 1}).Draw(rt, "off")), Token: token,
		Worker: rapid.SampledFrom([]string{"w1", "w2"}).Draw(rt, "worker"), Lease: rapid.SampledFrom([]time.Duration{long, long, 0}).Draw(rt, "lease"),
		Refuse: refuse,
	}
	c, _ := d.both("Claim", func(s state.RunStore) (any, error) {
		q.RedeliveryDelay = d.span("delay")
		return s.Claim(d.t.Context(), q)
	}).(*state.Claim)
	if c.Outcome == state.Claimed {
		d.claims = append(d.claims, turn{Claim: c})
	}
}

// lease picks a lease, most often the last one.
func (d *duel) lease(rt *rapid.T) *turn {
	if len(d.claims) == 0 {
		rt.Skip("nothing claimed")
	}
	i := len(d.claims) - 1
	if !d.eagerly && rapid.IntRange(0, 3).Draw(rt, "an old lease") == 0 {
		i = rapid.IntRange(0, i).Draw(rt, "which")
	}
	return &d.claims[i]
}

func (d *duel) renew(rt *rapid.T) {
	c := d.lease(rt)
	d.both("Renew", func(s state.RunStore) (any, error) {
		return s.Renew(d.t.Context(), c.Lease, d.span("lease"), d.span("delay"))
	})
}

func (d *duel) release(rt *rapid.T) {
	c := d.lease(rt)
	d.both("Release", func(s state.RunStore) (any, error) { return nil, s.Release(d.t.Context(), c.Lease, 0) })
}

func (d *duel) record(rt *rapid.T) {
	c := d.lease(rt)
	r := state.Record{From: c.State.LogLen() + int64(len(c.recorded))}
	from := r.From
	r.From += int64(rapid.SampledFrom([]int{0, 0, 0, 0, -1, 1}).Draw(rt, "off"))
	for i := range rapid.IntRange(0, 2).Draw(rt, "entries") {
		e := response(c.State.Turn+1, "c1", "c2")
		e.Seq = r.From + int64(i) + 1
		r.Entries = append(r.Entries, e)
	}
	calls := rapid.SampledFrom([]string{"c1", "c2", "c3"})
	r.Started = rapid.SliceOfN(calls, 0, 2).Draw(rt, "started")
	for _, id := range rapid.SliceOfN(calls, 0, 1).Draw(rt, "starts") {
		d.tokens++
		r.Starts = append(r.Starts, state.Start{CallID: id, Key: fmt.Sprint("key", d.tokens), Until: future, Again: d.tokens%2 == 0})
	}
	for _, id := range rapid.SliceOfN(calls, 0, 1).Draw(rt, "awaits") {
		r.Awaits = append(r.Awaits, state.AwaitCall(state.NeedAsync, id))
	}
	for _, id := range rapid.SliceOfN(calls, 0, 2).Draw(rt, "results") {
		d.tokens++
		r.Results = append(r.Results, result(id, fmt.Sprint(d.tokens)))
	}
	call := func(s state.RunStore) (any, error) {
		abort, err := s.Record(d.t.Context(), c.Lease, r)
		return recorded{err == nil, abort}, err
	}
	for range rapid.IntRange(1, 2).Draw(rt, "times") {
		if done, _ := d.both("Record", call).(recorded); done.OK && r.From == from && len(r.Entries) > 0 {
			c.recorded, from = append(c.recorded, r.Entries...), -1
		}
	}
}

// recorded is the answer to a record.
type recorded struct {
	OK    bool
	Abort *state.Abort
}

func (d *duel) commit(rt *rapid.T) {
	c := d.lease(rt)
	next := *c.State
	for _, e := range c.recorded {
		next = next.Append(e)
	}
	from := next.LogLen()
	if rapid.Bool().Draw(rt, "responds") {
		next = next.Append(response(next.Turn+1, "c1", "c2"))
	}
	next.Open = slices.Clone(next.Open)
	for i := range next.Open {
		next.Open[i].Needs = rapid.SampledFrom([]state.Need{state.NeedResult, state.NeedResult, state.NeedApproval, state.NeedChild, ""}).Draw(rt, "need")
	}
	until := rapid.SampledFrom([]state.Time{{}, past, future}).Draw(rt, "until")
	reasons := []state.Reason{state.NextTurn, state.WaitingClientTool, state.WaitingHumanInput, state.EndCompleted, state.EndAbortedStreaming}
	if next.Status.Terminal() {
		reasons = []state.Reason{state.UserMessage}
	}
	if d.eagerly {
		reasons = reasons[:1]
	}
	next = move(d.t, next, rapid.SampledFrom(reasons).Draw(rt, "reason"), state.Entry{})
	if next.Status == state.Waiting {
		next.Waiting = &state.Wait{Reason: next.Transition.Reason, Since: created, ExpiresAt: until, Calls: []state.WaitCall{}}
	}
	s := sent{c.Lease, state.Commit{
		ID: c.Lease.Token, State: &next, From: from + int64(rapid.SampledFrom([]int{0, 0, 0, 0, 0, -1, 1}).Draw(rt, "off")),
		Consumed: rapid.IntRange(0, len(c.Signals)).Draw(rt, "consumed"), RequireInboxConsumed: rapid.Bool().Draw(rt, "require inbox consumed"),
	}}
	if d.eagerly {
		s.commit.From, s.commit.Consumed = from, len(c.Signals)
	}
	if d.eagerly || rapid.Bool().Draw(rt, "eager") {
		d.tokens++
		s.commit.EagerClaim = fmt.Sprint("token", d.tokens)
	}
	// A repetition has the same arguments, and may be late.
	if !d.eagerly && len(d.commits) > 0 && rapid.IntRange(0, 4).Draw(rt, "again") == 0 {
		s = d.commits[len(d.commits)-1]
	}
	d.commits = append(d.commits, s)
	got, _ := d.both("Commit", func(st state.RunStore) (any, error) {
		if s.commit.RedeliveryDelay = long; !d.eagerly {
			s.commit.RedeliveryDelay = d.span("delay")
		}
		done, err := st.Commit(d.t.Context(), s.lease, s.commit)
		return committed{done, done.Claimed}, err
	}).(committed)
	if got.Claimed && !slices.ContainsFunc(d.claims, func(c turn) bool { return c.Lease.Token == s.commit.EagerClaim }) {
		c := &state.Claim{Lease: s.lease, State: s.commit.State, Base: s.commit.State.LogLen()}
		c.Lease.Token, c.Lease.Version = s.commit.EagerClaim, s.commit.State.Version
		d.claims = append(d.claims, turn{Claim: c, eager: true})
	}
}

// eager claims a turn eagerly, perhaps starts it, and lets another worker claim it: random calls
// rarely reach that.
func (d *duel) eager(rt *rapid.T) {
	d.claim(rt)
	if len(d.claims) == 0 {
		return
	}
	d.eagerly = true
	d.commit(rt)
	switch rapid.SampledFrom([]string{"", "renew", "record"}).Draw(rt, "use") {
	case "renew":
		d.renew(rt)
	case "record":
		d.record(rt)
	}
	d.eagerly = false
	d.claim(rt)
}

// committed has the fields of state.Committed that its encoding lacks.
type committed struct {
	state.Committed
	Claimed bool
}

func (d *duel) signal(rt *rapid.T) {
	id := rapid.StringMatching(`s[0-9]`).Draw(rt, "id")
	text := "yes"
	sig := rapid.SampledFrom([]state.Signal{
		resultSignal(id, "c1"), resultSignal(id, "c2"), resultSignal(id, "c1", "c2"), resultSignal(id, "c1", "c1"), message(id, "line\nline"), {ID: id, Start: true},
		{ID: id, Answer: &text}, {ID: id, Approvals: []state.Approval{{CallID: "c1", Decision: state.Approve}}},
		{ID: id, Message: message(id, "both").Message, ToolResults: resultSignal(id, "c2").ToolResults},
	}).Draw(rt, "signal")
	sig.Fingerprint = rapid.SampledFrom([]string{"", "", "one", "two"}).Draw(rt, "fingerprint")
	d.both("Signal", func(s state.RunStore) (any, error) { return s.Signal(d.t.Context(), d.id, sig, d.span("delay")) })
}

func (d *duel) abort(rt *rapid.T) {
	reason := rapid.SampledFrom([]string{"", "enough", `"quoted"`}).Draw(rt, "reason")
	d.both("Abort", func(s state.RunStore) (any, error) {
		return s.Abort(d.t.Context(), d.id, state.Abort{Reason: reason}, d.span("delay"))
	})
}

// listed treats a nil list and an empty list as equal.
func listed[E any](list []E, err error) (any, error) { return append([]E{}, list...), err }

func (d *duel) sweep(rt *rapid.T) {
	backlog := rapid.SampledFrom([]state.Backlog{
		nil, {state.Normal: time.Unix(1, 0)}, {state.High: time.Unix(1, 0)}, {state.Normal: time.Unix(1<<33, 0), state.Low: time.Unix(1, 0)},
	}).Draw(rt, "backlog")
	delay := rapid.SampledFrom([]time.Duration{0, long}).Draw(rt, "delay")
	if delay == 0 {
		// Without a delay, a covered run is due again after as long as it has been queued: that time passes at
		// different moments for the two stores.
		backlog = nil
	}
	d.both("Sweep", func(s state.RunStore) (any, error) { return listed(s.Sweep(d.t.Context(), 10, delay, backlog)) })
}

func (d *duel) evict(rt *rapid.T) {
	worker := rapid.SampledFrom([]string{"w1", "w2"}).Draw(rt, "worker")
	d.both("Evict", func(s state.RunStore) (any, error) {
		return listed(s.Evict(d.t.Context(), worker, 100, d.span("delay")))
	})
}

func (d *duel) markFinalized(rt *rapid.T) {
	seq := rapid.Int64Range(0, 12).Draw(rt, "seq")
	d.both("MarkFinalized", func(s state.RunStore) (any, error) { return nil, s.MarkFinalized(d.t.Context(), d.id, seq) })
}

// read compares the contents of the two stores after every call.
func (d *duel) read(*rapid.T) {
	d.both("Load", func(s state.RunStore) (any, error) { return s.Load(d.t.Context(), d.id) })
	d.both("Log", func(s state.RunStore) (any, error) { return listed(s.Log(d.t.Context(), d.id, 0, 0)) })
	// Each list that could contain the run does so in both or in neither, whatever changes the index has seen.
	is, err := d.model.Load(d.t.Context(), d.id)
	if err != nil {
		d.rt.Fatalf("Load: %v", err)
	}
	filters := []state.Filter{{Status: []state.Status{is.Status}}, {Status: slices.DeleteFunc(state.Statuses(), func(st state.Status) bool { return st == is.Status })}}
	if is.Waiting != nil {
		filters = append(filters, state.Filter{Waiting: is.Waiting.Reason})
	}
	for _, f := range filters {
		f.Tenant = is.Tenant
		d.both("List", func(s state.RunStore) (any, error) {
			page, err := s.List(d.t.Context(), f)
			ids := []state.RunID{}
			for _, r := range page.Runs {
				ids = append(ids, r.ID)
			}
			return ids, err
		})
	}
	d.both("Owners", func(s state.RunStore) (any, error) { return listed(s.Owners(d.t.Context())) })
	for _, worker := range []string{"w1", "w2"} {
		d.both("Leases", func(s state.RunStore) (any, error) {
			held, err := s.Leases(d.t.Context(), worker, 1000)
			slices.Sort(held)
			return listed(held, err)
		})
	}
	d.both("Counts", func(s state.RunStore) (any, error) {
		counts, err := s.Counts(d.t.Context())
		maps.DeleteFunc(counts, func(_ state.Status, n int64) bool { return n == 0 })
		return counts, err
	})
}
