package gateway_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// forgetful is a bus that loses the first acknowledgement of each submission.
type forgetful struct {
	*membus.Bus

	answered chan struct{}
}

func (f forgetful) Submissions(ctx context.Context) (bus.Queue, error) {
	q, err := f.Bus.Submissions(ctx)
	return forgetfulQueue{q, f.answered}, err
}

type forgetfulQueue struct {
	bus.Queue

	answered chan struct{}
}

func (q forgetfulQueue) Next(ctx context.Context) (bus.Message, error) {
	m, err := q.Queue.Next(ctx)
	return forgetfulMessage{m, q.answered}, err
}

type forgetfulMessage struct {
	bus.Message

	answered chan struct{}
}

func (m forgetfulMessage) Ack() error {
	if m.Delivered() == 1 {
		return errors.Join(errors.New("connection lost"), m.Nak(0))
	}
	defer func() { m.answered <- struct{}{} }()
	return m.Message.Ack()
}

// A submission that is redelivered because its gateway died before the acknowledgement creates one run, with or
// without an id from its sender. Two messages without an id create two runs (I1).
func TestSubmissionDeliveredAgain(t *testing.T) {
	t.Parallel()
	b := forgetful{membus.New(), make(chan struct{}, 8)}
	g, err := gateway.New(memstore.New(memstore.Config{}), b, gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = g.Run(ctx) })
	server := httptest.NewServer(g.Handler())
	t.Cleanup(func() { cancel(); server.Close(); running.Wait() })
	c := api.New(server.URL)
	if _, err := c.PutAgent(ctx, "hello", []byte(`{model: {provider: scripted, responses: [{text: hi}]}}`)); err != nil {
		t.Fatal(err)
	}
	for want := 1; want <= 2; want++ {
		b.Submit("default", "hello", []byte(`{"input":"x"}`), nil)
		select {
		case <-b.answered:
		case <-time.After(2 * time.Minute):
			t.Fatal("the submission is not acknowledged")
		}
		if page, err := c.List(ctx, nil); err != nil || len(page.Items) != want {
			t.Errorf("%d runs, %v; want %d", len(page.Items), err, want)
		}
	}
}

// A submission with an unusable reply subject starts no run.
func TestReplySubjectRefused(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	subjects := []string{"orders.>", "$KV.b.k", "$JS.ACK.x", "turnpike.turn.normal.0"}
	for _, subject := range subjects {
		s.bus.Submit("default", "hello", []byte(`{"input":"x"}`), map[string]string{"Turnpike-Reply": subject})
	}
	var letters []bus.DeadLetter
	for len(letters) < len(subjects) {
		if t.Context().Err() != nil {
			t.Fatal("no dead letters")
		}
		var err error
		if letters, err = s.bus.DeadLetters(t.Context(), state.DefaultTenant, 0, 10); err != nil {
			t.Fatal(err)
		}
		if page, err := s.client.List(t.Context(), nil); err != nil || len(page.Items) > 0 {
			t.Fatalf("%d runs, %v; want none", len(page.Items), err)
		}
	}
	for _, l := range letters {
		if !strings.Contains(l.Cause, "Turnpike-Reply") || !strings.Contains(l.Cause, "turnpike.reply.") {
			t.Errorf("the cause for %q is %q", l.ReplyTo, l.Cause)
		}
		if got := s.bus.Replies(l.ReplyTo); len(got) > 0 {
			t.Errorf("%q got %s", l.ReplyTo, got)
		}
	}
}

// explosive is a store that panics when the first run is stored.
type explosive struct {
	state.Store

	spent atomic.Bool
}

func (s *explosive) Create(ctx context.Context, run state.NewRun) (state.Created, error) {
	if s.spent.CompareAndSwap(false, true) {
		panic("ouch")
	}
	return s.Store.Create(ctx, run)
}

// A panic while a submission is handled does not end the gateway: the submission is redelivered.
func TestIntakeSurvives(t *testing.T) {
	t.Parallel()
	b := membus.New()
	g, err := gateway.New(&explosive{Store: memstore.New(memstore.Config{})}, b, gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = g.Run(ctx) })
	server := httptest.NewServer(g.Handler())
	t.Cleanup(func() { cancel(); server.Close(); running.Wait() })
	c := api.New(server.URL)
	if _, err := c.PutAgent(ctx, "hello", []byte(`{model: {provider: scripted, responses: [{text: hi}]}}`)); err != nil {
		t.Fatal(err)
	}
	b.Submit("default", "hello", []byte(`{"input":"x"}`), nil)
	awaitSetting(t, func() bool {
		page, err := c.List(ctx, nil)
		return err == nil && len(page.Items) == 1
	})
}
