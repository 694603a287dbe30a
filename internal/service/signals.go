package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Sending is a signal to a run.
type Sending struct {
	Run     string
	Request api.SignalRequest
	Body    []byte // the request as it was received; a repetition under a key must be the same
	Key     string // an alternative to signal_id in the request; may be empty

	delivered string // the hook or the trigger that sends it, as in submission; may be empty
}

// from returns the namespace of the ids of a sender's signals, as [submission.storeKey] does for idempotency keys.
func (in Sending) from(c access.Caller) string {
	if c.Principal.Bound != nil { // a user has no spaces
		return "token " + c.Principal.Bound.User
	}
	return in.delivered
}

// Signals sends decisions, results, answers and messages to runs.
type Signals struct {
	*core

	defs *definitions
}

// Send stores a signal, wakes the run, and returns the run, which may not have processed the signal yet. It refuses a
// decision, a result or an answer that the run does not wait for. A repeated signal has no further effect.
func (s *Signals) Send(ctx context.Context, c access.Caller, in Sending) (state.State, error) {
	if err := s.permit(ctx, c, Send); err != nil {
		return state.State{}, err
	}
	st, err := s.send(ctx, c, in)
	s.note(ctx, c, Send, in.Run, err)
	return st, err
}

func (s *Signals) send(ctx context.Context, c access.Caller, in Sending) (state.State, error) {
	st, err := s.load(ctx, c, in.Run)
	if err != nil {
		return state.State{}, err
	}
	id := st.ID
	sig, err := s.signalOf(in)
	if err != nil {
		return state.State{}, err
	}
	if sig.FourEyes, err = s.checkSignal(ctx, c, st, sig); err != nil {
		return state.State{}, err
	}
	if err := s.checkEdits(ctx, st, sig.Approvals); err != nil {
		return state.State{}, err
	}
	sig.By, sig.Requesters, sig.From = c.By(), c.Requesters, in.from(c)
	if sig.Message != nil && st.Loop == "single_call" {
		return state.State{}, problem(conflict, api.CodeNotSupported, "run %s uses the loop single_call, which makes one model call and cannot be continued: submit a new run", id)
	}
	if sig.Message != nil {
		if err := s.defs.checkGoesOn(ctx, st); err != nil {
			return state.State{}, err
		}
		if err := checkView(st); err != nil {
			return state.State{}, err
		}
	}
	if err := s.attach(ctx, st, sig); err != nil {
		return state.State{}, err
	}
	if in.Key != "" {
		sig.Fingerprint = fingerprintOf(in.Body, func(fields map[string]any) { delete(fields, "signal_id") })
	}
	store := s.store.Signal
	if sig.Mode == state.Rollback {
		store = s.rollBack
	}
	wake, err := store(ctx, id, sig, s.cfg.RedeliveryDelay)
	if err != nil {
		return state.State{}, s.unawaited(ctx, id, err)
	}
	trace := span.Parent(ctx)
	send := s.dispatch.Wake
	if sig.Mode.Interrupts() {
		send = s.dispatch.Interrupt
	}
	s.publish(ctx, func(ctx context.Context) error { return send(ctx, id, wake, trace) })
	s.cfg.Changed(st.Tenant, id)
	return s.store.Load(ctx, id)
}

// attach sets the media types, sizes and names of the files of a signal, in place, and records that the run uses them.
func (s *Signals) attach(ctx context.Context, st state.State, sig state.Signal) error {
	var said, results []state.Message
	if sig.Message != nil && slices.ContainsFunc(sig.Message.Parts, func(p state.Part) bool { return p.Type == state.PartFile }) {
		said = append(said, *sig.Message)
	}
	for _, r := range sig.ToolResults {
		if len(r.Files) > 0 {
			results = append(results, state.Message{Role: state.RoleTool, Parts: r.Files})
		}
	}
	if len(said)+len(results) == 0 {
		return nil
	}
	responsible := st.Definition()
	a, err := s.defs.compiled(ctx, st.Tenant, responsible.Name, responsible.Version)
	if err != nil {
		return err
	}
	messages := append(said, results...)
	if err := s.describe(ctx, st.Tenant, a, messages, map[string]file.File{}, maxFileParts); err != nil {
		return err
	}
	return s.bind(ctx, st.Tenant, file.User{Run: st.ID}, messages...)
}

// maxRollbacks is the number of attempts of rollBack while the run continues.
const maxRollbacks = 20

// rollBack stores a message that withdraws the turn in flight, provided that no call of that turn can have started;
// otherwise the problem is effects_started. The store refuses the message if the run has changed since rollBack read
// it; rollBack then tries again, and after maxRollbacks tries the problem is run_busy. A repeated signal succeeds
// without a further effect, even if a call has started since.
func (s *Signals) rollBack(ctx context.Context, id state.RunID, sig state.Signal, delay time.Duration) (state.Wake, error) {
	for range maxRollbacks {
		st, err := s.store.Load(ctx, id)
		if err != nil {
			return state.Wake{}, err
		}
		log, err := s.tail(ctx, st)
		if err != nil {
			return state.Wake{}, err
		}
		// A repetition must get the result of the first, whatever has started since: the store recognizes it before it
		// checks the basis.
		started := loop.EffectsStarted(st, log)
		sig.Basis = &state.Basis{Status: st.Status, Version: st.Version, LogLen: state.LogLen(log)}
		if started {
			sig.Basis = &state.Basis{Version: -1}
		}
		wake, err := s.store.Signal(ctx, id, sig, delay)
		switch {
		case !errors.Is(err, state.ErrMoved):
			return wake, err
		case started:
			return state.Wake{}, problem(conflict, api.CodeEffectsStarted, "run %s has started a tool call in its current turn, or may have, so the turn cannot be rolled back: send the message with the mode interrupt, which keeps the completed work", id)
		}
	}
	return state.Wake{}, problem(conflict, api.CodeRunBusy, "run %s continued %d times while the message was being sent: retry, or send it with the mode interrupt", id, maxRollbacks)
}

// signalOf reads a signal, which gets an id if the caller gave none.
func (s *Signals) signalOf(in Sending) (state.Signal, error) {
	req := in.Request
	if req.SignalID == "" {
		req.SignalID = in.Key
	} else if in.Key != "" && in.Key != req.SignalID {
		return state.Signal{}, invalid("the header Idempotency-Key is %q, but signal_id is %q: send one of them", in.Key, req.SignalID)
	}
	if req.SignalID == "" {
		fresh, err := s.ids.next(time.Now(), 1)
		if err != nil {
			return state.Signal{}, err
		}
		req.SignalID = strings.TrimPrefix(string(fresh), state.RunPrefix)
	}
	return signalOf(req)
}

// checkSignal checks the caller's role for the content of a signal: approvals need an approver, an answer needs no more
// than the permission for Send, everything else needs a submitter. fourEyes reports that the signal has decisions and
// the tenant requires four eyes. checkSignal then also refuses a caller who is a requester in the run or an ancestor
// (see state.Askers), and a decision with the hash of a call that does not wait in st. It reads the log after st was
// read, so the log includes all entries that led to the wait in st.
func (s *Signals) checkSignal(ctx context.Context, c access.Caller, st state.State, sig state.Signal) (fourEyes bool, err error) {
	switch {
	case len(sig.Approvals) > 0 && !c.May(access.Approver):
		return false, forbidden(c, access.Approver)
	case len(sig.Approvals) == 0 && sig.Answer == nil && !c.May(access.Submitter):
		return false, forbidden(c, access.Submitter)
	case len(sig.Approvals) == 0:
		return false, nil
	}
	settings, err := s.tenants.Settings(ctx, c.Tenant)
	if err != nil || !settings.FourEyes {
		return false, err
	}
	asked, err := s.asked(ctx, c.Principal.Name, st.ID)
	if err != nil {
		return false, err
	}
	if asked != "" {
		return false, problem(denied, api.CodeForbidden, "tenant %s requires four eyes, and %s has requested something in run %s, such as its input, a message or an edit of a call: ask another approver to decide", c.Tenant, c.Principal.Name, asked)
	}
	for _, a := range sig.Approvals {
		// The hash of a call that another request will edit is predictable. Its approval must not overtake the log
		// entry that names the editor.
		if a.Hash != "" && !showsCall(st, a) {
			return false, staleApproval()
		}
	}
	return true, nil
}

// checkEdits refuses edited arguments that violate the schema in the agent's definition. The worker makes the same
// check, but its error reaches the model and not the editor. Only the worker checks calls of child runs, tools whose
// schema is not in the definition, and agents that this gateway cannot read or compile.
func (s *Signals) checkEdits(ctx context.Context, st state.State, approvals []state.Approval) error {
	if st.Waiting == nil {
		return nil
	}
	for i, a := range approvals {
		at := slices.IndexFunc(st.Waiting.Calls, func(c state.WaitCall) bool { return c.ID == a.CallID })
		if at < 0 || st.Waiting.Calls[at].RunID != "" || a.Arguments == "" || a.Decision != state.Approve || a.Hash != "" && !showsCall(st, a) {
			continue
		}
		call := st.Waiting.Calls[at]
		if asked, ok := state.CompactObject(string(call.Arguments)); ok && asked == a.Arguments {
			continue // no edit
		}
		d := st.Definition()
		used, err := s.defs.compiledDefinition(ctx, st.Tenant, d.Name, d.Version)
		if err != nil {
			return nil //nolint:nilerr // the worker reports what is wrong with the definition
		}
		if t := used.Tool(call.Tool); t != nil {
			if err := t.Validate(a.Arguments); err != nil {
				return invalid("approvals[%d].arguments: %v", i, err)
			}
		}
	}
	return nil
}

// showsCall reports whether a run waits for a decision about exactly the call that an approval names
// by its hash.
func showsCall(st state.State, a state.Approval) bool {
	return st.Waiting != nil && slices.ContainsFunc(st.Waiting.Calls, func(c state.WaitCall) bool { return c.ID == a.CallID && c.Hash == a.Hash })
}

// unawaited returns err with what the run waits for, if err is a *state.NotWaitingError of a run in flight.
func (s *Signals) unawaited(ctx context.Context, id state.RunID, err error) error {
	refused, ok := errors.AsType[*state.NotWaitingError](err)
	if !ok || refused.Status.Terminal() {
		return err
	}
	if state.AwaitsUnhashed(refused.Name) {
		return problem(conflict, api.CodeStaleApproval, "the decision names only the call id %.60s, which an earlier and already decided call of this run had: read the run, and send the decision with the hash of the call that waits now", strings.TrimPrefix(refused.Name, state.AwaitUnhashed("")))
	}
	if state.AwaitsApprovalHash(refused.Name) {
		return staleApproval()
	}
	st, loadErr := s.store.Load(ctx, id)
	if loadErr != nil {
		return err // without the addition
	}
	if st.Waiting == nil {
		return problem(conflict, api.CodeNotWaiting, "run %s is %s and does not wait for %q, or for anything else now: read the run again before you send another signal", refused.ID, refused.Status, refused.Name)
	}
	waits := string(st.Waiting.Reason)
	for i, call := range st.Waiting.Calls {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		waits += fmt.Sprintf("%s%s of call %s (%s)", sep, call.Needs, call.ID, call.Tool)
	}
	return problem(conflict, api.CodeNotWaiting, "run %s is %s and does not wait for %q, but for %s: answer only what the run waits for", refused.ID, refused.Status, refused.Name, waits)
}

// staleApproval returns the problem of a decision about a call that does not wait.
func staleApproval() error {
	return problem(conflict, api.CodeStaleApproval, "no call with the hash of your decision waits now: read the run again, and decide again")
}

func signalOf(req api.SignalRequest) (state.Signal, error) {
	sig := state.Signal{ID: req.SignalID, At: state.At(time.Now()), Answer: req.Answer}
	if len(sig.ID) > maxKey {
		return sig, invalid("signal_id has %d bytes, at most %d are allowed: use a shorter id", len(sig.ID), maxKey)
	}
	kinds := 0
	for _, given := range []bool{len(req.Approvals) > 0, len(req.ToolResults) > 0, req.Answer != nil, len(req.Message) > 0} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		return sig, invalid("the signal has %d of approvals, tool_results, answer and message: send exactly one", kinds)
	}
	for i, a := range req.Approvals {
		approval := state.Approval{CallID: a.CallID, Decision: state.Decision(a.Decision), Reason: a.Reason, Hash: a.Hash}
		if approval.Decision != state.Approve && approval.Decision != state.Deny {
			return sig, invalid("approvals[%d].decision is %q: use approve or deny", i, a.Decision)
		}
		if len(a.Arguments) > 0 && string(a.Arguments) != "null" {
			args, ok := state.CompactObject(string(a.Arguments))
			if !ok {
				return sig, invalid("approvals[%d].arguments is not a JSON object: send the arguments that replace those of the model, or omit the field to keep those", i)
			}
			approval.Arguments = args
		}
		if a.CallID == "" {
			return sig, invalid("approvals[%d].call_id is missing: give the id of the call", i)
		}
		sig.Approvals = append(sig.Approvals, approval)
	}
	for i, res := range req.ToolResults {
		if res.CallID == "" {
			return sig, invalid("tool_results[%d].call_id is missing: give the id of the call", i)
		}
		if _, omitted := tool.CheckImages(res.Images); omitted != "" {
			return sig, invalid("tool_results[%d].images: %s", i, mistakes(omitted))
		}
		files, err := resultFiles(res.Files)
		if err != nil {
			return sig, invalid("tool_results[%d].files: %v", i, err)
		}
		sig.ToolResults = append(sig.ToolResults, state.SignalResult{CallID: res.CallID, Content: api.PlainText(res.Content), IsError: res.IsError, Images: res.Images, Files: files})
	}
	if len(req.Message) > 0 {
		m, err := userMessage(req.Message)
		if err != nil {
			return sig, invalid("message: %v", err)
		}
		sig.Message = &m
	}
	switch req.Mode {
	case "", api.ModeEnqueue:
	case api.ModeInterrupt:
		sig.Mode = state.Interrupt
	case api.ModeRollback:
		sig.Mode = state.Rollback
	case api.ModeReject:
		sig.Mode = state.Reject
	default:
		return sig, invalid("mode is %q: use %s, %s, %s or %s", req.Mode, api.ModeEnqueue, api.ModeInterrupt, api.ModeRollback, api.ModeReject)
	}
	if req.Mode != "" && sig.Message == nil {
		return sig, invalid("mode applies to a message, and this signal has none: remove mode, or send a message")
	}
	names := sig.Names()
	slices.Sort(names)
	for i := range names[min(1, len(names)):] {
		if names[i] == names[i+1] {
			return sig, invalid("the signal decides %s twice: decide it once", names[i])
		}
	}
	return sig, nil
}

// userMessage reads a user message: a text, or a message of role user.
func userMessage(raw json.RawMessage) (state.Message, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if strings.TrimSpace(text) == "" {
			return state.Message{}, errors.New("it is empty: send a text")
		}
		return state.UserText(text), nil
	}
	return messageOf(raw, true)
}
