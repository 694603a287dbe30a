package simulation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/internal/eval"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// evaluator evaluates an agent as turnpike eval does, and repeats the evaluation until it is complete, while another
// user cancels or deletes some of its runs.
type evaluator struct {
	s      *Deployment
	name   string
	dice   *dice
	agent  string
	tenant string

	runs []string // of the cases
}

// evaluated are the cases. Some need the messages of their runs.
const evaluated = `cases:
- {name: any, input: go, expect: [{cel: "turns >= 0"}]}
- {name: ended, input: go, expect: [{cel: "status != ''"}]}
- {name: tools, input: go, expect: [{cel: "tools.size() >= 0"}]}`

const (
	evaluatedCases = 3
	evaluatedTimes = 2
)

// evaluating is the client of an evaluation. It records the runs.
type evaluating struct {
	*api.Client

	accepted func(runs []string)
}

func (c evaluating) SubmitBatch(ctx context.Context, r api.BatchRequest, key string) (api.BatchAccepted, error) {
	b, err := c.Client.SubmitBatch(ctx, r, key)
	if err == nil {
		c.accepted(b.RunIDs)
	}
	return b, err
}

func (e *evaluator) see(ctx context.Context) error {
	time.Sleep(e.dice.between(0, e.s.cfg.Strike))
	file, err := eval.Parse([]byte(evaluated))
	if err != nil {
		return err
	}
	c := e.s.clients[e.tenant]
	submitted, meddled := make(chan []string, 1), make(chan error, 1)
	go func() { meddled <- e.meddle(ctx, submitted) }()
	client := evaluating{c, func(runs []string) {
		switch {
		case e.runs == nil:
			submitted <- runs
		// The first run has the key of the batch.
		case !slices.Equal(e.runs, runs) && !e.s.deleted(e.runs[0]) && !e.s.fellBack():
			e.s.violate("I1: the evaluation %s has the runs %v and %v", e.name, e.runs, runs)
		}
		e.runs = runs
		e.s.batch(runs[0], runs)
	}}
	options := eval.Options{ID: e.name, Agents: []eval.Version{{Agent: e.agent}}, Repeat: evaluatedTimes, MaxParallel: 2}
	for ctx.Err() == nil {
		began := time.Now()
		report, err := eval.Run(ctx, client, file, options)
		e.s.note("", "%s: evaluated %s: %v", e.name, e.agent, err)
		switch {
		case err == nil && e.s.settled():
			if err := <-meddled; err != nil {
				return err
			}
			e.check(report, began)
			return e.store(ctx, report)
		case refused(err) && !e.s.fellBack():
			return fmt.Errorf("the evaluation %s was refused: %w", e.name, err)
		}
		time.Sleep(every)
	}
	return fmt.Errorf("I2: the evaluation %s of %v does not end: %w", e.name, e.runs, ctx.Err())
}

// meddle cancels or deletes some runs of the evaluation, which has none before it is submitted.
func (e *evaluator) meddle(ctx context.Context, submitted <-chan []string) error {
	delay, cancels := e.dice.between(0, 30*time.Second), e.dice.chance(0.3)
	var drawn []int
	for i := range evaluatedCases * evaluatedTimes {
		if e.dice.chance(0.4) {
			drawn = append(drawn, i)
		}
	}
	var runs []string
	select {
	case runs = <-submitted:
	case <-ctx.Done():
		return nil
	}
	time.Sleep(delay)
	for len(drawn) > 0 && ctx.Err() == nil {
		u := &user{s: e.s, name: e.name, tenant: e.tenant, run: runs[drawn[0]]}
		if !cancels {
			if err := u.deleteEarly(ctx); err != nil {
				return err
			}
		}
		if cancels && u.cancel(ctx) || e.s.deleted(u.run) || e.s.fellBack() {
			drawn = drawn[1:]
		}
		time.Sleep(e.dice.between(0, time.Second)) // often before the evaluation has seen the end
	}
	return nil
}

// check compares a report, which an evaluation that began at a time has made, with the runs: it counts each case once,
// and says of a run how it ended, or that it was deleted.
func (e *evaluator) check(r *eval.Report, began time.Time) {
	if e.s.fellBack() {
		return
	}
	counted, passed := map[string]int{}, 0
	for i, x := range r.Results {
		counted[fmt.Sprint(x.Case, x.Repeat)]++
		counted[x.RunID]++
		if len(x.Failures) == 0 {
			passed++
		}
		if x.RunID != e.runs[i] {
			e.s.violate("I1: the result %d of the evaluation %s is of %s, and its run is %s", i, e.name, x.RunID, e.runs[i])
		}
		end, deleted := e.s.endOf(x.RunID)
		switch {
		case x.Status == api.EvaluationRunDeleted && deleted.IsZero():
			e.s.violate("the evaluation %s says that %s is deleted, and it is not", e.name, x.RunID)
		case x.Status != api.EvaluationRunDeleted && !deleted.IsZero() && deleted.Before(began):
			e.s.violate("the evaluation %s says that %s is %s, and it was deleted %s before", e.name, x.RunID, x.Status, began.Sub(deleted))
		case x.Status != api.EvaluationRunDeleted && x.Status != string(end):
			e.s.violate("the evaluation %s says that %s is %s, and it ended %s", e.name, x.RunID, x.Status, end)
		}
		if fails := x.Status != string(state.Completed) && x.Case != "ended" || x.Status == api.EvaluationRunDeleted; fails != (len(x.Failures) > 0) {
			e.s.violate("the evaluation %s has the failures %q of %s, which is %s", e.name, x.Failures, x.RunID, x.Status)
		}
	}
	if len(counted) != 2*evaluatedCases*evaluatedTimes || len(r.Results) != evaluatedCases*evaluatedTimes {
		e.s.violate("the evaluation %s counts the cases %v", e.name, counted)
	}
	if v := r.Versions; len(v) != 1 || v[0].Runs != len(r.Results) || v[0].Passed != passed {
		e.s.violate("the evaluation %s has the totals %+v of %d results, of which %d passed", e.name, v, len(r.Results), passed)
	}
}

// store stores a report, which must then be in the list once.
func (e *evaluator) store(ctx context.Context, r *eval.Report) error {
	c := e.s.clients[e.tenant]
	stored := false
	for ctx.Err() == nil {
		time.Sleep(every)
		if !stored {
			_, err := c.PutEvaluation(ctx, r.ID, r.Stored())
			if err != nil && refused(err) {
				return fmt.Errorf("store the evaluation %s: %w", e.name, err)
			}
			stored = err == nil
			continue
		}
		page, err := c.Evaluations(ctx, e.agent, "", 100)
		if err != nil {
			continue
		}
		n := 0
		for _, x := range page.Items {
			if x.ID == e.name {
				n++
			}
		}
		if n != 1 && !e.s.fellBack() {
			return fmt.Errorf("the evaluation %s is stored %d times", e.name, n)
		}
		return nil
	}
	return fmt.Errorf("I2: the report of the evaluation %s cannot be stored: %w", e.name, ctx.Err())
}

// endOf returns the status in which a run ended, and the time at which the store has deleted it, if it has.
func (s *Deployment) endOf(id string) (state.Status, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.world.statuses[state.RunID(id)], s.world.deleted[state.RunID(id)]
}
