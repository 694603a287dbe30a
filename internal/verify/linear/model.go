// Package linear checks that stores are linearizable. Many clients work on one run at once, over connections
// that break and servers that restart. Their operations must have one order in which the record of the run
// (internal/state/record) gives each of them the answer that it got.
package linear

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Call is one operation of a client. Exactly one field in addition to Run and At is set, Load and
// Log by true.
type Call struct {
	Run state.RunID
	At  time.Time // by the client's clock

	Create  *state.NewRun
	Load    bool
	ByKey   *state.NewRun // LoadByKey of the run that this operation creates
	Log     bool
	Claim   *state.ClaimRequest
	Record  *state.Record
	Commit  *state.Commit
	Release bool
	Signal  *state.Signal
	Abort   *string

	Lease state.Lease // of Record, Commit, Release

	over bool // no operation with a known outcome follows
}

// once names the effect that all attempts at c together have only once, or is empty: a late claim may take the
// lease again, and an abort counts each time.
func (c Call) once() string {
	switch {
	case c.Create != nil:
		return "create"
	case c.Signal != nil:
		return "signal " + c.Signal.ID
	case c.Commit != nil:
		return "commit " + c.Commit.ID
	case c.Record != nil:
		return "record " + c.Lease.Token
	case c.Release:
		return "release " + c.Lease.Token
	default:
		return ""
	}
}

// Answer is the result of an operation. An operation with an unknown outcome may have happened, may
// happen later, or never.
type Answer struct {
	Unknown bool
	bounded bool  // another attempt is known to have done it
	Err     error // of those that a store promises

	State     state.State // Create, Load, ByKey
	Existing  bool
	Log       []state.Entry
	Claim     state.Claim
	Committed state.Committed
	Wake      state.Wake

	log string // the log in the answers of Log and Claim, encoded
}

// slack is the maximum difference between the clocks of the parties, rounding included.
const slack = 5 * time.Millisecond

// run is the model's state: the record, its log, and the bounds of the lease's end. It is a value.
type run struct {
	exists bool
	over   bool
	rec    record.Record
	log    string // encoded
	digest uint64 // of log

	ends, endsBy time.Time // the lease; endsBy is zero if unknown

	id string // hash of all this; equal for equal states
}

func (r run) named() run {
	rec := r.rec
	// Times are not visible in answers, except the lease.
	rec.Due, rec.WakeAt, rec.LeaseEnd, rec.StartedAt, rec.Sweeps = state.Time{}, state.Time{}, state.Time{}, state.Time{}, 0
	b, err := json.Marshal(rec)
	if err != nil {
		panic(err) // a record encodes
	}
	if rec.Status != state.Running {
		r.ends, r.endsBy = time.Time{}, time.Time{}
	}
	r.id = fmt.Sprint(r.exists, r.over, r.ends.UnixMilli(), r.endsBy.UnixMilli(), len(r.log), r.digest, string(b))
	return r
}

func (r *run) append(entries []state.Entry) {
	if len(entries) == 0 {
		return
	}
	r.log += encodeLog(entries)
	r.digest = digest(r.log)
}

func digest(text string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text)) // never fails
	return h.Sum64()
}

// Model is the sequential specification of one run, for porcupine.
func Model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return run{}.named() },
		Step: func(s, in, out any) (bool, any) {
			r, c, a := s.(run), in.(Call), out.(Answer)
			before := r
			switch {
			case c.over:
				r.over = true
			case r.over:
				return a.Unknown, s
			case !r.step(c, a):
				return false, s
			}
			r = r.named()
			// An operation without an answer and without a change can as well come last: without this rule the
			// search would try it everywhere.
			return !a.Unknown || a.bounded || r.id != before.id, r
		},
		Equal:             func(a, b any) bool { return a.(run).id == b.(run).id },
		Hash:              func(s any) uint64 { return digest(s.(run).id) },
		DescribeOperation: func(in, out any) string { return describe(in.(Call), out.(Answer)) },
		DescribeState: func(s any) string {
			r := s.(run)
			return fmt.Sprintf("%s, version %d, %d entries, inbox %d", r.rec.Status, r.rec.Version, r.rec.LogLen, len(r.rec.Inbox))
		},
	}
}

// step applies c, and reports whether a is the model's answer.
func (r *run) step(c Call, a Answer) bool {
	if c.Create != nil {
		return r.create(c, a)
	}
	if !r.exists {
		return a.Unknown || c.Claim != nil && a.Err == nil && a.Claim.Outcome == state.ClaimMissing ||
			c.Claim == nil && errors.Is(a.Err, state.ErrNotFound)
	}
	switch {
	case c.Load, c.ByKey != nil:
		return a.Unknown || a.Err == nil && sameState(r.rec.Read(), a.State)
	case c.Log:
		return a.Unknown || a.Err == nil && r.log == a.log
	case c.Claim != nil:
		return r.claim(c, a)
	case c.Record != nil:
		entries, err := r.rec.Record(c.Lease, *c.Record)
		r.append(entries)
		return a.Unknown || sameErr(err, a.Err)
	case c.Commit != nil:
		entries, done, err := r.rec.Commit(c.Lease, *c.Commit, c.At)
		r.append(entries)
		return a.Unknown || sameErr(err, a.Err) && (err != nil || done == a.Committed)
	case c.Release:
		err := r.rec.Release(c.Lease, c.At, 0)
		return a.Unknown || sameErr(err, a.Err)
	case c.Signal != nil:
		w, err := r.rec.Signal(c.Run, *c.Signal, c.At, 0)
		return a.Unknown || sameErr(err, a.Err) && (err != nil || w == a.Wake)
	case c.Abort != nil:
		w, err := r.rec.RequestAbort(c.Run, state.Abort{Reason: *c.Abort}, c.At, 0)
		return a.Unknown || sameErr(err, a.Err) && (err != nil || w == a.Wake)
	default:
		return false
	}
}

func (r *run) create(c Call, a Answer) bool {
	existing := r.exists
	if !existing {
		r.exists, r.rec = true, record.New(c.Create.State, c.At, c.Create.RedeliveryDelay)
		r.append(c.Create.State.Log)
	}
	return a.Unknown || a.Err == nil && a.Existing == existing && sameState(r.rec.Read(), a.State)
}

// claim uses the store's time, if known, and checks the lease against it: no other caller may get
// it before its end, or be refused it after.
func (r *run) claim(c Call, a Answer) bool {
	now := a.Claim.Now
	if a.Unknown {
		now = c.At
	}
	if r.rec.Status == state.Running && r.rec.Token != c.Claim.Token {
		over := a.Unknown || a.Claim.Outcome != state.ClaimBusy
		switch {
		case a.Unknown:
		case over && c.Claim.Version == r.rec.Version && now.Before(r.ends.Add(-slack)):
			return false
		case !over && !r.endsBy.IsZero() && now.After(r.endsBy.Add(slack)):
			return false
		}
		r.rec.LeaseEnd = state.At(now.Add(time.Minute))
		if over {
			r.rec.LeaseEnd = state.At(now)
		}
	}
	got := r.rec.Claim(*c.Claim, now)
	if got.Outcome == state.Claimed {
		r.ends, r.endsBy = now.Add(c.Claim.Lease), now.Add(c.Claim.Lease)
		if a.Unknown {
			r.endsBy = time.Time{} // it may come late
		}
	}
	if a.Unknown {
		return true
	}
	return a.Err == nil && sameClaim(*got, a.Claim) && (got.Outcome != state.Claimed || r.log == a.log)
}

func sameClaim(want, got state.Claim) bool {
	if want.Outcome != got.Outcome || want.Status != got.Status || want.Version != got.Version || want.Priority != got.Priority ||
		want.FinalizedSeq != got.FinalizedSeq || want.LogLen != got.LogLen {
		return false
	}
	if want.Outcome != state.Claimed {
		return true
	}
	return want.Lease == got.Lease && want.Base == got.Base && want.Attempt == got.Attempt &&
		encode(want.Abort) == encode(got.Abort) && encode(want.Journal.Started) == encode(got.Journal.Started) &&
		encode(want.Journal.Results) == encode(got.Journal.Results) && ids(want.Signals) == ids(got.Signals) &&
		sameState(*want.State, *got.State)
}

func ids(signals []state.Signal) string {
	var b []byte
	for _, s := range signals {
		b = append(append(b, s.ID...), ' ')
	}
	return string(b)
}

// sameState compares headers. The start time depends on the store's clock.
func sameState(want, got state.State) bool {
	want.StartedAt, got.StartedAt = state.Time{}, state.Time{}
	a, errA := state.EncodeState(want)
	b, errB := state.EncodeState(got)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

func sameErr(want, got error) bool {
	var closed *state.NotWaitingError
	var ended *state.TerminalError
	switch {
	case want == nil || got == nil:
		return want == nil && got == nil
	case errors.As(want, &closed), errors.As(want, &ended):
		return want.Error() == got.Error()
	default:
		return errors.Is(want, state.ErrFenced) && errors.Is(got, state.ErrFenced)
	}
}

func encodeLog(log []state.Entry) string {
	var b []byte
	for _, e := range log {
		line, err := state.EncodeEntry(&e)
		if err != nil {
			panic(err) // an entry encodes
		}
		b = append(append(b, line...), '\n')
	}
	return string(b)
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // these types encode
	}
	return string(b)
}

func describe(c Call, a Answer) string {
	var what string
	switch {
	case c.Create != nil:
		what = fmt.Sprintf("create → existing %v", a.Existing)
	case c.Load:
		what = fmt.Sprintf("load → %s, version %d", a.State.Status, a.State.Version)
	case c.ByKey != nil:
		what = fmt.Sprintf("load by key → %s, version %d", a.State.Status, a.State.Version)
	case c.Log:
		what = fmt.Sprintf("log → %d entries", len(a.Log))
	case c.Claim != nil:
		what = fmt.Sprintf("claim %d by %s → %s, %s at version %d, attempt %d, signals [%s]", c.Claim.Version, c.Claim.Token, a.Claim.Outcome, a.Claim.Status, a.Claim.Version, a.Claim.Attempt, ids(a.Claim.Signals))
	case c.Record != nil:
		what = fmt.Sprintf("record by %s, %d entries from %d", c.Lease.Token, len(c.Record.Entries), c.Record.From)
	case c.Commit != nil:
		what = fmt.Sprintf("commit %s: %s → %s, version %d", c.Commit.ID, c.Commit.State.Transition.Reason, a.Committed.Status, a.Committed.Version)
	case c.Release:
		what = "release by " + c.Lease.Token
	case c.Signal != nil:
		what = fmt.Sprintf("signal %s → publish %v at version %d", c.Signal.ID, a.Wake.Publish, a.Wake.Version)
	case c.Abort != nil:
		what = fmt.Sprintf("abort %s → publish %v at version %d", *c.Abort, a.Wake.Publish, a.Wake.Version)
	}
	switch {
	case a.Unknown:
		what += " (no answer)"
	case a.Err != nil:
		what += ": " + a.Err.Error()
	}
	return what
}
