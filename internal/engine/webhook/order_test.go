package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// events stores a run with n events, which are all due: it has waited, and has ended.
func (f *fixture) events(id string, n int) state.State {
	f.Helper()
	s := f.run(id, "https://one.example/", state.EntryWaiting, state.EntryFinished)
	for i := range n - 1 {
		waiting := &state.Wait{Reason: state.WaitingApproval, Since: state.At(time.Now()), Calls: []state.WaitCall{}}
		f.move(s.ID, state.WaitingApproval, state.Entry{Waiting: waiting})
		wait := int64(2 + 2*i) // the number of its entry: the run's first one, and the message after each wait, are others
		if err := f.store.PutTimer(f.Context(), webhook.Timer(s, wait), time.Now()); err != nil {
			f.Fatal(err)
		}
		say := state.UserText("go on")
		if _, err := f.store.Signal(f.Context(), s.ID, state.Signal{ID: fmt.Sprint(i), Message: &say}, time.Hour); err != nil {
			f.Fatal(err)
		}
		f.move(s.ID, state.UserMessage, state.Entry{Messages: []state.Message{say}})
	}
	f.end(s.ID, "done")
	return s
}

// sequences returns the numbers of the delivered events, in the order of their arrival.
func (f *fixture) sequences() (numbers []int) {
	for _, d := range f.receiver.delivered() {
		numbers = append(numbers, d.event.Data.Sequence)
	}
	return numbers
}

// An event follows the earlier one of its run at the same look for due events, also by two workers.
func TestNextEvent(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2} {
		for _, n := range []int{2, 5} {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				f.events(first, n)
				senders := []*webhook.Sender{f.sender(), f.sender()}
				f.work(500*time.Millisecond, senders[:workers]...)
				if got, want := f.sequences(), []int{1, 2, 3, 4, 5}[:n]; !slices.Equal(got, want) {
					t.Errorf("%d workers have delivered %v at their first look, want %v", workers, got, want)
				}
			})
		}
	}
}

// An event that is due while a worker still sends the earlier one arrives within two looks of its acceptance.
func TestNextEventOfSlowReceiver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.receiver.answer = func(n int, _ *http.Request) int {
			if n == 1 {
				time.Sleep(7 * time.Second) // the bubble's clock
			}
			return http.StatusOK
		}
		s := f.run(first, "https://one.example/")
		f.end(s.ID, "done")
		senders := []*webhook.Sender{f.sender(), f.sender()}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			f.work(9*time.Second, senders...)
		}()
		time.Sleep(1500 * time.Millisecond)
		say := state.UserText("go on")
		if _, err := f.store.Signal(t.Context(), s.ID, state.Signal{ID: "1", Message: &say}, time.Hour); err != nil {
			t.Fatal(err)
		}
		f.move(s.ID, state.UserMessage, state.Entry{Messages: []state.Message{say}})
		f.end(s.ID, "done again")
		<-ended
		if got := f.sequences(); !slices.Equal(got, []int{1, 2}) {
			t.Errorf("delivered %v two seconds after the first event was accepted, want 1 and 2", got)
		}
	})
}

// After a failure, the later events follow with the attempt that succeeds.
func TestNextEventAfterFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.receiver.answer = func(n int, _ *http.Request) int {
			if n == 1 {
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		}
		f.events(first, 3)
		f.work(3*time.Second, f.sender())
		if n := f.receiver.tries; n != 1 {
			t.Errorf("%d attempts before the pause after a failure ends, want 1", n)
		}
		f.work(4*time.Second, f.sender())
		if got := f.sequences(); !slices.Equal(got, []int{1, 2, 3}) {
			t.Errorf("delivered %v seven seconds after the events, want 1, 2 and 3", got)
		}
	})
}

// Events of a receiver that takes long to accept each arrive once: no worker sends one when its claim may have ended.
func TestNextEventWithinLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.receiver.answer = func(int, *http.Request) int {
			time.Sleep(7 * time.Second) // the bubble's clock
			return http.StatusOK
		}
		f.events(first, 8)
		f.work(time.Minute+10*time.Second, f.sender(), f.sender())
		if got := f.sequences(); !slices.Equal(got, []int{1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Errorf("delivered %v, want each of 8 events once", got)
		}
	})
}

// forgetful is a store that does not record the outcome of the first attempt, as if the worker died before.
type forgetful struct {
	webhook.Store

	died atomic.Bool
}

func (s *forgetful) AckTimer(ctx context.Context, c state.TimerClaim, next time.Time) error {
	if s.died.CompareAndSwap(false, true) {
		return errors.New("the worker died")
	}
	return s.Store.AckTimer(ctx, c, next)
}

// dying returns the sender of a worker that dies between its first attempt and the record of its outcome.
func (f *fixture) dying() *webhook.Sender {
	f.Helper()
	s, err := webhook.NewSender(&forgetful{Store: f.store}, f.letters, webhook.Config{
		Client: &http.Client{Transport: f.receiver}, Grants: grants{}, Registry: prometheus.NewRegistry(), Log: f.logger,
	})
	if err != nil {
		f.Fatal(err)
	}
	return s
}

// A later event waits while it is not recorded that the earlier one was accepted, so the earlier one is repeated
// before it.
func TestNextEventAfterKill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.events(first, 2)
		f.work(500*time.Millisecond, f.dying())
		f.work(20*time.Second, f.sender(), f.sender())
		if got := f.sequences(); !slices.Equal(got, []int{1}) {
			t.Errorf("delivered %v while the claim of the dead worker lasts, want 1", got)
		}
		f.work(15*time.Second, f.sender(), f.sender())
		if got := f.sequences(); !slices.Equal(got, []int{1, 1, 2}) {
			t.Errorf("delivered %v in the end, want 1 twice, then 2", got)
		}
	})
}
