package redisstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/state/logcache"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Claim implements state.Turns. It answers from memory the claim of a Commit.EagerClaim that this process
// has committed. Other claims return the end of the log, which Claim reads separately if it is long. The
// rest of the log comes from the cache, and so does the header if this process made the last commit.
func (s *Store) Claim(ctx context.Context, q state.ClaimRequest) (*state.Claim, error) {
	if known, ok := s.cache.Resume(q.Run, q.Token); ok && known.Header.State.Version == q.Version {
		return resumed(&q, &known), nil
	}
	c, err := s.claim(ctx, &q)
	if err != nil {
		return new(state.Claim), fmt.Errorf("claim run %s: %w", q.Run, err)
	}
	return c, nil
}

// claim asks the server for the claim q.
func (s *Store) claim(ctx context.Context, q *state.ClaimRequest) (*state.Claim, error) {
	known := s.cache.Get(q.Run)
	keys, args := s.claimCommand(q, &known)
	r, err := claimScript.send(ctx, s, keys, args)
	if err != nil {
		return nil, err
	}
	c := claimOf(r)
	if c.Outcome != state.Claimed {
		return c, nil
	}
	c.Lease = state.Lease{Run: q.Run, Token: q.Token, Version: c.Version, Worker: q.Worker}
	if err := claimHeaderOf(c, r, known.Header.State); err != nil {
		return nil, err
	}
	if c.LogOmitted = q.Omits(c.State); !c.LogOmitted {
		if err := s.claimLog(ctx, c, r, known.Entries); err != nil {
			return nil, err
		}
	}
	return c, fill(c, r)
}

// claimCommand returns the command of the claim q by a process that has cached the known log.
func (s *Store) claimCommand(q *state.ClaimRequest, known *logcache.Known) (keys []string, args []any) {
	k := s.keys.run(q.Run)
	keys = []string{k.header, k.log, k.journal, k.inbox, k.due, k.count, k.leases, k.mark}
	return keys, append(claimScript.command(keys, 13),
		string(q.Run), q.Version, q.Token, q.Worker, q.Lease.Milliseconds(), q.RedeliveryDelay.Milliseconds(), state.LogLen(known.Entries), known.Sum, known.Header.Commit, q.Refuse.From, q.Refuse.To, s.floor.Load(), q.MaxLogBytes)
}

// claimOf returns a claim with its outcome.
func claimOf(r reply[claimPlace]) *state.Claim {
	return &state.Claim{
		Outcome: state.Outcome(r.str(claimOutcome)), Status: state.Status(r.str(claimStatus)), Version: r.num(claimVersion), Priority: state.Priority(r.str(claimLane)),
		FinalizedSeq: r.num(claimFinalized), LogLen: r.num(claimLength), Busy: time.Duration(r.num(claimBusy)) * time.Millisecond, Now: millis(r.num(claimClock)).Time,
	}
}

// claimHeaderOf sets what a claim says of the run apart from its log, journal and inbox. The header is the known one
// if the server returned none.
func claimHeaderOf(c *state.Claim, r reply[claimPlace], known *state.State) (err error) {
	if header := r.str(claimHeader); header == "" {
		c.State = new(*known)
		c.State.Log = nil
	} else if c.State, err = state.DecodeHeader(r.str(claimFixed), header); err != nil {
		return err
	}
	c.State.ID = c.Lease.Run
	if c.State.StartedAt.IsZero() {
		c.State.StartedAt = millis(r.num(claimStarted))
	}
	c.Base, c.Attempt, c.Paused = r.num(claimBase), int(r.num(claimAttempts)), int(r.num(claimPaused))
	if at := r.num(claimTakenOver); at > 0 {
		c.TakenOver = millis(at)
	}
	c.Abort, err = decodeAbort(c.Lease.Run, r.str(claimAbort))
	return err
}

// claimLog sets the log of a claimed run: from the cached entries and the end that the server returned, or from a
// further read if that end is too short.
func (s *Store) claimLog(ctx context.Context, c *state.Claim, r reply[claimPlace], known []state.Entry) error {
	tail, err := r.list(claimTail)
	if err != nil {
		return err
	}
	// The server reports how much of the cached log is valid: all or nothing.
	if r.num(claimKnown) > 0 {
		c.State.Log = known
	}
	if known := c.State.LogLen(); c.LogLen > known {
		c.LogRead = c.LogLen - max(known, r.num(claimFrom))
		if c.State.Log, err = s.extend(ctx, c.Lease.Run, c.State.Log, r.num(claimFrom), tail, c.LogLen); err != nil {
			return err
		}
	}
	c.State.Log = state.FromCheckpoint(c.State.Log, c.State.Checkpoint)
	if state.CheckpointOf(c.State.Log) != nil {
		c.State.Checkpoint = c.State.Log[0].Seq // an older build may have dropped it from the header
	}
	return nil
}

// capacityFor returns the spare capacity for a log of n entries that is read for a turn, so that the turn's first
// entry does not copy it. It is small for a new run, because many new runs may wait for their first responses at once.
func capacityFor(n int64) int64 { return min(n+2, 8) }

// extend returns a log up to its entry n: the known entries, and after them those after entry from, which is before n.
// The latter are tail or, if tail is empty, are read from the server. If no log is known, the result begins after entry
// from. If another process has appended to the log since the claim, extend omits that, and returns no error: that
// process has fenced the claim, so the next write under the lease fails.
func (s *Store) extend(ctx context.Context, run state.RunID, known []state.Entry, from int64, tail []string, n int64) ([]state.Entry, error) {
	if len(tail) == 0 {
		var err error
		if tail, err = s.readTail(ctx, run, from, n); err != nil {
			return nil, err
		}
	}
	if int64(len(tail)) != n-from {
		return nil, cutLog(run, from+int64(len(tail)), n)
	}
	last := []byte(tail[len(tail)-1])
	log, err := decodeEntries(append(make([]state.Entry, 0, int64(len(known)+len(tail))+capacityFor(n)), known...), from, tail)
	if err != nil {
		return nil, err
	}
	s.cache.Put(run, slices.Clip(log), last, logcache.Header{})
	return log, nil
}

// readTail reads the encoded entries of a log after entry from up to n.
func (s *Store) readTail(ctx context.Context, run state.RunID, from, n int64) ([]string, error) {
	tail, err := s.rdb.LRange(ctx, s.keys.run(run).log, from, n-1).Result()
	if err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	return tail, nil
}

// cutLog returns the error of a log with fewer entries than its header says.
func cutLog(run state.RunID, entries, want int64) error {
	return fmt.Errorf("the log of run %s has %d entries instead of the %d in its header: if this repeats, the stored data is damaged: restore Redis from a backup", run, entries, want)
}

// fill decodes the journal and the inbox of a claim.
func fill(c *state.Claim, r reply[claimPlace]) error {
	journal, err := r.list(claimJournal)
	if err != nil {
		return err
	}
	c.Journal = state.Journal{Started: map[string]bool{}, Results: map[string]state.Entry{}}
	for i := 0; i+1 < len(journal); i += 2 {
		if id, ok := strings.CutPrefix(journal[i], "s:"); ok {
			if err := fillStart(&c.Journal, id, journal[i+1]); err != nil {
				return err
			}
		} else if id, ok := strings.CutPrefix(journal[i], "r:"); ok {
			if c.Journal.Results[id], err = state.DecodeEntry(0, journal[i+1]); err != nil {
				return err
			}
		}
	}
	inbox, err := r.list(claimInbox)
	if err != nil {
		return err
	}
	for _, text := range inbox {
		parts := strings.SplitN(text, "\n", 3)
		var sig state.Signal
		if err := json.Unmarshal([]byte(parts[len(parts)-1]), &sig); err != nil {
			return fmt.Errorf("decode signal: %w", err)
		}
		c.Signals = append(c.Signals, sig)
	}
	return nil
}

// bareStart marks a start without further data.
const bareStart = "1"

// fillStart decodes the start of a call.
func fillStart(j *state.Journal, id, stored string) error {
	j.Started[id] = true
	if stored == bareStart {
		return nil
	}
	start := state.Start{CallID: id}
	if err := json.Unmarshal([]byte(stored), &start); err != nil {
		return fmt.Errorf("decode start of call %s: %w", id, err)
	}
	if j.Starts == nil {
		j.Starts = map[string]state.Start{}
	}
	j.Starts[id] = start
	return nil
}

// resumed returns the answer to an eager claim.
func resumed(q *state.ClaimRequest, known *logcache.Known) *state.Claim {
	n := state.LogLen(known.Entries)
	return &state.Claim{
		Outcome: state.Claimed, Status: state.Running, Version: q.Version, Priority: known.Header.State.Priority, LogLen: n,
		Lease: state.Lease{Run: q.Run, Token: q.Token, Version: q.Version, Worker: q.Worker},
		State: known.Header.State, Base: n, Attempt: 1,
	}
}

// Renew implements state.Turns.
func (s *Store) Renew(ctx context.Context, l state.Lease, lease, delay time.Duration) (*state.Abort, error) {
	k := s.keys.run(l.Run)
	r, err := renewScript.batched(ctx, s, []string{k.header, k.due},
		string(l.Run), l.Token, l.Version, lease.Milliseconds(), delay.Milliseconds())
	if err != nil {
		return nil, fmt.Errorf("renew lease of run %s: %w", l.Run, err)
	}
	if r.str(renewWord) == "fenced" {
		return nil, state.ErrFenced
	}
	return decodeAbort(l.Run, r.str(renewAbort))
}

// decodeAbort decodes the abort of a run; nil if none is pending.
func decodeAbort(id state.RunID, text string) (*state.Abort, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // no abort is the common answer
	}
	var a state.Abort
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return nil, fmt.Errorf("decode abort of run %s: %w", id, err)
	}
	return &a, nil
}

// Record implements state.Turns.
func (s *Store) Record(ctx context.Context, l state.Lease, j state.Record) (*state.Abort, error) {
	awaits, err := names(j.Awaits)
	if err != nil {
		return nil, err
	}
	k := s.keys.run(l.Run)
	keys := []string{k.header, k.log, k.journal, k.inbox}
	args := recordScript.command(keys, 8+len(j.Started)+2*len(j.Starts)+2*len(j.Results)+len(j.Entries))
	args = append(args, l.Token, l.Version, j.From, len(j.Started), len(j.Starts), len(j.Results), len(j.Entries), awaits)
	for _, id := range j.Started {
		args = append(args, id)
	}
	for _, start := range j.Starts {
		start.Token = l.Token
		b, err := json.Marshal(start)
		if err != nil {
			return nil, err
		}
		args = append(args, start.CallID, b)
	}
	for _, e := range j.Results {
		e.Seq = 0 // it has no place in the log yet
		b, err := state.EncodeEntry(&e)
		if err != nil {
			return nil, err
		}
		args = append(args, e.CallID, b)
	}
	if args, err = appendEntries(args, j.Entries); err != nil {
		return nil, err
	}
	r, err := recordScript.send(ctx, s, keys, args)
	if err != nil {
		return nil, fmt.Errorf("write the journal of run %s: %w", l.Run, err)
	}
	if err := verdict(r, l.Run, j.From); err != nil {
		return nil, err
	}
	return decodeAbort(l.Run, r.str(recordAbort))
}

// verdict converts the reply of a fenced script into an error.
func verdict[P ~int](r reply[P], id state.RunID, from int64) error {
	v := reply[verdictPlace](r)
	switch v.str(verdictWord) {
	case "ok":
		return nil
	case "fenced":
		return state.ErrFenced
	case "missing":
		return fmt.Errorf("run %s: %w", id, state.ErrNotFound)
	case "deleted":
		return fmt.Errorf("run %s: %w", id, state.ErrDeleted)
	case "deleting":
		return fmt.Errorf("run %s: %w", id, state.ErrDeleting)
	case "newer":
		return fmt.Errorf("run %s: %w", id, state.ErrFormat)
	case "unheard":
		return state.ErrUnconsumedSignals
	default:
		return &state.GapError{ID: id, Have: v.num(verdictLength), From: from}
	}
}

// Commit implements state.Turns.
func (s *Store) Commit(ctx context.Context, l state.Lease, c state.Commit) (state.Committed, error) {
	if c.From < 0 || c.From > c.State.LogLen() {
		return state.Committed{}, fmt.Errorf("commit run %s: the new state has %d log entries, and the commit says that %d of them are already stored: report this bug in Turnpike", l.Run, c.State.LogLen(), c.From)
	}
	c.State = c.State.Formatted(s.Written())
	header, err := state.EncodeChanging(c.State)
	if err != nil {
		return state.Committed{}, err
	}
	awaited, err := names(c.State.Accepts())
	if err != nil {
		return state.Committed{}, err
	}
	requireConsumed := ""
	if c.RequireInboxConsumed && c.State.Status.Terminal() {
		requireConsumed = "1"
	}
	k, entries := s.keys.run(l.Run), state.After(c.State.Log, c.From)
	keys := []string{k.header, k.log, k.journal, k.inbox, k.due, k.count, k.tenants, k.leases, k.lists, k.figures}
	args := append(commitScript.command(keys, 20+len(entries)),
		string(l.Run), l.Token, l.Version, c.ID, string(c.State.Status), c.State.Version, header, awaited, wake(c.State),
		c.Consumed, c.RedeliveryDelay.Milliseconds(), c.From, c.EagerClaim, l.Worker, c.State.Format, waitReason(c.State), requireConsumed, packFigures(c), checkpointOf(c.State), logBytesOf(c.State))
	if args, err = appendEntries(args, entries); err != nil {
		return state.Committed{}, err
	}
	r, err := commitScript.send(ctx, s, keys, args)
	if err != nil {
		return state.Committed{}, fmt.Errorf("commit run %s: %w", l.Run, err)
	}
	if err := verdict(r, l.Run, c.From); err != nil {
		return state.Committed{}, err
	}
	// A repetition applied nothing: the entries in the log are those of the first commit.
	if c.State.Status.Terminal() {
		s.cache.Drop(l.Run)
	} else if r.flag(commitApplied) && len(entries) > 0 {
		made := logcache.Header{Commit: c.ID, State: c.State, Bytes: len(header)}
		if r.flag(commitClaimed) {
			made.EagerClaim = c.EagerClaim
		}
		s.cache.Put(l.Run, c.State.Log, args[len(args)-1].([]byte), made) //nolint:forcetypeassert // appendEntries makes nothing else
	}
	return state.Committed{Status: state.Status(r.str(commitStatus)), Version: r.num(commitVersion), Noisy: r.flag(commitNoisy), Claimed: r.flag(commitClaimed)}, nil
}

// Release implements state.Turns.
func (s *Store) Release(ctx context.Context, l state.Lease, delay time.Duration) error {
	k := s.keys.run(l.Run)
	r, err := releaseScript.call(ctx, s, []string{k.header, k.due, k.count, k.leases}, string(l.Run), l.Token, l.Version, delay.Milliseconds())
	if err != nil {
		return fmt.Errorf("release run %s: %w", l.Run, err)
	}
	return verdict(r, l.Run, 0)
}

// Admit implements state.Runs.
func (s *Store) Admit(ctx context.Context, root state.RunID, runs []state.RunID, limit int) (state.Admitted, error) {
	args := []any{limit}
	for _, id := range runs {
		args = append(args, string(id))
	}
	r, err := admitScript.call(ctx, s, []string{s.keys.run(root).header, s.keys.tree(root)}, args...)
	if err != nil {
		return state.Admitted{}, fmt.Errorf("count descendants of run %s: %w", root, err)
	}
	if r.str(admitWord) != "ok" {
		return state.Admitted{}, verdict(r, root, 0)
	}
	refused, err := r.list(admitRefused)
	if err != nil {
		return state.Admitted{}, fmt.Errorf("count descendants of run %s: %w", root, err)
	}
	a := state.Admitted{Ended: r.flag(admitEnded)}
	for _, id := range refused {
		a.Refused = append(a.Refused, state.RunID(id))
	}
	return a, nil
}

// Signal implements state.Signals.
func (s *Store) Signal(ctx context.Context, id state.RunID, sig state.Signal, delay time.Duration) (state.Wake, error) {
	payload, err := json.Marshal(sig)
	if err != nil {
		return state.Wake{}, err
	}
	waits, err := names(sig.Names())
	if err != nil {
		return state.Wake{}, err
	}
	k := s.keys.run(id)
	keys := []string{k.header, k.inbox, k.seen, k.due, k.count, k.tenants, k.lists, k.log}
	args := []any{
		string(id), sig.Key(), waits, kindOf(sig), payload, delay.Milliseconds(), remembered, state.MaxSignals, state.MaxSignalBytes, sig.Fingerprint,
	}
	if b := sig.Basis; b != nil {
		args = append(args, string(b.Status), b.Version, b.LogLen)
	}
	r, err := signalScript.call(ctx, s, keys, args...)
	if err != nil {
		return state.Wake{}, fmt.Errorf("signal run %s: %w", id, err)
	}
	closed := reply[closedPlace](r)
	switch r.str(wakeWord) {
	case "missing", "newer", "deleted", "deleting":
		return state.Wake{}, verdict(r, id, 0)
	case "seen":
		return state.Wake{}, nil
	case "conflict":
		return state.Wake{}, state.ErrIdempotencyConflict
	case "full":
		full := reply[fullPlace](r)
		return state.Wake{}, &state.InboxFullError{ID: id, Signals: full.num(fullSignals), Bytes: full.num(fullInboxBytes), Limit: state.MaxSignalBytes}
	case "moved":
		return state.Wake{}, state.ErrMoved
	case "busy":
		return state.Wake{}, &state.BusyError{ID: id, Status: state.Status(closed.str(closedStatus))}
	case "closed":
		return state.Wake{}, &state.NotWaitingError{ID: id, Status: state.Status(closed.str(closedStatus)), Name: closed.str(closedName)}
	default:
		return state.Wake{Publish: r.flag(wakePublish), Version: r.num(wakeVersion), Priority: state.Priority(r.str(wakeLane)), Tenant: r.str(wakeTenant), Noisy: r.flag(wakeNoisy)}, nil
	}
}

// kindOf returns what the scripts need to know about a signal.
func kindOf(sig state.Signal) string {
	switch {
	case sig.Message == nil:
		return "-"
	case sig.Mode.Interrupts():
		return "i"
	case sig.Mode == state.Reject:
		return "r"
	default:
		return "m"
	}
}

// Abort implements state.Signals.
func (s *Store) Abort(ctx context.Context, id state.RunID, abort state.Abort, delay time.Duration) (state.Wake, error) {
	flag, err := json.Marshal(abort)
	if err != nil {
		return state.Wake{}, err
	}
	k := s.keys.run(id)
	r, err := abortScript.call(ctx, s, []string{k.header, k.due, k.count, k.inbox, k.tenants, k.lists}, string(id), flag, delay.Milliseconds())
	if err != nil {
		return state.Wake{}, fmt.Errorf("abort run %s: %w", id, err)
	}
	closed := reply[closedPlace](r)
	switch r.str(wakeWord) {
	case "missing", "newer", "deleted":
		return state.Wake{}, verdict(r, id, 0)
	case "terminal":
		return state.Wake{}, &state.TerminalError{ID: id, Status: state.Status(closed.str(closedStatus))}
	default:
		return state.Wake{Publish: r.flag(wakePublish), Version: r.num(wakeVersion), Priority: state.Priority(r.str(wakeLane)), Tenant: r.str(wakeTenant)}, nil
	}
}

// checkpointOf returns the number of the checkpoint of a state as the argument of a script.
func checkpointOf(st *state.State) string {
	if st.Checkpoint == 0 {
		return ""
	}
	return strconv.FormatInt(st.Checkpoint, 10)
}

// smallLog is the maximum memory of a log whose size is only in the header of its run.
const smallLog = 512 << 10

// logBytesOf returns the memory of a state's log as the argument of a script, if it is large.
func logBytesOf(st *state.State) string {
	if st.LogBytes <= smallLog {
		return ""
	}
	return strconv.FormatInt(st.LogBytes, 10)
}
