package turn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/engine/upkeep"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// recorder is the part of a store that a Journal needs.
type recorder interface {
	Record(ctx context.Context, l state.Lease, r state.Record) (*state.Abort, error)
}

// readers receive a call after each write and after the commit.
type readers interface {
	// LogGrown reports that the log in the store has grown from from to length entries, which may be equal.
	LogGrown(ctx context.Context, from, length int64)
}

// Journal makes all records (state.Turns.Record) of a turn. The comment of each method states what is durable once it
// returns nil. A method repeats a write with an unknown outcome until its timeout, because the store keeps each write
// once, and continues after an abort of its turn, because what has happened must be kept. If the store reports a
// pending abort or interrupt, the method ends the context of the turn, so that the caller starts nothing that had to
// wait for the write (I7). Errors wrap effect.ErrDrop. Only Spent and Late differ, because they run when the attempt is
// over: they have their own time limits, ignore a pending abort, and return the error of the store. Only the goroutine
// of the turn may use a Journal, and it must not copy a Journal that it has used.
type Journal struct {
	store recorder
	lease *upkeep.Lease
	cfg   JournalConfig

	length  int64             // entries of the log that the store has
	results []loop.ToolResult // of the calls of this turn, in the order of their return
	held    bool              // only the commit will write the last of results
	unsaved bool              // the store may lack one of results
}

// JournalConfig has the settings of a Journal. All fields are required.
type JournalConfig struct {
	Attempt int           // of the turn
	Length  int64         // entries of the log that the store has
	Timeout time.Duration // of one method

	// Outlive returns a context for a write that must be made although ctx has ended. It ends after d or earlier.
	Outlive func(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)

	Readers readers
	Log     *slog.Logger // of the worker
}

// NewJournal returns the journal of the turn that has a lease.
func NewJournal(store recorder, l *upkeep.Lease, cfg JournalConfig) Journal {
	return Journal{store: store, lease: l, cfg: cfg, length: cfg.Length}
}

// Response makes the whole log durable, and with it the response or the checkpoint that ends it.
func (j *Journal) Response(ctx context.Context, log []state.Entry) error {
	return j.write(ctx, log, state.Record{})
}

// Facts makes the response and the facts that the loop has added to it durable, but not the decision that
// follows them: the next attempt makes that decision again. It writes nothing, and returns false, if the log
// has no new response.
func (j *Journal) Facts(ctx context.Context, log []state.Entry) (found bool, err error) {
	added := state.After(log, j.length)
	end := slices.IndexFunc(added, func(e state.Entry) bool { return e.Type == state.EntryModel }) + 1
	if end == 0 {
		return false, nil
	}
	for end < len(added) && slices.Contains(facts, added[end].Type) {
		end++
	}
	return true, j.write(ctx, state.Through(log, j.length+int64(end)), state.Record{})
}

// facts are the types of entries that a loop adds to a response once.
var facts = []state.EntryType{state.EntryWarning, state.EntryProgress, state.EntryReflect}

// Starts makes the log and the start marks of the first batch of calls durable. No call with a mark may start before
// Starts returns nil.
func (j *Journal) Starts(ctx context.Context, log []state.Entry, marks state.Record) error {
	if err := j.write(ctx, log, marks); err != nil {
		return err
	}
	j.results = nil // the log has those of earlier calls
	return nil
}

// Result makes the last of results durable, together with the log and the start marks of the batch that follows it.
// results are those of all calls so far, in the order of their return. It does not store a result that is pending or
// asks a person a question. If the store has no capacity for the last one in addition to the others, Result replaces
// it in results with an error result: otherwise the turn could never be committed, and the run would end poisoned.
func (j *Journal) Result(ctx context.Context, log []state.Entry, results []loop.ToolResult, marks state.Record) error {
	j.results, j.unsaved = results, true
	err := j.writeResult(ctx, log, marks, &results[len(results)-1])
	j.unsaved = err != nil
	return err
}

// Finding makes the result durable that a probe has found. It may replace *r as Result replaces a result.
func (j *Journal) Finding(ctx context.Context, log []state.Entry, r *loop.ToolResult) error {
	return j.writeResult(ctx, log, state.Record{}, r)
}

// Keep makes nothing durable. After a write that failed, the results stay in memory for Late.
func (j *Journal) Keep(results []loop.ToolResult) { j.results = results }

// Hold makes nothing durable. It leaves the last of results to the commit. Unless the commit follows at once, the
// caller calls Flush first.
func (j *Journal) Hold(results []loop.ToolResult) {
	j.results, j.held, j.unsaved = results, true, true
}

// Flush makes the result durable that Hold has left to the commit, and reports whether there was
// one.
func (j *Journal) Flush(ctx context.Context, log []state.Entry) (held bool, err error) {
	if !j.held {
		return false, nil
	}
	j.held = false
	return true, j.Result(ctx, log, j.results, state.Record{})
}

// spentTimeout bounds Spent: the turn is about to be released.
const spentTimeout = 5 * time.Second

// Spent tries once, within 5 s (spentTimeout), to make the log with the cost of interrupted model calls
// durable.
func (j *Journal) Spent(ctx context.Context, log []state.Entry) error {
	ctx, cancel := j.cfg.Outlive(ctx, spentTimeout)
	defer cancel()
	_, err := j.store.Record(ctx, j.lease.Lease, j.record(log, state.Record{}))
	if err == nil {
		j.grown(ctx, state.LogLen(log))
	}
	return err
}

// Late hands in the results since the last Starts of a turn that this worker has lost, without those that are pending
// or ask a person a question. It retries until the store has accepted or refused them, or patience has passed. The
// store keeps those that the next attempt can use.
func (j *Journal) Late(ctx context.Context, patience time.Duration) error {
	ctx, cancel := j.cfg.Outlive(ctx, patience)
	defer cancel()
	late := state.Record{From: j.length} // if the lease is still in force after all, it is kept like any other
	for _, r := range j.results {
		if !r.Pending && r.Ask == nil {
			late.Results = append(late.Results, entryOf(r))
		}
	}
	if len(late.Results) == 0 {
		return nil
	}
	for {
		if _, err := j.store.Record(ctx, j.lease.Lease, late); err == nil || final(err) || !clock.Pause(ctx, storePause) {
			return err
		}
	}
}

// Committed must be called after the commit, which has made the whole log durable.
func (j *Journal) Committed(ctx context.Context, log []state.Entry) {
	j.held = false
	j.grown(ctx, state.LogLen(log))
}

// stamp writes the attempt into the entries that the store does not have yet. Like the worker and the duration,
// which sign adds, the attempt is not visible to loops.
func (j *Journal) stamp(log []state.Entry) {
	added := state.After(log, j.length)
	for i := range added {
		if added[i].Attempt == 0 {
			added[i].Attempt = j.cfg.Attempt
		}
	}
}

// record returns r with the entries of log that the store does not have yet.
func (j *Journal) record(log []state.Entry, r state.Record) state.Record {
	j.stamp(log)
	r.From, r.Entries = j.length, state.After(log, j.length)
	return r
}

func (j *Journal) write(ctx context.Context, log []state.Entry, r state.Record) error {
	within, cancel := j.cfg.Outlive(ctx, j.cfg.Timeout)
	defer cancel()
	r = j.record(log, r)
	for {
		abort, err := j.store.Record(within, j.lease.Lease, r)
		if err == nil {
			j.lease.Wrote()
			j.lease.Interrupt(abort)
			j.grown(ctx, state.LogLen(log))
			return nil
		}
		if final(err) || !clock.Pause(within, storePause) {
			return fmt.Errorf("%w: write the journal: %w", effect.ErrDrop, err)
		}
	}
}

func (j *Journal) writeResult(ctx context.Context, log []state.Entry, r state.Record, result *loop.ToolResult) error {
	if result.Pending || result.Ask != nil {
		return j.write(ctx, log, r) // its result is a signal, or the answer of a person
	}
	r.Results = []state.Entry{entryOf(*result)}
	err := j.write(ctx, log, r)
	full, ok := errors.AsType[*state.TooLargeError](err)
	if !ok {
		return err
	}
	j.cfg.Log.Warn("result of a tool is too large to be stored; the model reads an error instead", "error", fmt.Errorf("result of tool %q: %w", result.Name, full), "run_id", j.lease.Run, "hint", "make the tool return less data")
	result.Content, result.Images, result.Files, result.IsError = fmt.Sprintf("Tool %q was called, but its result of %d bytes cannot be stored, since the results of this turn may have about %d bytes in total: "+
		"request less data at once, or images by their URL", result.Name, effect.BytesOf(*result), full.Limit), nil, nil, true
	r.Results = []state.Entry{entryOf(*result)}
	return j.write(ctx, log, r)
}

func (j *Journal) grown(ctx context.Context, length int64) {
	from := j.length
	j.length = length
	j.cfg.Readers.LogGrown(ctx, from, length)
}

func entryOf(r loop.ToolResult) state.Entry {
	m := state.ToolResult(r.CallID, r.Content, r.IsError, r.Images...)
	m.Parts[0].Files, m.Parts[0].Origin = r.Files, r.Origin
	m.At = r.At
	return state.Entry{
		Type: state.EntryTool, At: r.At, Message: &m, CallID: r.CallID, Name: r.Name, IsError: r.IsError,
		DurationMS: r.Duration.Milliseconds(),
	}
}
