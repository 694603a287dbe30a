package eval

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/turnpike-dev/turnpike/internal/rule"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// maxRepeat is the maximum of Options.Repeat.
const maxRepeat = 1000

// Version is a version of an agent. 0 is the latest.
type Version struct {
	Agent   string
	Version int
}

func (v Version) String() string {
	if v.Version == 0 {
		return v.Agent
	}
	return v.Agent + "@" + strconv.Itoa(v.Version)
}

// Options are the options of an evaluation.
type Options struct {
	// ID identifies the evaluation. A second evaluation with the same ID, file, versions, Repeat and MaxParallel
	// continues the first. Required.
	ID string

	// File is the name of the file of cases, for the report. Optional.
	File string

	// Agents are one or two versions. The first is compared with the second.
	Agents []Version

	Repeat      int // runs of each case and version, at most 1,000; default 1
	MaxParallel int // maximum number of runs in flight; default 10

	// Progress, if not nil, is called for each run that has ended or was deleted, with the number of these runs so far
	// and of all runs. It counts first the runs of cases, then, from 0, those of judges, and in a continued evaluation also
	// those that ended before. It is not called concurrently.
	Progress func(ended, all int)
}

// Client has the methods of api.Client that an evaluation needs.
type Client interface {
	PutAgent(ctx context.Context, name string, definition []byte) (api.SavedAgent, error)
	Agent(ctx context.Context, name string) (api.Agent, error)
	SubmitBatch(ctx context.Context, r api.BatchRequest, key string) (api.BatchAccepted, error)
	WaitBatch(ctx context.Context, id string, each func(api.Batch, api.Run)) (api.Batch, error)
	Get(ctx context.Context, id string) (api.Run, error)
	AllMessages(ctx context.Context, id string) ([]api.Message, error)
	Cancel(ctx context.Context, id, reason string) (api.Run, error)
}

var _ Client = (*api.Client)(nil)

// ErrChanged reports that an evaluation cannot continue, because since it began an agent has a new latest version, or
// the cases, the judge or the options have changed.
var ErrChanged = errors.New("the evaluation cannot continue, since an agent, the judge, the cases or the options have changed: start over with --fresh")

type evaluation struct {
	client  Client
	file    *File
	id      string
	options Options
	report  *Report
	ended   int // number of ended runs in the current runAll
}

// Run runs the cases of a file and returns the results. A failed case is a result, not an error. After an error the
// evaluation is incomplete. A second call with the same ID, file and options continues it while the idempotency keys of
// its batches are known, at least a week. That call returns ErrChanged if, for example, an agent has a new latest
// version.
func Run(ctx context.Context, client Client, file *File, o Options) (*Report, error) {
	o.Repeat = max(o.Repeat, 1)
	if o.MaxParallel == 0 {
		o.MaxParallel = 10
	}
	if o.Repeat > maxRepeat {
		return nil, fmt.Errorf("repeat is %d, at most %d is allowed: set a smaller number", o.Repeat, maxRepeat)
	}
	e := &evaluation{client: client, file: file, id: o.ID, options: o, report: &Report{ID: o.ID, EvaluationTotals: api.EvaluationTotals{File: o.File, Repeat: o.Repeat}}}
	requests, err := e.plan(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.runAll(ctx, "cases", requests, e.ranCase); err != nil {
		return nil, err
	}
	if err := e.check(ctx); err != nil {
		return nil, err
	}
	if err := e.judge(ctx); err != nil {
		return nil, err
	}
	e.report.summarize()
	return e.report, nil
}

// plan returns a submission for each version, repeat and case, and creates their results. If an entry of Options.Agents
// has no version, plan takes the latest, so that all runs of the entry use the same version.
func (e *evaluation) plan(ctx context.Context) ([]api.SubmitRequest, error) {
	var requests []api.SubmitRequest
	for i, v := range e.options.Agents {
		if v.Version == 0 {
			latest, err := e.client.Agent(ctx, v.Agent)
			if err != nil {
				return nil, fmt.Errorf("agent %s: %w", v.Agent, err)
			}
			v.Version = latest.Version
		}
		e.report.Versions = append(e.report.Versions, api.EvaluationVersion{Version: v.String()})
		for n := range e.options.Repeat {
			for at, c := range e.file.Cases {
				r := c.submission
				r.Agent, r.AgentVersion = v.Agent, v.Version
				metadata := map[string]string{"eval": e.id, "eval_case": strconv.Itoa(at + 1), "eval_repeat": strconv.Itoa(n + 1)}
				for key, value := range r.Metadata {
					metadata[key] = value
				}
				r.Metadata = metadata
				requests = append(requests, r)
				e.report.Results = append(e.report.Results, Result{EvaluationResult: api.EvaluationResult{Case: c.Name, Version: v.String(), Repeat: n + 1}, of: at, version: i})
			}
		}
	}
	return requests, nil
}

// ranCase records the end of a run in result i.
func (e *evaluation) ranCase(i int, run api.Run) {
	r := &e.report.Results[i]
	r.run, r.RunID, r.Status = run, run.ID, run.Status
	r.Turns, r.Tokens, r.CostUSD, r.Seconds = run.TurnCount, tokens(run), cost(run), seconds(run)
}

// check applies the expectations to the results.
func (e *evaluation) check(ctx context.Context) error {
	for i := range e.report.Results {
		r := &e.report.Results[i]
		if r.Status == api.EvaluationRunDeleted {
			r.delete()
			continue
		}
		c := &e.file.Cases[r.of]
		if r.run.Status != string(state.Completed) && !c.anyStatus {
			r.Failures = append(r.Failures, ended(r.run))
			continue
		}
		var tools []string
		if c.wantsTools {
			messages, err := e.client.AllMessages(ctx, r.RunID)
			if errors.Is(err, api.ErrNotFound) {
				r.delete()
				continue
			}
			if err != nil {
				return fmt.Errorf("read the messages of run %s: %w", r.RunID, err)
			}
			tools = called(messages)
		}
		left := rule.NewBudget()
		for _, check := range c.checks {
			if why := check.fails(r.run, tools, left); why != "" {
				r.Failures = append(r.Failures, why)
			}
		}
	}
	return nil
}

// delete records that the run was deleted, as a failure.
func (r *Result) delete() {
	r.Status, r.Failures = api.EvaluationRunDeleted, []string{"the run was deleted before the evaluation had read it: start over with --fresh"}
}

// ended describes how a run ended that did not complete.
func ended(r api.Run) string {
	why := "the run ended " + r.Status
	if r.Reason != nil {
		why += " (" + *r.Reason + ")"
	}
	if r.Error != nil {
		why += ": " + r.Error.Message
	}
	return why
}

// called returns the names of the tools that the model called, in order.
func called(messages []api.Message) []string {
	tools := []string{}
	for _, m := range messages {
		for _, p := range m.Parts {
			if p.Type == state.PartToolCall {
				tools = append(tools, p.Name)
			}
		}
	}
	return tools
}

// runAll runs submissions in batches, one after the other, and calls done once for each run that has ended or was
// deleted, with its index in requests. It cancels a run that waits for a person or a client tool. Batches have
// idempotency keys, so a repeated evaluation finds the runs that it has already started; if their content has changed,
// the error is ErrChanged.
func (e *evaluation) runAll(ctx context.Context, what string, requests []api.SubmitRequest, done func(int, api.Run)) error {
	e.ended = 0
	for first := 0; first < len(requests); first += chunk {
		part := requests[first:min(first+chunk, len(requests))]
		key := fmt.Sprintf("eval:%s:%s:%d", e.id, what, first)
		accepted, err := e.client.SubmitBatch(ctx, api.BatchRequest{Runs: part, MaxParallel: e.options.MaxParallel}, key)
		if problem, ok := errors.AsType[*api.Problem](err); ok && problem.Code == api.CodeIdempotencyConflict {
			return ErrChanged // the remedy in err is about keys, which the user has not chosen
		}
		if err != nil {
			return fmt.Errorf("submit runs: %w", err)
		}
		if err := e.wait(ctx, accepted, len(requests), func(i int, r api.Run) { done(first+i, r) }); err != nil {
			return err
		}
	}
	return nil
}

// chunk is the maximum number of runs in a batch: their submissions fit into one request.
const chunk = 200

// wait waits for the runs of a batch, and calls done with the index of each. It cancels a run that waits for a person
// or a client tool, because the runs of an evaluation get no answers. A run that was deleted has the status
// EvaluationRunDeleted.
func (e *evaluation) wait(ctx context.Context, accepted api.BatchAccepted, all int, done func(int, api.Run)) error {
	places := map[string]int{}
	for i, id := range accepted.RunIDs {
		places[id] = i
	}
	seen := make([]bool, len(accepted.RunIDs))
	note := func(i int, r api.Run) {
		e.ended++
		seen[i] = true
		done(i, r)
		if e.options.Progress != nil {
			e.options.Progress(e.ended, all)
		}
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	_, err := e.client.WaitBatch(ctx, accepted.BatchID, func(_ api.Batch, r api.Run) {
		switch {
		case r.Waiting != nil && state.Reason(r.Waiting.Reason) == state.WaitingTool:
			return // the service of the tool answers
		case !r.Terminal():
			_, err := e.client.Cancel(ctx, r.ID, "no one answers the runs of an evaluation")
			if err != nil && !errors.Is(err, api.ErrEnded) && !errors.Is(err, api.ErrNotFound) { // by someone else meanwhile
				stop(fmt.Errorf("cancel run %s, which waits for an answer that no one gives: %w", r.ID, err)) // WaitBatch reports it once
			}
			return
		}
		note(places[r.ID], r)
	})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	for i, id := range accepted.RunIDs {
		if !seen[i] {
			note(i, api.Run{ID: id, Status: api.EvaluationRunDeleted})
		}
	}
	return nil
}
