package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A run named by a turn message but lost by the store is recorded as failed, in the tenant of the message. So
// is its dead letter.
func TestLostRunHasFailed(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.work(s.config())
	id := state.RunID("run_01JD3X9K3W8Q4V5N6M7P8R9S0T")
	if err := s.bus.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 7, Priority: state.Low, Tenant: "acme"}, "x"); err != nil {
		t.Fatal(err)
	}
	var st state.State
	eventually(t, "the run is recorded", func() bool {
		var err error
		st, err = s.store.Load(t.Context(), id)
		return err == nil
	})
	if st.Status != state.Failed || st.Transition.Reason != state.EndLost || st.Tenant != "acme" || st.Version != 1 || st.Error == nil || st.CreatedAt.IsZero() {
		t.Errorf("the run is %+v", st)
	}
	eventually(t, "the dead letter", func() bool {
		letters, err := s.bus.DeadLetters(t.Context(), "acme", 0, 10)
		return err == nil && len(letters) == 1 && letters[0].Run == id && letters[0].Kind == bus.DeadLost
	})
}

// A lost run has one dead letter, also if NATS refuses it at first, as it does when its disk is full, or the answer of
// NATS does not arrive.
func TestLostRunHasItsDeadLetter(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	b, err := natsbus.Open(t.Context(), testbed.NATS(t), natsbus.Config{Prefix: "letters", AckWait: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	s.workWith(s.store, &refusingLetters{Bus: b}, s.config())
	id := state.RunID("run_01JD3X9K3W8Q4V5N6M7P8R9S0T")
	if err := b.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 7, Priority: state.Low, Tenant: "acme"}, "x"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the message is acknowledged", func() bool {
		lag, err := b.Lag(t.Context())
		return err == nil && lag == 0
	})
	letters, err := b.DeadLetters(t.Context(), "acme", 0, 10)
	if err != nil || len(letters) != 1 || letters[0].Run != id || letters[0].Kind != bus.DeadLost {
		t.Errorf("dead letters: %+v, %v", letters, err)
	}
	if st, err := s.store.Load(t.Context(), id); err != nil || st.Transition.Reason != state.EndLost {
		t.Errorf("the run is %s, %v", st.Transition.Reason, err)
	}
}

// refusingLetters refuses the first dead letter, and stores the second one without an answer.
type refusingLetters struct {
	bus.Bus

	calls atomic.Int64
}

func (b *refusingLetters) DeadLetter(ctx context.Context, d bus.DeadLetter) error {
	switch b.calls.Add(1) {
	case 1:
		return errors.New("no space left on device")
	case 2:
		return errors.Join(b.Bus.DeadLetter(ctx, d), context.DeadlineExceeded)
	default:
		return b.Bus.DeadLetter(ctx, d)
	}
}

// A message that is older than the lifetime of deletion markers is dropped if its run does not exist. Recording
// the run as lost could bring a deleted run back, and there is no dead letter.
func TestOldMessageOfNoRun(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	cfg := s.config()
	b := &agedBus{Bus: s.bus, dropped: make(chan state.RunID, 10)}
	s.workWith(s.store, b, cfg)
	id := state.RunID("run_01JD3X9K3W8Q4V5N6M7P8R9S0T")
	if err := s.bus.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 7, Priority: state.Normal, Tenant: "acme"}, "x"); err != nil {
		t.Fatal(err)
	}
	if got := <-b.dropped; got != id {
		t.Errorf("the worker acknowledged the message of run %s, want %s", got, id)
	}
	if _, err := s.store.Load(t.Context(), id); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("the run exists: %v", err)
	}
	if letters, err := s.bus.DeadLetters(t.Context(), "acme", 0, 10); err != nil || len(letters) > 0 {
		t.Errorf("dead letters: %v, %v", letters, err)
	}
}

// agedBus delivers messages that were published long ago.
type agedBus struct {
	bus.Bus

	dropped chan state.RunID // runs whose messages were acknowledged
}

func (b *agedBus) Turns(ctx context.Context, key bus.QueueKey) (bus.TurnQueue, error) {
	q, err := b.Bus.Turns(ctx, key)
	return agedQueue{q, b}, err
}

type agedQueue struct {
	bus.TurnQueue

	b *agedBus
}

func (q agedQueue) Next(ctx context.Context) (bus.TurnDelivery, error) {
	d, err := q.TurnQueue.Next(ctx)
	return agedDelivery{d, q.b}, err
}

type agedDelivery struct {
	bus.TurnDelivery

	b *agedBus
}

func (d agedDelivery) PublishedAt() time.Time {
	return d.TurnDelivery.PublishedAt().Add(-state.MarkerLifetime - time.Minute)
}

func (d agedDelivery) Ack() error {
	err := d.TurnDelivery.Ack()
	d.b.dropped <- d.Turn().Run
	return err
}

// A run that reappears in the store just before it is recorded as lost keeps its checkpoint and completes. It gets no
// dead letter, and neither does one that was deleted.
func TestRunThatIsBackIsNotLost(t *testing.T) {
	t.Parallel()
	for name, deleted := range map[string]bool{"back": false, "deleted": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newDeployment(t)
			store := &hidden{Store: s.store, looked: make(chan struct{}, 1)}
			store.id = s.create(state.Limits{}, nil, model.Scripted{Text: "done"})
			if deleted {
				stop := s.work(s.config())
				s.start(store.id)
				s.await(store.id, "ends", func(st state.State) bool { return st.Status.Terminal() })
				stop()
				if err := s.store.Delete(t.Context(), store.id); err != nil {
					t.Fatal(err)
				}
			}
			store.hide.Store(true)
			stop := s.workOn(store, s.config())
			defer stop()
			if err := s.bus.PublishTurn(t.Context(), bus.Turn{Run: store.id, Version: 1, Priority: state.Normal}, "x"); err != nil {
				t.Fatal(err)
			}
			<-store.looked
			store.hide.Store(false)
			if !deleted {
				eventually(t, "the run completes", func() bool {
					st, err := s.store.Load(t.Context(), store.id)
					return err == nil && st.Status == state.Completed
				})
			}
			stop() // waits for the message that is being processed
			if letters, err := s.bus.DeadLetters(t.Context(), state.DefaultTenant, 0, 10); err != nil || len(letters) > 0 {
				t.Errorf("dead letters: %+v, %v; want none", letters, err)
			}
		})
	}
}

// hidden is a store whose claims do not find a run for a while.
type hidden struct {
	state.Store

	id     state.RunID
	hide   atomic.Bool
	looked chan struct{} // has an element once a worker has tried to create the run
}

func (h *hidden) Claim(ctx context.Context, q state.ClaimRequest) (*state.Claim, error) {
	if q.Run == h.id && h.hide.Load() {
		return &state.Claim{Outcome: state.ClaimMissing}, nil
	}
	return h.Store.Claim(ctx, q)
}

func (h *hidden) Create(ctx context.Context, n state.NewRun) (state.Created, error) {
	made, err := h.Store.Create(ctx, n)
	if n.State.ID == h.id {
		select {
		case h.looked <- struct{}{}:
		default:
		}
	}
	return made, err
}

// A parent whose waiting child the store loses gets an error result for it, and continues.
func TestParentOfALostChild(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newDeployment(t)
		s.define(agent.Definition{
			Name:  "researcher",
			Model: agent.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "found", Delay: model.Duration(time.Hour)}}},
		})
		memory := s.store
		store := &losesChild{Store: memory}
		s.workOn(store, s.config())
		id := s.submit(state.Limits{}, []agent.Tool{researcher}, delegation("x"), model.Scripted{Text: "done"})
		s.awaitReason(id, state.WaitingChild)
		var child state.RunID
		eventually(t, "the child runs", func() bool {
			children := s.children(id)
			if len(children) == 0 || children[0].Status != state.Running {
				return false
			}
			child = children[0].ID
			return true
		})
		store.lose(child)
		s.awaitReason(id, state.EndCompleted)
		if text := strings.Join(s.transcript(id), "\n"); !strings.Contains(text, "lost") {
			t.Errorf("the parent read:\n%s", text)
		}
		if made := store.made.Load(); made == nil || made.Status != state.Failed || made.Transition.Reason != state.EndLost || made.Parent == nil || made.Agent != "researcher" {
			t.Errorf("the record of the child is %+v", made)
		}
	})
}

// losesChild is a store that has lost a run, until another run is created in its place.
type losesChild struct {
	state.Store

	id   atomic.Value
	made atomic.Pointer[state.State]
}

func (l *losesChild) lose(id state.RunID) { l.id.Store(id) }

func (l *losesChild) lost(id state.RunID) bool { return l.id.Load() == id }

func (l *losesChild) Load(ctx context.Context, id state.RunID) (state.State, error) {
	if !l.lost(id) {
		return l.Store.Load(ctx, id)
	}
	if made := l.made.Load(); made != nil {
		return *made, nil
	}
	return state.State{}, state.ErrNotFound
}

func (l *losesChild) Log(ctx context.Context, id state.RunID, after int64, limit int) ([]state.Entry, error) {
	made := l.made.Load()
	switch {
	case !l.lost(id):
		return l.Store.Log(ctx, id, after, limit)
	case made == nil:
		return nil, state.ErrNotFound
	default:
		return made.Log[min(after, made.LogLen()):], nil
	}
}

func (l *losesChild) LogPage(ctx context.Context, id state.RunID, after int64, limit, bytes int) (state.LogPage, error) {
	if !l.lost(id) {
		return l.Store.LogPage(ctx, id, after, limit, bytes)
	}
	log, err := l.Log(ctx, id, after, limit)
	return state.LogPage{Entries: log}, err
}

func (l *losesChild) Create(ctx context.Context, n state.NewRun) (state.Created, error) {
	if !l.lost(n.State.ID) {
		return l.Store.Create(ctx, n)
	}
	created := l.made.CompareAndSwap(nil, &n.State)
	return state.Created{State: *l.made.Load(), Existing: !created}, nil
}

// eventually waits until ok reports true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("%s: timed out after two minutes", what)
		}
	}
}
