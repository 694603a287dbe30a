package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool/toolspec"
)

// step is where a worker stands: what it does next.
type step string

const (
	idle       step = ""
	deciding   step = "decide" // at once, with the step before
	asking     step = "ask the model"
	recording  step = "journal"
	telling    step = "announce the response"
	acting     step = "run a tool"
	committing step = "commit"
	announcing step = "announce"
	publishing step = "publish"
	settling   step = "settle"
	acking     step = "ack"
)

// worker is one worker with the turn in its hands, as in pkg/worker/turn.go.
type worker struct {
	At      step
	Message string
	Version int64
	Told    bool // the sender has announced all up to Version

	Token     string
	Claim     state.Claim
	State     state.State
	Log       history // of State, whose own does not encode
	Recorded  int64
	Consumed  int
	Announced int64
	Committed state.Committed
	Ahead     bool // the next turn is published with the events, and proves nothing

	Vouched    int64 // entries that this worker knows to be announced before VouchedFor
	VouchedFor int64

	Keep string // the token that a commit under way has for the next turn
	Kept kept   // a turn whose message has yet to come

	Event loop.Event
	Kind  string // of Event
	Calls []state.OpenCall
	Done  []loop.ToolResult
	Heard bool // of the abort
}

// kept is what a worker remembers of a turn that its commit has claimed.
type kept struct {
	Token     string
	State     state.State
	Log       history // of State
	Committed state.Committed
}

// holds reports whether a worker thinks that it has the lease.
func (k worker) holds() bool {
	return k.Token != "" && slices.Contains([]step{deciding, asking, recording, telling, acting, committing}, k.At)
}

// decided keeps what the loop or a claim has made of the state.
func (k *worker) decided(s state.State) { k.State, k.Log = s, k.Log.add(s.Log[k.Log.len():]...) }

// rested is a worker that is done with its turn, and remembers what it does of it.
func (k worker) rested() worker {
	return worker{Vouched: k.Vouched, VouchedFor: k.VouchedFor, Kept: k.Kept}
}

func (k worker) order() string {
	return fmt.Sprint(k.At, k.Version, k.Told, k.Token != "", k.Heard, k.Kind, len(k.Done), k.Ahead, k.VouchedFor, k.Kept.Token != "", k.Kept.Committed.Version)
}

func (k *worker) happened(ev loop.Event) {
	k.Event, k.Kind, k.At = ev, fmt.Sprintf("%T", ev), deciding
}

func now() state.Time { return state.At(epoch) }

// The agent pays without being idempotent, looks, and has the client pick.
func compile() (*agent.Agent, loop.Loop, error) {
	a, err := agent.Builtin().Compile(agent.Definition{
		Name: "a", Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "unused"}}},
		Tools: []agent.Tool{
			{Name: "pay", Concurrency: "serial"}, {Name: "look", Idempotent: true, Concurrency: "serial"},
			{Name: "pick", Kind: toolspec.Client, Schema: json.RawMessage(`{"type":"object"}`)},
		},
	}, 1)
	if err != nil {
		return nil, nil, err
	}
	return a, loop.Builtin()["react"](a), nil
}

// answers is what the model may say in a turn. It may say something else each time
// that it is asked.
func answers(turn int) []model.Response {
	call := func(id, name, arguments string) state.Part {
		return state.Part{Type: state.PartToolCall, ID: id, Name: name, Arguments: arguments}
	}
	switch turn {
	case 1:
		return []model.Response{
			{Stop: model.StopToolCalls, Parts: []state.Part{call("c1", "pay", `{"n":1}`), call("c2", "look", `{}`)}},
			{Stop: model.StopToolCalls, Parts: []state.Part{call("c1", "pay", `{"n":2}`), call("c2", "look", `{}`)}},
		}
	case 2:
		return []model.Response{{Stop: model.StopToolCalls, Parts: []state.Part{call("c3", "pick", `{}`)}}}
	default:
		return []model.Response{{Stop: model.StopEnd, Parts: []state.Part{{Type: state.PartText, Text: "done"}}}}
	}
}

// work is every next step of a worker. A step that fails drops the turn.
func (m *explorer) work(w world, i int) []move {
	k := w.Workers[i]
	one := func(w world, err error) []move {
		return []move{{fmt.Sprintf("worker %d: %s", i+1, k.At), w, err, false}}
	}
	switch k.At {
	case asking:
		if k.Heard {
			w.Workers[i].happened(loop.Aborted{At: now(), Cause: loop.ByUser, Failed: 1})
			return one(m.decide(w, i))
		}
		turn := k.State.Turn
		if !k.State.Reenter {
			turn++
		}
		var moves []move
		for _, r := range answers(turn) {
			to := w
			to.Workers[i].happened(loop.ModelResponded{At: now(), Attempt: 1, Response: r})
			moves = append(moves, one(m.decide(to, i))...)
		}
		return moves
	case recording:
		return one(m.record(w, i))
	case telling:
		// It is sent, and whether it has come is known only to who waits for it: later.
		w.Workers[i].At = acting
		told := w
		return append(one(told, told.tell(k.Announced, k.State.LogLen())), one(w, nil)...)
	case acting:
		return one(m.act(w, i))
	case committing:
		moves := one(m.commit(w, i))
		if w.Left.Silences > 0 {
			w.Left.Silences--
			moves = append(moves, m.commitUnheard(w, i)...)
		}
		return moves
	case announcing, publishing, settling:
		return one(m.finish(w, i))
	case acking:
		return one(m.ack(w, i))
	default:
		return nil
	}
}

// claim asks the store for a turn, under a token of its own or that of what was kept.
func (m *explorer) claim(w world, i int, token string) []move {
	k := &w.Workers[i]
	w.Tokens++
	w.Store.Claims++
	if k.Token = token; token == "" {
		k.Token = fmt.Sprintf("tok-%d", w.Tokens)
	}
	if m.rules.CounterTokens {
		k.Token = fmt.Sprintf("counted-%d", w.Store.Claims)
	}
	var early error
	if m.rules.AckFirst {
		early = w.acked(k.Message)
	}
	c := w.Store.Record.Claim(state.ClaimRequest{Run: runID, Version: k.Version, Token: k.Token, Worker: "w", Lease: lease, RedeliveryDelay: grace}, epoch)
	k.Claim, k.Kept = c, kept{}
	name := fmt.Sprintf("worker %d: claim %d, %s", i+1, k.Version, c.Outcome)
	if early != nil {
		return []move{{name, w, early, false}}
	}
	switch c.Outcome {
	case state.Claimed:
		w, err := m.begin(w, i, w.Store.Log.first(c.Base), w.Store.Log.entries[c.Base:])
		return []move{{name, w, err, false}}
	case state.ClaimBusy:
		return nil // handed back, and nothing has changed
	case state.ClaimStale, state.ClaimTerminal, state.ClaimWaiting:
		k.At = acking
		w, err := m.help(w, i)
		return []move{{name, w, err, false}}
	default:
		k.At = acking
	}
	return []move{{name, w, nil, false}}
}

// resume goes on with what the worker has kept, without a look at the store.
func (m *explorer) resume(w world, i int) []move {
	k := &w.Workers[i]
	own := k.Kept
	k.Token, k.Kept = own.Token, kept{}
	k.Claim = state.Claim{
		Outcome: state.Claimed, Status: state.Running, Version: k.Version, Base: own.Log.len(), Attempt: 1,
		Lease: state.Lease{Run: runID, Token: own.Token, Version: k.Version, Worker: "w"}, State: own.State,
	}
	w, err := m.begin(w, i, own.Log, nil)
	return []move{{fmt.Sprintf("worker %d: go on with %d", i+1, w.Workers[i].Version), w, err, false}}
}

// begin begins the turn of k.Claim, with the log that was committed and what was
// journaled since.
func (m *explorer) begin(w world, i int, log history, journaled []state.Entry) (world, error) {
	k := &w.Workers[i]
	c := k.Claim
	s := c.State
	k.Log = log
	s.Log = log.entries
	for _, e := range journaled {
		s = s.Append(e)
	}
	k.decided(s)
	k.Recorded, k.Announced = s.LogLen(), c.Finalized
	if (k.Told || m.rules.AnyProof) && c.Attempt == 1 {
		k.Announced = max(k.Announced, c.Base)
	}
	if k.VouchedFor == k.Version {
		k.Announced = max(k.Announced, k.Vouched)
	}
	k.Vouched, k.VouchedFor = 0, 0
	k.happened(m.began(k))
	k.Consumed = len(c.Signals)
	k.Claim.State, k.Claim.Journal, k.Claim.Signals = state.State{}, state.Journal{}, nil
	return m.decide(w, i)
}

func (*explorer) began(k *worker) loop.TurnBegan {
	c := k.Claim
	began := loop.TurnBegan{At: now(), Worker: "w", Attempt: min(c.Attempt, 2), Signals: c.Signals, Abort: c.Abort}
	for _, o := range k.State.Open {
		if e, done := c.Journal.Results[o.ID]; done {
			began.Results = append(began.Results, loop.ToolResult{CallID: o.ID, Name: e.Name, Content: e.Message.Parts[0].Content, At: e.At})
		} else if c.Journal.Started[o.ID] {
			began.Started = append(began.Started, o.ID)
		}
	}
	return began
}

func (m *explorer) decide(w world, i int) (world, error) {
	k := &w.Workers[i]
	for {
		d := m.loop.Step(k.State, k.Event)
		k.decided(d.Next)
		k.Event, k.Kind = nil, ""
		if d.Effect == nil {
			k.At = committing
			if m.rules.Keep {
				w.Tokens++
				k.Keep = fmt.Sprintf("tok-%d", w.Tokens)
			}
			return w, nil
		}
		if k.Heard {
			k.Event = loop.Aborted{At: now(), Cause: loop.ByUser}
			continue
		}
		if k.Claim.Abort != nil {
			return w, errors.New("I7: an effect follows an abort that the claim has shown")
		}
		switch effect := d.Effect.(type) {
		case loop.CallModel:
			k.At = asking
		case loop.RunTools:
			k.At, k.Calls, k.Done = recording, effect.Calls, nil
		default:
			return w, fmt.Errorf("the model knows no effect %T", effect)
		}
		return w, nil
	}
}

// record writes the response and the start marks of the first call, or the result of
// a call and the mark of the next.
func (m *explorer) record(w world, i int) (world, error) {
	k := &w.Workers[i]
	r := state.Record{From: k.Recorded, Entries: k.State.Log[k.Recorded:]}
	if next := k.Calls[len(k.Done)]; next.Name == "pay" && !m.rules.NoStartMarks {
		r.Started = []string{next.ID}
	}
	for _, d := range k.Done {
		msg := state.ToolResult(d.CallID, d.Content, false)
		r.Results = append(r.Results, state.Entry{Type: state.EntryTool, At: d.At, Message: &msg, CallID: d.CallID, Name: d.Name})
	}
	k.At = acting
	if m.rules.NoJournal {
		return w, nil
	}
	entries, err := w.Store.Record.Record(k.Claim.Lease, r)
	if err != nil {
		return m.abandon(w, i)
	}
	w.Store.Log = w.Store.Log.add(entries...)
	k.Recorded = k.State.LogLen()
	if len(k.Done) == 0 {
		k.At = telling
	}
	return w, nil
}

// act runs the next call.
func (m *explorer) act(w world, i int) (world, error) {
	k := &w.Workers[i]
	if k.Heard {
		k.happened(loop.Aborted{At: now(), Cause: loop.ByUser, Started: len(k.Done) > 0, Results: k.Done})
		return m.decide(w, i)
	}
	c := k.Calls[len(k.Done)]
	w.Effects = append(slices.Clip(w.Effects), effect{k.State.Turn, c.ID, c.Name, c.Arguments})
	k.Done = append(slices.Clip(k.Done), loop.ToolResult{CallID: c.ID, Name: c.Name, Content: "ok", At: now()})
	if len(k.Done) < len(k.Calls) {
		k.At = recording
		return w, nil
	}
	k.happened(loop.ToolsFinished{At: now(), Results: k.Done})
	return m.decide(w, i)
}

func (m *explorer) commit(w world, i int) (world, error) {
	k := &w.Workers[i]
	c := state.Commit{
		ID: k.Token, State: k.State, From: k.Recorded, Consumed: k.Consumed, RedeliveryDelay: grace,
		EagerClaim: k.Keep,
	}
	r := &w.Store.Record
	repeated := r.CommitID == c.ID
	inbox := r.Inbox
	if m.rules.NoInboxCheck {
		r.Inbox = nil
	}
	entries, done, err := r.Commit(k.Claim.Lease, c, epoch)
	if err != nil {
		r.Inbox = inbox
		return m.abandon(w, i)
	}
	if m.rules.NoInboxCheck {
		r.Inbox = inbox[min(len(inbox), c.Consumed):]
	}
	if !repeated && w.Store.Log.sum() != k.Log.first(k.Recorded).sum() {
		return w, errors.New("I3: a turn is committed on top of a journal that is not its own")
	}
	w.Store.Log = w.Store.Log.add(entries...)
	w.Store.settle()
	k.Committed, k.Keep = done, ""
	if done.Claimed {
		k.Kept = kept{c.EagerClaim, k.State, k.Log, done}
		k.Kept.State.Log = nil
	}
	k.At = announcing
	if (m.rules.PublishFirst || m.rules.Ahead) && done.Status == state.Queued {
		k.At, k.Ahead = publishing, m.rules.Ahead
	}
	return w, nil
}

// commitUnheard is a commit whose answer is lost: the worker makes it again.
func (m *explorer) commitUnheard(w world, i int) []move {
	before := w.Workers[i]
	w, err := m.commit(w, i)
	if w.Workers[i].At == idle {
		return nil // it was fenced, and nothing has changed
	}
	w.Workers[i] = before
	return []move{{fmt.Sprintf("worker %d: commit, and hear no answer", i+1), w, err, true}}
}

// announce tells watchers what the log has gained since.
func (*explorer) announce(w world, i int) (world, error) {
	k := &w.Workers[i]
	err := w.tell(k.Announced, k.State.LogLen())
	k.Announced = k.State.LogLen()
	return w, err
}

// tell puts the entries after from on the bus.
func (w *world) tell(from, to int64) error {
	if to > from && from > w.Events && !w.RolledBack {
		return fmt.Errorf("I9: entries %d to %d are announced, but watchers have only %d", from+1, to, w.Events)
	}
	w.Events = max(w.Events, to)
	return nil
}

// finish is what comes after the commit.
func (m *explorer) finish(w world, i int) (world, error) {
	k := &w.Workers[i]
	queued := k.Committed.Status == state.Queued
	switch k.At {
	case announcing:
		w, err := m.announce(w, i)
		switch {
		case k.Ahead:
			k := &w.Workers[i]
			k.At, k.Vouched, k.VouchedFor = acking, k.Announced, k.Committed.Version
		case queued && m.rules.PublishFirst:
			w.Workers[i].At = acking
		case queued:
			w.Workers[i].At = publishing
		default:
			w.Workers[i].At = settling
		}
		return w, err
	case publishing:
		w.publish(message{ID: canonical(k.Committed.Version), Version: k.Committed.Version, Announced: !k.Ahead})
		k.At = acking
		if m.rules.PublishFirst || k.Ahead {
			k.At = announcing
		}
	default:
		w.Store.Record.NoteFinalized(k.Announced)
		k.At = acking
	}
	return w, nil
}

// help does for a run what a worker does after its commit.
func (m *explorer) help(w world, i int) (world, error) {
	k := &w.Workers[i]
	c := k.Claim
	if c.Status != state.Queued && c.Status != state.Running {
		if c.Finalized == c.LogLen {
			return w, nil
		}
		return w, w.rest(c.Finalized)
	}
	if err := w.tell(c.Finalized, w.Store.Log.len()); err != nil {
		return w, err
	}
	if c.Status == state.Queued {
		w.publish(message{ID: canonical(c.Version), Version: c.Version})
	}
	return w, nil
}

// rest announces what is left of a run that rests, and lets the schedule go of it.
func (w *world) rest(announced int64) error {
	to := w.Store.Log.len()
	if err := w.tell(announced, to); err != nil {
		return err
	}
	if s := w.Store.Record.Status; s == state.Waiting || s.Terminal() {
		w.Store.Record.NoteFinalized(to)
	}
	return nil
}

func (*explorer) ack(w world, i int) (world, error) {
	err := w.acked(w.Workers[i].Message)
	w.Workers[i] = w.Workers[i].rested()
	return w, err
}

// acked takes a message off the queue for good.
func (w *world) acked(name string) error {
	at := slices.IndexFunc(w.Queue, func(m message) bool { return m.Name == name })
	if at < 0 {
		return nil
	}
	version := w.Queue[at].Version
	w.drop(name)
	r := w.Store.Record
	if !w.RolledBack && r.Version == version && (r.Status == state.Queued || r.Status == state.Running) {
		return fmt.Errorf("I2: the message for %d is acknowledged, and its turn is not committed", version)
	}
	return nil
}

// abandon gives a turn up without touching anything (I8): the queue delivers its
// message again.
func (m *explorer) abandon(w world, i int) (world, error) {
	if m.rules.FencedAcks {
		return m.ack(w, i)
	}
	w.hold(w.Workers[i].Message, 0)
	w.Workers[i] = w.Workers[i].rested()
	return w, nil
}
