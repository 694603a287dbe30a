package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

func (g *Gateway) postSignal(w http.ResponseWriter, r *http.Request) error {
	st, err := g.run(r)
	if err != nil {
		return err
	}
	id := st.ID
	var req api.SignalRequest
	body, err := decode(r, &req)
	if err != nil {
		return err
	}
	key := r.Header.Get("Idempotency-Key")
	if req.SignalID == "" {
		req.SignalID = key
	} else if key != "" && key != req.SignalID {
		return invalid("the Idempotency-Key and signal_id differ: they mean the same, so give one")
	}
	if req.SignalID == "" {
		fresh, err := g.ids.next(time.Now(), 1)
		if err != nil {
			return err
		}
		req.SignalID = strings.TrimPrefix(string(fresh), state.RunPrefix)
	}
	sig, err := signalOf(req)
	if err != nil {
		return err
	}
	if sig.FourEyes, err = g.checkSignal(r.Context(), st, sig); err != nil {
		return err
	}
	if err := g.checkEdits(r.Context(), st, sig.Approvals); err != nil {
		return err
	}
	sig.By = access.FromContext(r.Context()).By()
	if sig.Message != nil && st.Loop == "single_call" {
		return problem(http.StatusConflict, api.CodeNotSupported, "run %s is a single_call: it makes one model call and cannot be continued", id)
	}
	if sig.Message != nil {
		if err := g.checkGoesOn(r.Context(), st); err != nil {
			return err
		}
		if _, err := g.history(r.Context(), id); err != nil {
			return err
		}
	}
	if key != "" {
		sig.Fingerprint = fingerprintOf(body, func(fields map[string]any) { delete(fields, "signal_id") })
	}
	wake, err := g.store.Signal(r.Context(), id, sig, g.cfg.RedeliveryDelay)
	if err != nil {
		return g.unawaited(r.Context(), id, err)
	}
	trace := span.Parent(r.Context())
	g.publish(r.Context(), func(ctx context.Context) error { return g.dispatch.Wake(ctx, id, wake, trace) })
	g.changes.changed(st.Tenant, id)
	return g.accepted(w, r, id)
}

// checkEdits refuses other arguments for a call that the schema in the agent's definition does not
// admit: the worker would refuse the call by the same check, when who has edited it is gone. The
// schema of a tool that describes itself is the worker's to look at.
func (g *Gateway) checkEdits(ctx context.Context, st state.State, approvals []state.Approval) error {
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
		used, err := g.compiledDefinition(ctx, st.Tenant, st.Agent, st.AgentVersion)
		if err != nil {
			return nil //nolint:nilerr // the worker says what is wrong with the definition
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

// unawaited adds to a refusal what the run does wait for.
func (g *Gateway) unawaited(ctx context.Context, id state.RunID, err error) error {
	refused, ok := errors.AsType[*state.NotWaitingError](err)
	if !ok || refused.Status.Terminal() {
		return err
	}
	if state.AwaitsUnhashed(refused.Name) {
		return problem(http.StatusConflict, api.CodeStaleApproval, "an earlier call of the run had the id %.60s and was decided: read the run, and name the hash of the call that waits", strings.TrimPrefix(refused.Name, state.AwaitUnhashed("")))
	}
	if state.AwaitsApprovalHash(refused.Name) {
		return staleApproval()
	}
	st, loadErr := g.store.Load(ctx, id)
	if loadErr != nil {
		return err // which says enough
	}
	waits := "nothing from outside"
	if w := st.Waiting; w != nil {
		waits = string(w.Reason)
		for i, call := range w.Calls {
			sep := ", "
			if i == 0 {
				sep = ": "
			}
			waits += fmt.Sprintf("%s%s of call %s (%s)", sep, call.Needs, call.ID, call.Tool)
		}
	}
	return problem(http.StatusConflict, api.CodeNotWaiting, "%v; it waits for %s", refused, waits)
}

// staleApproval refuses a decision about a call that does not wait.
func staleApproval() error {
	return problem(http.StatusConflict, api.CodeStaleApproval, "another call waits than the one that was looked at: read the run, and decide again")
}

// accepted answers 202 with the run as it stands.
func (g *Gateway) accepted(w http.ResponseWriter, r *http.Request, id state.RunID) error {
	st, err := g.store.Load(r.Context(), id)
	if err != nil {
		return err
	}
	return reply(w, http.StatusAccepted, api.RunOf(st, time.Now()))
}

func signalOf(req api.SignalRequest) (state.Signal, error) {
	sig := state.Signal{ID: req.SignalID, At: state.At(time.Now()), Answer: req.Answer}
	if len(sig.ID) > maxKey {
		return sig, invalid("signal_id has %d bytes, at most %d are allowed", len(sig.ID), maxKey)
	}
	kinds := 0
	for _, given := range []bool{len(req.Approvals) > 0, len(req.ToolResults) > 0, req.Answer != nil, len(req.Message) > 0} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		return sig, invalid("a signal is exactly one of approvals, tool_results, answer, message")
	}
	for i, a := range req.Approvals {
		approval := state.Approval{CallID: a.CallID, Decision: state.Decision(a.Decision), Reason: a.Reason, Hash: a.Hash}
		if approval.Decision != state.Approve && approval.Decision != state.Deny {
			return sig, invalid("approvals[%d].decision %q is not one of approve, deny", i, a.Decision)
		}
		if len(a.Arguments) > 0 && string(a.Arguments) != "null" {
			args, ok := state.CompactObject(string(a.Arguments))
			if !ok {
				return sig, invalid("approvals[%d].arguments must be a JSON object", i)
			}
			approval.Arguments = args
		}
		if a.CallID == "" {
			return sig, invalid("approvals[%d].call_id is missing", i)
		}
		sig.Approvals = append(sig.Approvals, approval)
	}
	for i, res := range req.ToolResults {
		if res.CallID == "" {
			return sig, invalid("tool_results[%d].call_id is missing", i)
		}
		if _, omitted := tool.CheckImages(res.Images); omitted != "" {
			return sig, invalid("tool_results[%d].images: %s", i, strings.TrimSpace(omitted))
		}
		sig.ToolResults = append(sig.ToolResults, state.SignalResult{CallID: res.CallID, Content: api.PlainText(res.Content), IsError: res.IsError, Images: res.Images})
	}
	if len(req.Message) > 0 {
		m, err := userMessage(req.Message)
		if err != nil {
			return sig, invalid("message: %v", err)
		}
		sig.Message = &m
	}
	names := sig.Names()
	slices.Sort(names)
	for i := range names[min(1, len(names)):] {
		if names[i] == names[i+1] {
			return sig, invalid("the signal decides %s twice", names[i])
		}
	}
	return sig, nil
}

// userMessage reads what a user says: a text, or a message of role user.
func userMessage(raw json.RawMessage) (state.Message, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if strings.TrimSpace(text) == "" {
			return state.Message{}, errors.New("it is empty")
		}
		return state.UserText(text), nil
	}
	m, err := messageOf(raw)
	if err == nil && m.Role != state.RoleUser {
		err = fmt.Errorf("its role is %s, it must be user", m.Role)
	}
	return m, err
}

func (g *Gateway) postCancel(w http.ResponseWriter, r *http.Request) error {
	st, err := g.run(r)
	if err != nil {
		return err
	}
	var req api.CancelRequest
	b, err := readBody(r)
	if err != nil {
		return err
	}
	if len(b) > 0 {
		if err := api.Decode(b, &req); err != nil {
			return problem(http.StatusBadRequest, api.CodeInvalidJSON, "%v", err)
		}
	}
	if err := checkReason(req.Reason); err != nil {
		return err
	}
	if err := g.ownOrOperator(r.Context(), access.FromContext(r.Context()), st.ID); err != nil {
		return err
	}
	if err := g.cancel(r.Context(), st, req.Reason); err != nil {
		return err
	}
	return g.accepted(w, r, st.ID)
}

func checkReason(reason string) error {
	if len(reason) > maxValue {
		return invalid("reason has %d bytes, at most %d are allowed", len(reason), maxValue)
	}
	return nil
}

// cancel aborts a run in the name of the caller.
func (g *Gateway) cancel(ctx context.Context, st state.State, reason string) error {
	// The flag is durable; the messages only make it instant.
	abort := state.Abort{Reason: reason, By: access.FromContext(ctx).By()}
	wake, err := g.store.Abort(ctx, st.ID, abort, g.cfg.RedeliveryDelay)
	if err != nil {
		return err
	}
	id, tenant, trace := st.ID, st.Tenant, span.Parent(ctx)
	g.publish(ctx, func(ctx context.Context) error { return g.dispatch.Abort(ctx, id, tenant, reason, wake, trace) })
	g.changes.changed(st.Tenant, st.ID)
	return nil
}
