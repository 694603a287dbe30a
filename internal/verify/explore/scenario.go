package explore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Scenario is the workload of a deployment.
type Scenario struct {
	Name   string
	Agents map[string]string // definitions, by name
	Agent  string            // of the run that is submitted

	// Says returns the response of the model of this name after `said` responses in the run, at its
	// n-th call in all.
	Says func(model string, said, n int) model.Response

	Cancel bool // a user may cancel, at any moment
	Remark bool // a user may send a message, at any moment

	// Interrupt means that a user may interrupt the run with a message, at any moment.
	Interrupt bool

	// Withdraw means that a user may roll the run's turn back with a message, at any moment.
	Withdraw bool

	Delete bool // a user may delete the run, at any moment
	Twice  bool // and so may another user, at another gateway
	Ended  bool // messages and deletions come after its end
	Batch  bool // the run is the first of a batch of two, of which the second starts after its end
	Pick   bool // a user answers the client tool
	Bus    bool // a service submits and cancels over the bus
	Hooks  bool // no tool acts before its hook was called
	Probe  bool // the tool has a probe, which knows
	Refuse bool // and refuses the key of a call that was not done
	Fork   bool // a user forks the run after its end, once from each of its turns but the last

	Checkpoints bool // each turn begins with a checkpoint of the history, if it may

	Rollback     bool // the store may fall back to an older copy
	Plain        bool // workers run without their optimisations
	NoSweeper    bool // there is no sweeper: redelivery must suffice
	NoHeartbeats bool // no heartbeat reaches another process: leases expire
	Unheard      bool // heartbeats of a worker may reach only the store for a while

	// Without are outcomes that are not explored, because another scenario explores them, or
	// because this deployment lacks the protection against them.
	Without []outcome

	// Only are words of the calls that may fail; if empty, all may.
	Only []string

	// Quick, Short and Full are the bounds within which the scenario is explored: in seconds together with all
	// others, in about two minutes, and without a time limit.
	Quick, Short, Full []Bound
}

// runs is the number of runs that are submitted.
func (sc *Scenario) runs() int { return 1 + count(sc.Batch) }

// mayFail reports whether a call may end with a fault.
func (sc *Scenario) mayFail(name string) bool {
	return len(sc.Only) == 0 || slices.ContainsFunc(sc.Only, func(word string) bool { return strings.Contains(name, word) })
}

// tune applies the scenario's settings to a worker.
func (sc *Scenario) tune(cfg *worker.Config) {
	if sc.Plain {
		cfg.Without = worker.Optimisations{EagerClaims: true, Quarantine: true}
	}
	if sc.Checkpoints {
		cfg.CheckpointBytes = 1
	}
	if sc.NoSweeper {
		cfg.SweepInterval = far
		cfg.Without.Sticky = true // nothing is redelivered from the own queue of a dead worker
	}
	if sc.NoHeartbeats {
		cfg.HeartbeatInterval = far
	}
}

func text(s string) model.Response {
	return model.Response{Stop: model.StopEnd, Parts: []state.Part{{Type: state.PartText, Text: s}}}
}

func calls(n int, names ...string) model.Response {
	r := model.Response{Stop: model.StopToolCalls}
	for i, name := range names {
		r.Parts = append(r.Parts, state.Part{Type: state.PartToolCall, ID: fmt.Sprintf("c%d_%d", n, i), Name: name, Arguments: fmt.Sprintf(`{"n":%d,"task":"it"}`, n)})
	}
	return r
}

// script returns one response after the other, and then the end.
func script(turns ...[]string) func(string, int, int) model.Response {
	return func(_ string, said, n int) model.Response {
		if said < len(turns) {
			return calls(n, turns[said]...)
		}
		return text("done")
	}
}

const payer = `{"name":"payer","model":{"provider":"scripted","name":"payer","responses":[{"text":"-"}]},"tools":[
	{"name":"pay","concurrency":"serial"},{"name":"look","idempotent":true,"reuse":false,"concurrency":"serial"},{"name":"pick","kind":"client","schema":{"type":"object"}}]}`

const guarded = `{"name":"guarded","model":{"provider":"scripted","name":"payer","responses":[{"text":"-"}]},"tools":[{"name":"pay"}],
	"hooks":{"pre_tool":[{"kind":"go","name":"guard"}],"post_sampling":[{"kind":"go","name":"guard"}],"stop":[{"kind":"go","name":"guard"}]}}`

const probed = `{"name":"probed","model":{"provider":"scripted","name":"payer","responses":[{"text":"-"}]},"tools":[{"name":"pay","probe":{}}]}`

const valued = `{"name":"valued","model":{"provider":"scripted","name":"payer","responses":[{"text":"-"}]},"tools":[{"name":"pay"}],
	"output_schema":{"type":"object"},"max_output_retries":1}`

// value pays, answers with text and, when the loop rejects that as invalid, answers with a value.
func value(_ string, said, n int) model.Response {
	switch said {
	case 0:
		return calls(n, "pay")
	case 1:
		return text("done")
	default:
		return text(`{"paid":true}`)
	}
}

const boss = `{"name":"boss","model":{"provider":"scripted","name":"boss","responses":[{"text":"-"}]},"tools":[{"name":"payer","kind":"agent","agent":"payer"}]}`

// family returns the responses of a parent with that many children, and theirs.
func family(children int, turns ...[]string) func(string, int, int) model.Response {
	child := script(turns...)
	return func(name string, said, n int) model.Response {
		switch {
		case name != "boss":
			return child(name, said, n)
		case said > 0:
			return text("done")
		default:
			return calls(n, slices.Repeat([]string{"payer"}, children)...)
		}
	}
}

// Scenarios returns all scenarios.
func Scenarios() []Scenario {
	one := map[string]string{"payer": payer}
	two := map[string]string{"payer": payer, "boss": boss}
	tools := script([]string{"pay", "look"})
	b := func(pairs ...int) (bounds []Bound) {
		for i := 0; i < len(pairs); i += 2 {
			bounds = append(bounds, Bound{pairs[i], pairs[i+1]})
		}
		return bounds
	}
	return []Scenario{
		{Name: "one turn", Agents: one, Agent: "payer", Says: script(), Rollback: true, Quick: b(1, 0), Short: b(1, 2, 2, 0), Full: b(1, 2, 2, 0)},
		{Name: "tools", Agents: one, Agent: "payer", Says: tools, Rollback: true, Quick: b(1, 0), Short: b(1, 2), Full: b(1, 2, 2, 0)},
		{Name: "tools, no optimisations", Agents: one, Agent: "payer", Says: tools, Plain: true, Rollback: true, Quick: b(0, 2), Short: b(1, 2), Full: b(1, 2, 2, 0)},
		{Name: "tools, leases run out", Agents: one, Agent: "payer", Says: tools, NoHeartbeats: true, Quick: b(1, 0), Short: b(1, 2), Full: b(1, 2, 2, 0)},
		{
			Name: "a worker that sleeps", Agents: one, Agent: "payer", Says: script([]string{"pay"}),
			Without: slices.DeleteFunc(slices.Clone(all), func(o outcome) bool { return o == asleep }), Quick: b(1, 1), Short: b(1, 2, 2, 0), Full: b(2, 2),
		},
		{Name: "hooks", Agents: map[string]string{"guarded": guarded}, Agent: "guarded", Says: script([]string{"pay"}), Hooks: true, Quick: b(1, 0), Short: b(1, 1), Full: b(1, 2, 2, 0)},
		{
			Name: "an answer that is returned", Agents: map[string]string{"valued": valued}, Agent: "valued", Says: value, Remark: true,
			Quick: b(0, 0), Short: b(0, 1, 1, 0), Full: b(1, 2, 2, 0),
		},
		{
			Name: "a probe that refuses", Agents: map[string]string{"probed": probed}, Agent: "probed", Says: script([]string{"pay"}), Probe: true, Refuse: true,
			Without: []outcome{doubled, vanished, refused, unheard}, Quick: b(1, 0), Short: b(2, 0), Full: b(1, 2, 2, 0),
		},
		{
			Name: "a probe that promises nothing", Agents: map[string]string{"probed": probed}, Agent: "probed", Says: script([]string{"pay"}), Probe: true,
			Without: []outcome{doubled, vanished, refused, unheard}, Quick: b(1, 0), Short: b(1, 1), Full: b(1, 2, 2, 0),
		},
		{
			Name: "a service, over the bus", Agents: one, Agent: "payer", Says: script([]string{"pay"}), Bus: true, Cancel: true,
			Quick: b(0, 0), Short: b(0, 1, 1, 0), Full: b(1, 2, 2, 0),
		},
		{
			Name: "a worker that is not heard", Agents: one, Agent: "payer", Says: script([]string{"pay"}), Unheard: true,
			Without: slices.DeleteFunc(slices.Clone(all), func(o outcome) bool { return o == crashBefore || o == crashAfter || o == slow }), Quick: b(1, 0), Short: b(1, 2, 2, 0), Full: b(2, 2),
		},
		{
			Name: "nobody sweeps", Agents: one, Agent: "payer", Says: script([]string{"look"}), NoSweeper: true,
			Without: []outcome{vanished, refused, unheard, asleep}, Quick: b(1, 0), Short: b(1, 2), Full: b(1, 2, 2, 0),
		},
		{
			Name: "nobody sweeps, no optimisations", Agents: one, Agent: "payer", Says: script([]string{"look"}), NoSweeper: true, Plain: true,
			Without: []outcome{vanished, refused, unheard, asleep}, Quick: b(1, 0), Short: b(1, 1), Full: b(1, 2, 2, 0),
		},
		{Name: "a cancellation", Agents: one, Agent: "payer", Says: tools, Cancel: true, Quick: b(0, 1), Short: b(0, 2, 1, 0), Full: b(1, 2, 2, 0)},
		{Name: "a remark", Agents: one, Agent: "payer", Says: script([]string{"pay"}), Remark: true, Quick: b(0, 1), Short: b(0, 2, 1, 0), Full: b(1, 2, 2, 0)},
		{Name: "an interrupt", Agents: one, Agent: "payer", Says: tools, Interrupt: true, Quick: b(0, 1), Short: b(0, 2, 1, 0), Full: b(1, 2, 2, 0)},
		{Name: "an interrupt and hooks", Agents: map[string]string{"guarded": guarded}, Agent: "guarded", Says: script([]string{"pay"}), Hooks: true, Interrupt: true, Quick: b(0, 0), Short: b(0, 1), Full: b(0, 2, 1, 0)},
		{Name: "an interrupt and an answer", Agents: one, Agent: "payer", Says: script([]string{"pick"}), Pick: true, Interrupt: true, Quick: b(0, 1), Short: b(0, 1, 1, 0), Full: b(1, 2, 2, 0)},
		{Name: "an interrupt and a cancellation", Agents: one, Agent: "payer", Says: script([]string{"pay"}), Cancel: true, Interrupt: true, Quick: b(0, 0), Short: b(0, 1), Full: b(1, 1, 0, 2)},
		{Name: "an interrupt and a deletion", Agents: one, Agent: "payer", Says: script(), Delete: true, Interrupt: true, Quick: b(0, 0), Short: b(0, 1), Full: b(1, 1, 0, 2)},
		{Name: "a child and an interrupt", Agents: two, Agent: "boss", Says: family(1, []string{"pay"}), Interrupt: true, Quick: b(0, 0), Short: b(0, 1), Full: b(1, 1, 0, 2)},
		{
			Name: "a child of a run that is interrupted", Agents: two, Agent: "boss", Says: family(1, []string{"pay"}), Interrupt: true,
			Only: []string{"w1: admit below R1", "w1: create R2", "w1: load R1", "w1: publish the turn after R2"}, Without: []outcome{doubled},
			Quick: b(0, 0), Short: b(1, 0), Full: b(1, 1, 2, 0),
		},
		{Name: "a withdrawal", Agents: one, Agent: "payer", Says: tools, Withdraw: true, Quick: b(0, 1), Short: b(0, 2, 1, 0), Full: b(1, 2, 2, 0)},
		{
			Name: "a withdrawal and a death", Agents: one, Agent: "payer", Says: script([]string{"look"}), Withdraw: true, Only: []string{"call look"},
			Quick: b(1, 0), Short: b(1, 1), Full: b(1, 2, 2, 0),
		},
		{Name: "a withdrawal and hooks", Agents: map[string]string{"guarded": guarded}, Agent: "guarded", Says: script([]string{"pay"}), Hooks: true, Withdraw: true, Quick: b(0, 0), Short: b(0, 1), Full: b(0, 2, 1, 0)},
		{Name: "a withdrawal and an answer", Agents: one, Agent: "payer", Says: script([]string{"pick"}), Pick: true, Withdraw: true, Quick: b(0, 1), Short: b(0, 1), Full: b(1, 2, 2, 0)},
		{Name: "a withdrawal and a cancellation", Agents: one, Agent: "payer", Says: script([]string{"pay"}), Cancel: true, Withdraw: true, Quick: b(0, 0), Short: b(0, 1), Full: b(1, 1, 0, 2)},
		{Name: "a withdrawal and a deletion", Agents: one, Agent: "payer", Says: script(), Delete: true, Withdraw: true, Quick: b(0, 0), Short: b(0, 1), Full: b(1, 1, 0, 2)},
		{Name: "a child and a withdrawal", Agents: two, Agent: "boss", Says: family(1, []string{"pay"}), Withdraw: true, Quick: b(0, 0), Short: b(0, 1), Full: b(1, 1, 0, 2)},
		{Name: "an answer", Agents: one, Agent: "payer", Says: script([]string{"pick"}), Pick: true, Rollback: true, Quick: b(0, 2), Short: b(1, 1), Full: b(1, 2, 2, 0)},
		{Name: "an answer and a cancellation", Agents: one, Agent: "payer", Says: script([]string{"pick"}), Pick: true, Cancel: true, Quick: b(0, 0), Short: b(0, 1, 1, 0), Full: b(1, 2, 2, 0)},
		{Name: "a deletion and a remark", Agents: one, Agent: "payer", Says: script(), Delete: true, Remark: true, Quick: b(0, 0), Short: b(0, 1), Full: b(1, 2, 2, 0)},
		{Name: "a deletion of a tree and a remark", Agents: two, Agent: "boss", Says: family(1), Delete: true, Remark: true, Ended: true, Quick: b(0, 1), Short: b(0, 1), Full: b(0, 2, 1, 0)},
		{Name: "two deletions of a tree and a remark", Agents: two, Agent: "boss", Says: family(1), Delete: true, Twice: true, Remark: true, Ended: true, Quick: b(0, 0), Short: b(0, 0), Full: b(0, 2, 1, 0)},
		{
			Name: "a deletion in a batch", Agents: one, Agent: "payer", Says: script(), Delete: true, Ended: true, Batch: true,
			Only: []string{"commit R1", "signal R2", "finalized R1", "seal R1", "delete R1", "R2 at"}, Quick: b(0, 0), Short: b(0, 1, 1, 0), Full: b(1, 2, 2, 0),
		},
		{
			Name: "checkpoints", Agents: one, Agent: "payer", Says: script([]string{"look"}, []string{"pick", "pay"}), Pick: true, Checkpoints: true,
			Only: []string{"record R1", "commit R1", "claim R1"}, Quick: b(1, 0), Short: b(1, 0, 0, 1), Full: b(1, 2, 2, 0),
		},
		{
			Name: "checkpoints and a withdrawal", Agents: one, Agent: "payer", Says: script([]string{"look"}, []string{"look"}), Checkpoints: true, Withdraw: true,
			Only: []string{"record R1", "commit R1"}, Quick: b(0, 0), Short: b(1, 0), Full: b(1, 2, 2, 0),
		},
		{
			Name: "checkpoints and forks", Agents: one, Agent: "payer", Says: script([]string{"look"}, []string{"look"}), Checkpoints: true, Fork: true, Ended: true,
			Only: []string{"log of R1", "create R"}, Quick: b(0, 0), Short: b(1, 0), Full: b(1, 1, 2, 0),
		},
		{Name: "two children", Agents: two, Agent: "boss", Says: family(2, []string{"pay"}), Quick: b(0, 0), Short: b(1, 0), Full: b(1, 2, 2, 0)},
		{Name: "two children and a cancellation", Agents: two, Agent: "boss", Says: family(2, []string{"pay"}), Cancel: true, Quick: b(0, 0), Short: b(0, 0), Full: b(1, 1, 0, 2)},
		{Name: "a child and a cancellation", Agents: two, Agent: "boss", Says: family(1, []string{"pay"}, []string{"look"}), Cancel: true, Quick: b(0, 0), Short: b(0, 1), Full: b(1, 1, 0, 2)},
		{
			Name: "a child of a run that is cancelled", Agents: two, Agent: "boss", Says: family(1, []string{"pay"}), Cancel: true,
			Only: []string{"w1: admit below R1", "w1: create R2", "w1: load R1", "w1: publish the turn after R2"}, Without: []outcome{asleep, doubled},
			Quick: b(0, 0), Short: b(1, 0), Full: b(1, 1),
		},
	}
}
