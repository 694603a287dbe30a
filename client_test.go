package turnpike_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

type answer struct{ Refunded bool }

// agents returns the agents that the operations below use.
func agents() []turnpike.Agent {
	clerk := agentOf("clerk", calls("pay", refund{"7", 500}), model.Scripted{Text: "Done."}, model.Scripted{Text: "Still done."})
	clerk.Tools = turnpike.Use(payTool())
	gated := agentOf("gated", calls("pay", refund{"8", 5000}), model.Scripted{Text: "Paid."})
	gated.Tools = turnpike.Use(payTool())
	one := agentOf("one", says(`{"Refunded":true}`)...)
	one.Loop.Type, one.OutputSchema = "single_call", turnpike.MustSchema[answer]()
	two := agentOf("two", says("Yes.", "Yes, checked.")...)
	two.Loop.Type = "checked"
	counted := agentOf("counted", calls("pay", refund{"7", 500}), model.Scripted{Text: "It was."}, model.Scripted{Text: `{"Refunded":true}`})
	counted.Tools = turnpike.Use(payTool())
	stubborn := agentOf("stubborn", says("It was.")...)
	stubborn.MaxOutputRetries = new(0)
	return []turnpike.Agent{counted, stubborn, clerk, gated, one, two, agentOf("failing", model.Scripted{Error: model.InvalidRequest}), agentOf("plain", says("Hello.")...)}
}

// operation is an action of a program with a client. person acts for an approver. The result must not depend on
// the client.
type operation func(ctx context.Context, c, person *turnpike.Client) (any, error)

// idle submits a run of the agent gated, and returns it with the decision about its waiting call.
func idle(ctx context.Context, c *turnpike.Client) (*turnpike.Run, turnpike.Decision, error) {
	r, err := c.Submit(ctx, turnpike.Submission{Agent: "gated", Input: "Order 8."})
	if err != nil {
		return nil, turnpike.Decision{}, err
	}
	i, err := r.WaitIdle(ctx)
	if err != nil || i.Waiting == nil {
		return nil, turnpike.Decision{}, fmt.Errorf("status %s, %w", i.Status, err)
	}
	call := i.Waiting.Calls[0]
	return r, turnpike.Decision{CallID: call.ID, Hash: call.Hash}, nil
}

func done(ctx context.Context, c *turnpike.Client, s turnpike.Submission) (*turnpike.Run, turnpike.Info, error) {
	r, err := c.Submit(ctx, s)
	if err != nil {
		return nil, turnpike.Info{}, err
	}
	i, err := r.Wait(ctx)
	return r, i, err
}

func outcome(i turnpike.Info) string {
	text := ""
	if i.Output != nil {
		text = *i.Output
	}
	return i.Status + ": " + text
}

func operations() map[string]operation {
	hello := turnpike.Submission{Agent: "clerk", Input: "Order 7 broke."}
	return map[string]operation{
		"wait": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			_, i, err := done(ctx, c, hello)
			return outcome(i), err
		},
		"do": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			return turnpike.Do[answer](ctx, c, turnpike.Submission{Agent: "one", Input: "Refunded?"})
		},
		"do text": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			return turnpike.Do[string](ctx, c, turnpike.Submission{Agent: "two", Input: "Sure?"})
		},
		"do with tools": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			return turnpike.Do[answer](ctx, c, turnpike.Submission{Agent: "counted", Input: "Was order 7 refunded?"})
		},
		"do anything": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			return turnpike.Do[any](ctx, c, turnpike.Submission{Agent: "one", Input: "Refunded?"})
		},
		"do does not match": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			_, err := turnpike.Do[answer](ctx, c, turnpike.Submission{Agent: "stubborn", Input: "x"})
			e, ok := errors.AsType[*turnpike.RunError](err)
			if !ok {
				return nil, err
			}
			return []string{e.Status, e.Reason, e.Detail}, nil
		},
		"do fails": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			_, err := turnpike.Do[answer](ctx, c, turnpike.Submission{Agent: "failing", Input: "x"})
			e, ok := errors.AsType[*turnpike.RunError](err)
			if !ok {
				return nil, err
			}
			return []string{e.Status, e.Reason, e.Detail}, nil
		},
		"do does not decode": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			r, err := c.Submit(ctx, turnpike.Submission{Agent: "plain", Input: "x"})
			if err != nil {
				return nil, err
			}
			_, err = turnpike.Result[answer](ctx, r)
			e, ok := errors.AsType[*turnpike.OutputError](err)
			if !ok {
				return nil, err
			}
			return e.Text, nil
		},
		"messages": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			r, _, err := done(ctx, c, hello)
			if err != nil {
				return nil, err
			}
			said, err := r.History(ctx)
			if err != nil {
				return nil, err
			}
			_, i, err := done(ctx, c, turnpike.Submission{Agent: "plain", Messages: said[1:2]})
			return outcome(i), err
		},
		"no agent": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			_, err := c.Submit(ctx, turnpike.Submission{Agent: "nobody", Input: "x"})
			return nil, err
		},
		"no input": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			_, err := c.Submit(ctx, turnpike.Submission{Agent: "clerk"})
			return nil, err
		},
		"two inputs": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			_, err := c.Submit(ctx, turnpike.Submission{Agent: "clerk", Input: "x", Messages: make([]turnpike.Message, 1)})
			return nil, err
		},
		"bad agent": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			_, err := c.PutAgent(ctx, turnpike.Agent{Name: "bad", Model: turnpike.Model{Provider: "none"}, Tools: turnpike.Use(payTool(), payTool())})
			return nil, err
		},
		"loosened agent": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			a := agentOf("loose", says("x")...)
			a.Tools = turnpike.Use(payTool())
			a.Tools[0].Approval, a.Tools[0].Risk = "", ""
			_, err := c.PutAgent(ctx, a)
			return nil, err
		},
		"bad YAML": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			_, err := c.PutYAML(ctx, []byte("nme: x"))
			return nil, err
		},
		"same agent": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			a, err := c.PutYAML(ctx, []byte("{name: same, model: {provider: scripted, responses: [{text: x}]}}"))
			if err != nil {
				return nil, err
			}
			b, err := c.PutYAML(ctx, []byte("{name: same, model: {provider: scripted, responses: [{text: x}]}}"))
			return a.Version == b.Version, err
		},
		"version": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			first, err := c.PutAgent(ctx, agentOf("versions", says("old")...))
			if err == nil {
				_, err = c.PutAgent(ctx, agentOf("versions", says("new")...))
			}
			if err != nil {
				return nil, err
			}
			_, i, err := done(ctx, c, turnpike.Submission{Agent: "versions", Version: first.Version, Input: "x"})
			return outcome(i), err
		},
		"no version": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			_, err := c.Submit(ctx, turnpike.Submission{Agent: "clerk", Version: 99, Input: "x"})
			return nil, err
		},
		"delay": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			r, err := c.Submit(ctx, turnpike.Submission{Agent: "plain", Input: "x", Delay: time.Hour})
			if err != nil {
				return nil, err
			}
			before, err := r.Info(ctx)
			if err != nil {
				return nil, err
			}
			if err := r.Cancel(ctx, "no longer needed"); err != nil {
				return nil, err
			}
			after, err := r.Wait(ctx)
			return []string{before.Waiting.Reason, after.Status}, err
		},
		"negative delay": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			_, err := c.Submit(ctx, turnpike.Submission{Agent: "plain", Input: "x", Delay: -time.Hour})
			return nil, err
		},
		"key": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			keyed := turnpike.Submission{Agent: "plain", Input: "x", Key: fmt.Sprintf("%p", c), Delay: time.Millisecond}
			a, err := c.Submit(ctx, keyed)
			if err != nil {
				return nil, err
			}
			b, err := c.Submit(ctx, keyed)
			if err != nil || a.ID() != b.ID() {
				return "two runs", err
			}
			keyed.Input = "y"
			_, err = c.Submit(ctx, keyed)
			return nil, err
		},
		"approve": func(ctx context.Context, c, person *turnpike.Client) (any, error) {
			r, seen, err := idle(ctx, c)
			if err != nil {
				return nil, err
			}
			if err := person.RunByID(r.ID()).Approve(ctx, seen); err != nil {
				return nil, err
			}
			i, err := r.Wait(ctx)
			return outcome(i), err
		},
		"signal twice": func(ctx context.Context, c, person *turnpike.Client) (any, error) {
			r, seen, err := idle(ctx, c)
			if err != nil {
				return nil, err
			}
			s := turnpike.Signal{SignalID: "decision", Approvals: []api.Approval{{CallID: seen.CallID, Hash: seen.Hash, Decision: "approve"}}}
			for range 2 {
				if err := person.RunByID(r.ID()).Signal(ctx, s); err != nil {
					return nil, err
				}
				if _, err := r.Wait(ctx); err != nil {
					return nil, err
				}
			}
			i, err := r.Info(ctx)
			return outcome(i), err
		},
		"two kinds of signal": func(ctx context.Context, c, person *turnpike.Client) (any, error) {
			r, _, err := idle(ctx, c)
			if err != nil {
				return nil, err
			}
			return nil, person.RunByID(r.ID()).Signal(ctx, turnpike.Signal{Answer: new("x"), ToolResults: []api.ToolResult{{CallID: "c"}}})
		},
		"edit": func(ctx context.Context, c, person *turnpike.Client) (any, error) {
			r, seen, err := idle(ctx, c)
			if err != nil {
				return nil, err
			}
			seen.Arguments = map[string]any{"Order": 8}
			return nil, person.RunByID(r.ID()).Approve(ctx, seen)
		},
		"deny": func(ctx context.Context, c, person *turnpike.Client) (any, error) {
			r, seen, err := idle(ctx, c)
			if err != nil {
				return nil, err
			}
			seen.Reason = "too much"
			if err := person.RunByID(r.ID()).Deny(ctx, seen); err != nil {
				return nil, err
			}
			if _, err := r.Wait(ctx); err != nil {
				return nil, err
			}
			said, err := r.History(ctx)
			if err != nil {
				return nil, err
			}
			return said[len(said)-2].Parts[0].Content, nil
		},
		"stale": func(ctx context.Context, c, person *turnpike.Client) (any, error) {
			r, seen, err := idle(ctx, c)
			if err != nil {
				return nil, err
			}
			seen.Hash = strings.Repeat("0", len(seen.Hash))
			return nil, person.RunByID(r.ID()).Approve(ctx, seen)
		},
		"no hash": func(ctx context.Context, _, person *turnpike.Client) (any, error) {
			return nil, person.RunByID("run_01JD0000000000000000000000").Approve(ctx, turnpike.Decision{CallID: "c"})
		},
		"answer of a run that waits for an approval": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			r, _, err := idle(ctx, c)
			if err != nil {
				return nil, err
			}
			err = r.Answer(ctx, "x")
			if p, ok := errors.AsType[*turnpike.Error](err); ok {
				p.Detail = "" // it names the call
			}
			return nil, err
		},
		"result of a run that has ended": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			r, _, err := done(ctx, c, hello)
			if err != nil {
				return nil, err
			}
			err = r.ToolResult(ctx, "c", map[string]int{"n": 1})
			if p, ok := errors.AsType[*turnpike.Error](err); ok {
				p.Detail = ""
			}
			return nil, err
		},
		"message": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			r, _, err := done(ctx, c, hello)
			if err != nil {
				return nil, err
			}
			if err := r.Message(ctx, "And now?"); err != nil {
				return nil, err
			}
			i, err := r.Wait(ctx)
			return outcome(i), err
		},
		"events": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			r, err := c.Submit(ctx, hello)
			if err != nil {
				return nil, err
			}
			var types []string
			for e, err := range r.Events(ctx, 0) {
				if err != nil {
					return nil, err
				}
				if e.Seq > 0 {
					types = append(types, string(e.Type))
				}
			}
			return types, nil
		},
		"first event": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			r, _, err := idle(ctx, c)
			if err != nil {
				return nil, err
			}
			for e, err := range r.Events(ctx, 0) {
				return e.Type, err
			}
			return nil, errors.New("no event")
		},
		"events of no run": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			for _, err := range c.RunByID("run_01JD0000000000000000000000").Events(ctx, 0) {
				return nil, err
			}
			return nil, errors.New("no error")
		},
		"history": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			r, _, err := done(ctx, c, hello)
			if err != nil {
				return nil, err
			}
			all, err := r.History(ctx)
			var said []string
			for _, m := range all {
				said = append(said, string(m.Role))
			}
			return said, err
		},
		"fork": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			r, _, err := done(ctx, c, hello)
			if err != nil {
				return nil, err
			}
			f, err := r.Fork(ctx, turnpike.Fork{Turn: new(1)})
			if err != nil {
				return nil, err
			}
			i, err := f.Wait(ctx)
			return outcome(i), err
		},
		"batch": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			b, err := c.SubmitBatch(ctx, turnpike.Batch{Runs: []turnpike.Submission{hello, {Agent: "plain", Input: "x"}}, MaxParallel: 1})
			if err != nil {
				return nil, err
			}
			i, err := b.Wait(ctx)
			if err != nil {
				return nil, err
			}
			last, err := b.Runs()[1].Info(ctx)
			return fmt.Sprint(i.Total, i.Counts, len(b.Runs()), outcome(last)), err
		},
		"batch with a mistake": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			_, err := c.SubmitBatch(ctx, turnpike.Batch{Runs: []turnpike.Submission{hello, {Agent: "nobody", Input: "x"}}})
			return nil, err
		},
		"delete": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			r, _, err := done(ctx, c, hello)
			if err != nil {
				return nil, err
			}
			if err := r.Delete(ctx); err != nil {
				return nil, err
			}
			_, err = r.Info(ctx)
			return nil, err
		},
		"delete in flight": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			r, _, err := idle(ctx, c)
			if err != nil {
				return nil, err
			}
			return nil, r.Delete(ctx)
		},
		"runs": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			s := hello
			s.Metadata = map[string]string{"case": fmt.Sprintf("%p", c)}
			want := map[string]bool{}
			for range 3 {
				r, err := c.Submit(ctx, s)
				if err != nil {
					return nil, err
				}
				want[r.ID()] = true
			}
			for i, err := range c.Runs(ctx, turnpike.Filter{Agent: "clerk", Metadata: s.Metadata, CreatedAfter: time.Now().Add(-time.Hour)}) {
				if err != nil {
					return nil, err
				}
				delete(want, i.ID)
			}
			return len(want), nil
		},
		"runs of no status": func(ctx context.Context, c, _ *turnpike.Client) (any, error) {
			for _, err := range c.Runs(ctx, turnpike.Filter{Statuses: []string{"lazy"}}) {
				return nil, err
			}
			return nil, errors.New("no error")
		},
	}
}

// causes returns the sentinels that errors.Is may find.
func causes() map[string]error {
	return map[string]error{
		"invalid": turnpike.ErrInvalid, "not found": turnpike.ErrNotFound, "conflict": turnpike.ErrConflict, "not waiting": turnpike.ErrNotWaiting,
		"stale": turnpike.ErrStale, "ended": turnpike.ErrEnded, "full": turnpike.ErrFull, "unauthenticated": turnpike.ErrUnauthenticated,
		"forbidden": turnpike.ErrForbidden, "unavailable": turnpike.ErrUnavailable, "newer": turnpike.ErrNewerBuild, "closed": turnpike.ErrClosed,
	}
}

// result is the result of an operation, comparable between clients.
type result struct {
	Value       any
	Code, Cause string
	Detail      string
	Faults      int
	Unexpected  string
}

var runID = regexp.MustCompile(`run_[0-9A-Z]+`)

func resultOf(value any, err error) result {
	r := result{Value: value}
	if err == nil {
		return r
	}
	for name, c := range causes() {
		if errors.Is(err, c) {
			r.Cause += name
		}
	}
	if p, ok := errors.AsType[*turnpike.Error](err); ok {
		r.Code, r.Detail, r.Faults = p.Code, runID.ReplaceAllString(p.Detail, "RUN"), len(p.Errors)
	} else {
		r.Unexpected = err.Error()
	}
	return r
}

// Every operation has the same result and the same error in the process and over HTTP.
func TestBothClients(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	put(t, d.Client, agents()...)
	person := d.As(turnpike.Principal{Name: "ada", Roles: []turnpike.Role{"approver"}})
	http := dial(t, d, turnpike.GatewayOptions{Auth: turnpike.NoAuth()}, "")
	want := map[string]string{
		"no agent": "not found", "no input": "invalid", "two inputs": "invalid", "bad agent": "invalid", "loosened agent": "invalid", "bad YAML": "invalid",
		"no version": "not found", "negative delay": "invalid", "key": "conflict", "stale": "stale", "no hash": "invalid", "edit": "invalid", "two kinds of signal": "invalid",
		"answer of a run that waits for an approval": "not waiting", "result of a run that has ended": "ended", "events of no run": "not found",
		"batch with a mistake": "not found", "delete": "not found", "delete in flight": "conflict", "runs of no status": "invalid",
	}
	values := map[string]any{
		"wait": "completed: Done.", "do": answer{true}, "do with tools": answer{true}, "do anything": map[string]any{"Refunded": true},
		"do does not match": []string{"failed", "invalid_output", "the output is not JSON: invalid character 'I' looking for beginning of value"},
		"do text":           "Yes, checked.", "do does not decode": "Hello.", "messages": "completed: Hello.",
		"same agent": true, "version": "completed: old", "delay": []string{"waiting_schedule", "cancelled"}, "approve": "completed: Paid.", "signal twice": "completed: Paid.",
		"deny": "Denied: too much", "message": "completed: Still done.", "fork": "completed: Done.", "batch": "2 map[completed:2] 2completed: Hello.", "runs": 0,
		"history": []string{"system", "user", "assistant", "tool", "assistant"},
	}
	for name, run := range operations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inside := resultOf(run(t.Context(), d.Client, person))
			outside := resultOf(run(t.Context(), http, http))
			if diff := cmp.Diff(inside, outside); diff != "" {
				t.Errorf("in the process (-) and over HTTP (+):\n%s", diff)
			}
			if inside.Cause != want[name] || inside.Unexpected != "" {
				t.Errorf("cause %q, want %q: %+v", inside.Cause, want[name], inside)
			}
			if v, ok := values[name]; ok {
				if diff := cmp.Diff(v, inside.Value); diff != "" {
					t.Errorf("result (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// An in-process client acts for the principal that the program names, with exactly its roles.
func TestRoles(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	put(t, d.Client, agents()...)
	r, seen, err := idle(t.Context(), d.Client)
	if err != nil {
		t.Fatal(err)
	}
	viewer := d.As(turnpike.Principal{Name: "vera", Roles: []turnpike.Role{"viewer"}})
	if err := r.Approve(t.Context(), seen); !errors.Is(err, turnpike.ErrForbidden) {
		t.Errorf("the process approves: %v", err)
	}
	if err := viewer.RunByID(r.ID()).Approve(t.Context(), seen); !errors.Is(err, turnpike.ErrForbidden) {
		t.Errorf("a viewer approves: %v", err)
	}
	if err := d.As(turnpike.Principal{Roles: []turnpike.Role{"approver"}}).RunByID(r.ID()).Approve(t.Context(), seen); !errors.Is(err, turnpike.ErrUnauthenticated) {
		t.Errorf("a principal without a name approves: %v", err)
	}
	elsewhere := d.As(turnpike.Principal{Name: "eve", Tenant: "other", Roles: []turnpike.Role{"approver"}})
	if _, err := elsewhere.RunByID(r.ID()).Info(t.Context()); !errors.Is(err, turnpike.ErrNotFound) {
		t.Errorf("another tenant reads the run: %v", err)
	}
	if _, err := viewer.RunByID(r.ID()).Info(t.Context()); err != nil {
		t.Errorf("a viewer reads the run: %v", err)
	}
	ada := d.As(turnpike.Principal{Name: "ada", Roles: []turnpike.Role{"approver"}})
	if err := ada.RunByID(r.ID()).Approve(t.Context(), seen); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	by := ""
	for e, err := range r.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.By != nil && e.By.Principal == "ada" {
			by = e.By.Via
		}
	}
	if by != "go" {
		t.Errorf("the history attributes ada to %q, want go", by)
	}
}

// Event streams end with their context and with the deployment.
func TestEventsEnd(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	put(t, d.Client, agents()...)
	r, _, err := idle(t.Context(), d.Client)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var last error
	for e, err := range r.Events(ctx, 0) {
		if last = err; err == nil && e.Type == "run.waiting" {
			cancel()
		}
	}
	cancel()
	if !errors.Is(last, context.Canceled) {
		t.Errorf("the stream ended with %v, want canceled", last)
	}
	last = nil
	for e, err := range r.Events(t.Context(), 0) {
		if last = err; err == nil && e.Type == "run.waiting" {
			go d.Close()
		}
	}
	if !errors.Is(last, turnpike.ErrClosed) {
		t.Errorf("the stream ended with %v, want ErrClosed", last)
	}
	if _, err := r.Info(t.Context()); !errors.Is(err, turnpike.ErrClosed) {
		t.Errorf("a closed deployment returns %v", err)
	}
}
