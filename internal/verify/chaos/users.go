package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Submitted is a run that the gateway has accepted.
type Submitted struct {
	ID   string
	Kind string
	Key  string // the idempotency key

	// Accepted is the submission, and Message means that it was a message on NATS.
	Accepted Ack
	Message  bool

	Batch string // the batch that it is part of; "" if none

	// Fork means that the run continues the history of another.
	Fork bool

	// Deleted is the deletion of the run, and Below are the runs below it that were deleted with it.
	Deleted Ack
	Below   []string

	// Ended is the time of the run's last observed end; zero if there was none.
	Ended time.Time

	// Again are the ids that repeated submissions returned.
	Again []string

	// Unanswered means that no user answers the run's wait.
	Unanswered bool

	// Aborting means that a user tried to abort it, and Aborted is the acknowledged abort.
	Aborting bool
	Aborted  Ack

	// Said is a message that its user sent during the run, in a mode; "" if none. Heard is the acknowledged
	// request.
	Said  string
	Mode  state.Mode
	Heard Ack

	// Called means that the submission has a webhook.
	Called bool

	// File is a file that the submission names; "" if none.
	File string

	// Seen are the committed events that the run's reader received, in order of arrival, over all its
	// connections.
	Seen []json.RawMessage
}

// Ack is a request that the gateway or NATS acknowledged. Its effect happened at some moment of the interval, which is
// long if a response was lost or late. The zero value is a request without an acknowledgment.
type Ack struct {
	Sent time.Time // by the client, the first time
	At   time.Time // when the client received the acknowledgment
}

// IsZero reports whether the request has no acknowledgment.
func (a Ack) IsZero() bool { return a.At.IsZero() }

// Recovery is the time until an interrupted run continued.
type Recovery struct {
	Kind string
	Took time.Duration
}

// users submit runs and follow each to its end. They have many methods because each kind of request has one.
type users struct {
	deployment *deployment

	mu         sync.Mutex
	r          *rand.Rand
	runs       []*Submitted
	batches    []string
	watches    map[*watch]bool
	recoveries []Recovery
	refused    []string // unjustified error responses of a gateway
}

// Shares of the runs, in percent.
const (
	abortedShare    = 10
	saidShare       = 10
	lateShare       = 30 // of those: sent after the run has ended
	againShare      = 10
	batchShare      = 4
	natsShare       = 5
	orderShare      = 4 // by a message that a trigger reads
	firedShare      = 3 // of the schedule, on request
	unansweredShare = 8 // of those that wait for an approval
	scheduledShare  = 5
	forkedShare     = 5  // of those that have ended
	deletedShare    = 12 // of those that have ended
	droppedShare    = 3  // of the events after which a reader disconnects
)

// patience is the time that a reader may take to see the end of an ended run: the two gateways may
// be down alternately.
const patience = time.Minute

func (u *users) dice(n int) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.r.IntN(n)
}

// door returns any of the gateways.
func (u *users) door() door { return u.deployment.doors[u.dice(len(u.deployment.doors))] }

// run lets n users work until stop ends, and returns when the last run or ctx has ended.
func (u *users) run(ctx, stop context.Context, n int) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			for stop.Err() == nil {
				u.one(ctx, stop)
			}
		})
	}
	all.Wait()
}

// one submits something and follows it.
func (u *users) one(ctx, stop context.Context) {
	switch n := u.dice(100); {
	case n < batchShare:
		u.batch(ctx, stop)
	case n < batchShare+natsShare:
		u.byNATS(ctx, stop)
	case n < batchShare+natsShare+orderShare:
		u.order(ctx, stop)
	case n < batchShare+natsShare+orderShare+firedShare:
		u.fire(ctx, stop)
	default:
		s, req := u.draw()
		if s.Called = s.Kind != "kept" && u.dice(100) < calledShare; s.Called {
			u.deployment.call(&req)
		}
		if s.Kind == "filed" && !u.attach(stop, s, &req) {
			return
		}
		submit := func() string {
			run, _ := insist(stop, u, func(ctx context.Context) (api.Run, error) {
				return u.door().client.Submit(ctx, req, s.Key)
			})
			return run.ID
		}
		if s.ID = submit(); s.ID == "" {
			return // it may have been accepted without an answer
		}
		u.accepted(s)
		if u.dice(100) < againShare {
			if again := submit(); again != "" {
				u.mu.Lock()
				s.Again = append(s.Again, again)
				u.mu.Unlock()
			}
		}
		u.stay(ctx, s)
		u.after(ctx, s)
	}
}

// after forks an ended run, or deletes it, or neither.
func (u *users) after(ctx context.Context, s *Submitted) {
	if s.Unanswered || s.Kind == "kept" { // its retention does that
		return
	}
	switch n := u.dice(100); {
	case n < forkedShare:
		u.fork(ctx, s)
	case n < forkedShare+deletedShare:
		u.delete(ctx, s)
	}
}

// fork forks a run at its start, and follows the fork.
func (u *users) fork(ctx context.Context, s *Submitted) {
	f := &Submitted{Kind: s.Kind, Fork: true, Accepted: Ack{Sent: time.Now()}}
	start := 0
	run, ok := insist(ctx, u, func(ctx context.Context) (api.Run, error) {
		return u.door().client.ForkWithKey(ctx, s.ID, api.ForkRequest{Turn: &start}, s.Key+"-fork")
	})
	if !ok {
		return
	}
	f.ID = run.ID
	u.accepted(f)
	u.stay(ctx, f)
}

// delete deletes a run with its descendants. A descendant may still end.
func (u *users) delete(ctx context.Context, s *Submitted) {
	for rig.Pause(ctx, 300*time.Millisecond) {
		below, ok := insist(ctx, u, func(ctx context.Context) (api.Page[api.Run], error) {
			return u.door().client.List(ctx, url.Values{"parent": {s.ID}, "limit": {"100"}})
		})
		if !ok {
			return
		}
		sent := time.Now()
		callCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := u.door().client.Delete(callCtx, s.ID)
		cancel()
		u.mu.Lock()
		for _, run := range below.Items {
			if !slices.Contains(s.Below, run.ID) {
				s.Below = append(s.Below, run.ID)
			}
		}
		if err == nil || notFound(err) {
			s.Deleted = Ack{Sent: sent, At: time.Now()}
		}
		u.mu.Unlock()
		if err == nil || notFound(err) {
			return
		}
	}
}

// batch submits a few runs at once; two of them may be in flight.
func (u *users) batch(ctx, stop context.Context) {
	var runs []*Submitted
	req := api.BatchRequest{MaxParallel: 2}
	for range 2 + u.dice(4) {
		s, r := u.draw()
		s.Unanswered = false // it would delay the runs behind it
		runs, req.Runs = append(runs, s), append(req.Runs, r)
	}
	b, ok := insist(stop, u, func(ctx context.Context) (api.BatchAccepted, error) {
		return u.door().client.SubmitBatch(ctx, req, runs[0].Key)
	})
	if !ok {
		return
	}
	u.mu.Lock()
	u.batches = append(u.batches, b.BatchID)
	u.mu.Unlock()
	var all sync.WaitGroup
	for i, id := range b.RunIDs {
		s := runs[i]
		s.ID, s.Batch = id, b.BatchID
		u.accepted(s)
		all.Go(func() { u.stay(ctx, s) })
	}
	all.Wait()
}

// byNATS submits with a message, like other services. A message that NATS has acknowledged is accepted, and
// becomes a run.
func (u *users) byNATS(ctx, stop context.Context) {
	s, req := u.draw()
	req.Metadata = map[string]string{"key": s.Key}
	body, err := json.Marshal(req)
	if err != nil {
		return
	}
	if _, ok := insist(stop, u, func(ctx context.Context) (*jetstream.PubAck, error) {
		return u.deployment.js.Publish(ctx, prefix+".submit."+s.Kind, body, jetstream.WithMsgID(s.Key))
	}); !ok {
		return
	}
	s.Message = true
	u.follow(ctx, s, 30*time.Second)
}

// accepted records a run that the gateway or NATS has acknowledged.
func (u *users) accepted(s *Submitted) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s.Accepted.At = time.Now()
	u.runs = append(u.runs, s)
}

// submission returns a submission of a kind, which the caller sends now.
func (u *users) submission(kind string) *Submitted {
	return &Submitted{Kind: kind, Key: fmt.Sprintf("%016x", u.dice(1<<62)), Accepted: Ack{Sent: time.Now()}}
}

// draw chooses what to submit.
func (u *users) draw() (*Submitted, api.SubmitRequest) {
	all, total := kinds(), 0
	for _, k := range all {
		total += k.weight
	}
	n := u.dice(total)
	s := u.submission("")
	for _, k := range all {
		if n -= k.weight; n < 0 {
			s.Kind = k.name
			break
		}
	}
	s.Unanswered = s.Kind == "approve" && u.dice(100) < unansweredShare
	req := api.SubmitRequest{Agent: s.Kind, Input: json.RawMessage(`"go"`)}
	if u.dice(100) < scheduledShare {
		at := state.At(time.Now().Add(time.Second))
		req.StartAt = &at
	}
	return s, req
}

// insist repeats a request until it is accepted or refused, or ctx ends.
func insist[T any](ctx context.Context, u *users, do func(context.Context) (T, error)) (answer T, ok bool) {
	for {
		callCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
		answer, err := do(callCtx)
		cancel()
		if err == nil {
			return answer, true
		}
		// A gateway that is paused while a body arrives takes its own pause for a slow sender.
		if p, ok := errors.AsType[*api.Problem](err); ok && p.Status < http.StatusInternalServerError && p.Status != http.StatusTooManyRequests && p.Code != api.CodeBodyTooSlow {
			if p.Status != http.StatusConflict && p.Status != http.StatusNotFound {
				u.mu.Lock()
				u.refused = append(u.refused, p.Error())
				u.mu.Unlock()
			}
			return answer, false
		}
		if !rig.Pause(ctx, 200*time.Millisecond) {
			return answer, false
		}
	}
}

// stay follows a run, answers its waits, and may abort it.
func (u *users) stay(ctx context.Context, s *Submitted) {
	if s.Unanswered {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	w := &watch{u: u, s: s, waits: make(chan struct{}, 1), finished: make(chan struct{})}
	u.mu.Lock()
	u.watches[w] = true
	u.mu.Unlock()
	defer func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.watches, w)
	}()
	all.Go(func() { w.read(ctx) })
	if s.File != "" {
		all.Go(func() { u.detach(ctx, s) })
	}
	late := false
	switch n := u.dice(100); {
	case n < abortedShare:
		all.Go(func() { u.abort(ctx, s) })
	case n < abortedShare+saidShare && listens(s.Kind) && s.Batch == "":
		if late = u.dice(100) < lateShare; !late {
			all.Go(func() { u.say(ctx, s) })
		}
	}
	look := time.NewTicker(2 * time.Second)
	defer look.Stop()
	for {
		select {
		case <-w.finished:
			if late {
				u.say(ctx, s)
			}
			return
		case <-w.waits:
		case <-look.C:
		case <-ctx.Done():
			return
		}
		if u.answer(ctx, s) {
			// A reader may miss the end, because a rollback undid it.
			select {
			case <-w.finished:
			case <-time.After(patience):
			case <-ctx.Done():
			}
			return
		}
	}
}

// abort cancels a run at a random moment.
func (u *users) abort(ctx context.Context, s *Submitted) {
	if !rig.Pause(ctx, time.Duration(u.dice(2500))*time.Millisecond) {
		return
	}
	u.mu.Lock()
	s.Aborting = true
	u.mu.Unlock()
	sent := time.Now()
	if _, ok := insist(ctx, u, func(ctx context.Context) (api.Run, error) {
		return u.door().client.Cancel(ctx, s.ID, "chaos")
	}); ok {
		u.mu.Lock()
		defer u.mu.Unlock()
		s.Aborted = Ack{Sent: sent, At: time.Now()}
	}
}

// modes of the messages that users send, drawn with equal chances.
var modes = []state.Mode{state.Enqueue, state.Enqueue, state.Interrupt, state.Rollback, state.Reject}

// say sends a message to a run at a random moment. It continues a run that has ended.
func (u *users) say(ctx context.Context, s *Submitted) {
	if !rig.Pause(ctx, time.Duration(u.dice(1500))*time.Millisecond) {
		return
	}
	said, mode := "and then "+s.Key, modes[u.dice(len(modes))]
	u.mu.Lock()
	s.Said, s.Mode = said, mode
	u.mu.Unlock()
	sent := time.Now()
	sig := api.SignalRequest{SignalID: s.Key + "-said", Message: json.RawMessage(strconv.Quote(said)), Mode: string(mode)}
	if _, ok := insist(ctx, u, func(ctx context.Context) (api.Run, error) { return u.door().client.Signal(ctx, s.ID, sig) }); ok {
		u.mu.Lock()
		defer u.mu.Unlock()
		s.Heard = Ack{Sent: sent, At: time.Now()}
	}
}

// answer answers the wait of a run, and reports whether the run has ended or is gone.
func (u *users) answer(ctx context.Context, s *Submitted) (over bool) {
	callCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	run, err := u.door().client.Get(callCtx, s.ID)
	switch {
	case notFound(err):
		return true
	case err != nil:
		return false
	case run.Waiting == nil:
		if run.Terminal() {
			u.ended(s, run.FinishedAt.Time)
		}
		return run.Terminal()
	}
	for _, c := range run.Waiting.Calls {
		// The version is part of the id: a store that was rolled back asks again.
		sig := api.SignalRequest{SignalID: fmt.Sprintf("%s:%d", c.ID, run.Version)}
		switch c.Needs {
		case string(state.NeedApproval):
			decision := state.Approve
			if u.dice(5) == 0 {
				decision = state.Deny
			}
			sig.Approvals = []api.Approval{{CallID: c.ID, Decision: string(decision), Hash: c.Hash}}
		case string(state.NeedResult), string(state.NeedAsync):
			sig.ToolResults = []api.ToolResult{{CallID: c.ID, Content: json.RawMessage(`"picked"`)}}
		case string(state.NeedAnswer):
			said := "yes"
			sig.Answer = &said
		default:
			continue
		}
		insist(ctx, u, func(ctx context.Context) (api.Run, error) { return u.door().client.Signal(ctx, s.ID, sig) })
	}
	return false
}

// ended records the time at which a run ended.
func (u *users) ended(s *Submitted, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if at.After(s.Ended) {
		s.Ended = at
	}
}

// answerAll answers until every run rests, including runs that a failover woke up after their user had left.
func (u *users) answerAll(ctx context.Context) {
	var all errgroup.Group
	all.SetLimit(16)
	for _, s := range u.runs {
		if s.Unanswered || s.ID == "" {
			continue
		}
		all.Go(func() error {
			for !u.answer(ctx, s) && rig.Pause(ctx, 200*time.Millisecond) {
			}
			return nil
		})
	}
	_ = all.Wait() // none fails
}

// struck records which runs a fault interrupts: those with a turn in flight on the affected part.
func (u *users) struck(f Fault) {
	everybody := strings.HasPrefix(f.Kind, "NATS") || strings.HasPrefix(f.Kind, "Redis")
	u.mu.Lock()
	defer u.mu.Unlock()
	for w := range u.watches {
		if w.worker != "" && w.interrupted == nil && (everybody || strings.HasPrefix(w.worker, f.Name+"-")) {
			w.interrupted = &f
		}
	}
}
