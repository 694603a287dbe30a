package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

type approveCmd struct {
	ID        string `arg:"" complete:"run" help:"Run id, or the end of the id of one of the newest 1,000 runs."`
	Call      string `arg:"" optional:"" help:"Call id; default every call that waits for approval."`
	Arguments string `help:"Replacement arguments, a JSON object; with CALL if several wait."`
}

func (c *approveCmd) Run(e *env) error {
	if c.Arguments != "" {
		var object map[string]any
		if err := json.Unmarshal([]byte(c.Arguments), &object); err != nil || object == nil {
			return usagef(`--arguments is not a JSON object: write one such as {"amount": 100}, not %s`, c.Arguments)
		}
	}
	return decide(e, c.ID, c.Call, api.Approval{Decision: "approve", Arguments: json.RawMessage(c.Arguments)})
}

type denyCmd struct {
	ID     string `arg:"" complete:"run" help:"Run id, or the end of the id of one of the newest 1,000 runs."`
	Call   string `arg:"" optional:"" help:"Call id; default every call that waits for approval."`
	Reason string `help:"Reason; the model reads it."`
}

func (c *denyCmd) Run(e *env) error {
	return decide(e, c.ID, c.Call, api.Approval{Decision: "deny", Reason: c.Reason})
}

func decide(e *env, id, call string, a api.Approval) error {
	run, err := e.client.Get(e.ctx, id)
	if err != nil {
		return err
	}
	var approvals []api.Approval
	if run.Waiting != nil {
		for _, w := range run.Waiting.Calls {
			if w.Needs != string(state.NeedApproval) || call != "" && w.ID != call {
				continue
			}
			one := a
			one.CallID, one.Hash = w.ID, w.Hash // of the call that the user has seen
			if one.Decision == "approve" && len(one.Arguments) == 0 {
				// Approve exactly the arguments that the user has seen.
				one.Arguments = w.Arguments
			}
			approvals = append(approvals, one)
		}
	}
	if len(approvals) == 0 && call == "" {
		return fmt.Errorf("no call of the run waits for approval, so nothing was decided: %s", standing(run))
	}
	if len(approvals) == 0 {
		return fmt.Errorf("call %s does not wait for approval: give the id of one that does, or read the run again: %s", call, standing(run))
	}
	if len(approvals) > 1 && len(a.Arguments) > 0 {
		return fmt.Errorf("--arguments applies to one call, and %d wait for approval: give the call id after the run id: %s", len(approvals), standing(run))
	}
	return send(e, id, api.SignalRequest{Approvals: approvals})
}

func send(e *env, id string, s api.SignalRequest) error {
	run, err := e.client.Signal(e.ctx, id, s)
	if err != nil {
		return err
	}
	return e.print(run, "accepted")
}

type answerCmd struct {
	ID   string `arg:"" complete:"run" help:"Run id, or the end of the id of one of the newest 1,000 runs."`
	Text string `arg:"" help:"The answer."`
}

func (c *answerCmd) Run(e *env) error { return send(e, c.ID, api.SignalRequest{Answer: &c.Text}) }

// resultCmd sends the result of a client tool, or of an asynchronous tool whose service does not send it.
type resultCmd struct {
	ID    string `arg:"" complete:"run" help:"Run id, or the end of the id of one of the newest 1,000 runs."`
	Call  string `arg:"" help:"Call id, as the run's show command lists it."`
	Text  string `arg:"" help:"Result of the tool; the model reads it. - reads it from standard input."`
	Error bool   `help:"The call failed, and TEXT says why."`
}

func (c *resultCmd) Run(e *env) error {
	text, err := said(c.Text, e.in)
	if err != nil {
		return err
	}
	return send(e, c.ID, api.SignalRequest{ToolResults: []api.ToolResult{{CallID: c.Call, Content: api.Text(text), IsError: c.Error}}})
}

type messageCmd struct {
	ID   string `arg:"" complete:"run" help:"Run id, or the end of the id of one of the newest 1,000 runs."`
	Text string `arg:"" help:"Text of the message."`
	Mode string `enum:",enqueue,interrupt,rollback,reject" default:"" help:"If the run is busy: enqueue (default) leaves the message to its next turn, interrupt aborts the turn in flight, rollback also removes that turn from what the model reads, reject refuses the message."`
}

func (c *messageCmd) Run(e *env) error {
	before, err := e.client.Get(e.ctx, c.ID)
	if err != nil {
		return err
	}
	run, err := e.client.Signal(e.ctx, c.ID, api.SignalRequest{Message: api.Text(c.Text), Mode: c.Mode})
	if err != nil {
		return err
	}
	text := fmt.Sprintf("accepted; follow the run with `turnpike watch %s`", c.ID)
	if before.Waiting != nil && len(before.Waiting.Calls) > 0 && c.Mode != api.ModeInterrupt && c.Mode != api.ModeRollback {
		// A message is not an answer, a decision or a result.
		text = "accepted; the model reads the message after the run's current wait: " + standing(before)
		if how := hint(c.ID, before.Waiting); how != "" {
			text += "\n" + how
		}
	}
	return e.print(run, text)
}

// standing returns a text with the status of a run and what it waits for.
func standing(run api.Run) string {
	text := fmt.Sprintf("run %s is %s", run.ID, run.Status)
	if run.Waiting == nil {
		return text
	}
	var calls []string
	for _, call := range run.Waiting.Calls {
		calls = append(calls, fmt.Sprintf("%s (%s, needs %s%s)", call.ID, call.Tool, call.Needs, risk(call)))
	}
	if text += ", " + run.Waiting.Reason; len(calls) > 0 {
		text += ": " + strings.Join(calls, ", ")
	}
	return text
}

// risk returns the risk of a call that its tool declares, and whether its arguments may come from an untrusted source.
func risk(call api.WaitCall) string {
	text := ""
	if call.Risk != nil {
		text = ", " + *call.Risk
	}
	if call.ArgsFromUntrusted {
		text += ", arguments from outside"
	}
	return text
}

// showHint prints how to continue a run that has begun to wait at a version. If still is true, it prints nothing if the
// run no longer waits: a user who watches a run also sees earlier waits.
func showHint(e *env, id string, since int64, still bool) error {
	run, err := e.client.Get(e.ctx, id)
	if err != nil || still && (run.Waiting == nil || run.Version > since) {
		return err
	}
	if how := hint(id, run.Waiting); how != "" {
		fmt.Fprintln(e.out, how)
	}
	return nil
}

// hint returns how to continue a run that waits.
func hint(id string, w *api.Waiting) string {
	if w == nil {
		return ""
	}
	switch state.Reason(w.Reason) {
	case state.WaitingApproval:
		return fmt.Sprintf("continue with: turnpike approve %s   (or: turnpike deny %s)", id, id)
	case state.WaitingHumanInput:
		if len(w.Calls) == 0 {
			return fmt.Sprintf("continue with: turnpike message %s \"…\"", id)
		}
		return fmt.Sprintf("continue with: turnpike answer %s \"…\"", id)
	case state.WaitingClientTool, state.WaitingTool:
		var lines []string
		for _, call := range w.Calls {
			if call.RunID == nil && call.Needs == string(state.NeedResult) || call.Needs == string(state.NeedAsync) {
				lines = append(lines, fmt.Sprintf("continue with: turnpike result %s %s \"…\"", id, call.ID))
			}
		}
		if len(lines) > 0 {
			return strings.Join(lines, "\n")
		}
	default:
	}
	return fmt.Sprintf("continue with a signal to /v1/runs/%s/signals", id)
}
