package explore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// asked is a submission or an abort that a service has sent over the bus.
type asked struct {
	n         int
	abort     bool
	key       string
	data      []byte
	headers   map[string]string
	delivered int
	from      time.Time // it is not delivered before
}

// replyTo is the subject on which the service waits for the run's end.
const replyTo = "reply.here"

// send stores a service's request; the caller holds s.mu.
func (s *deployment) send(a asked) {
	s.queue.n++
	a.n = s.queue.n
	s.intake = append(s.intake, &a)
}

// submitOverBus sends the scenario's submission, and returns when its run exists.
func (u *person) submitOverBus() {
	u.publish("send the submission", func() {
		u.s.send(asked{key: u.s.sc.Agent, data: []byte(`{"input":"go"}`), headers: map[string]string{"Nats-Msg-Id": "key", "Turnpike-Reply": replyTo}})
	})
	u.decides("find the run", false, u.stored)
	u.s.mu.Lock()
	defer u.s.mu.Unlock()
	u.s.accepted = append(u.s.accepted, u.s.store.Snapshot().Runs()...)
}

// stored reports whether a run exists; the service may learn that in many ways.
func (u *person) stored() bool { return len(u.s.store.Snapshot().Runs()) > 0 }

// cancelOverBus aborts the run, at any moment or never.
func (u *person) cancelOverBus() {
	if !u.decides("cancel", true, u.stored) {
		return
	}
	u.publish("send the abort", func() {
		id := u.s.store.Snapshot().Runs()[0]
		u.s.sendAbort(bus.Abort{Run: id, Tenant: state.DefaultTenant, Reason: "enough"})
		u.s.send(asked{abort: true, key: string(id), data: []byte(`{"reason":"enough"}`)})
		u.s.abortSent = true
	})
}

// publish sends until the bus has acknowledged the message. The server drops repetitions.
func (u *person) publish(what string, do func()) {
	_ = ask0(u.p.ctx, u.p, request{name: u.p.name + ": " + what}, func() error {
		do()
		return nil
	})
}

// gateways makes the gateways, in turn, take messages from the bus.
func (s *deployment) gateways() {
	s.running.Go(func() {
		for {
			p, g, err := s.front()
			if err != nil {
				panic(fmt.Sprintf("start gateway: %v", err)) // a bug in this package
			}
			s.running.Go(func() { _ = g.Run(p.ctx) }) // as of a worker
			select {
			case <-p.gone:
			case <-s.over:
				return
			}
			select {
			case <-time.After(time.Second):
			case <-s.over:
				return
			}
		}
	})
}

func (w wire) Submissions(context.Context) (bus.Queue, error)   { return &intake{p: w.p}, nil }
func (w wire) AbortRequests(context.Context) (bus.Queue, error) { return &intake{w.p, true}, nil }

// intake delivers the requests over the bus.
type intake struct {
	p     *process
	abort bool
}

func (q *intake) Close() error { return nil }

func (q *intake) first() *asked {
	for _, m := range q.p.s.intake {
		if m.abort == q.abort && !time.Now().Before(m.from) {
			return m
		}
	}
	return nil
}

func (q *intake) Next(ctx context.Context) (bus.Message, error) {
	what := "submission"
	if q.abort {
		what = "abort"
	}
	r := request{name: fmt.Sprintf("%s: next %s", q.p.name, what), ready: func() bool { return q.first() != nil }}
	n, err := ask(ctx, q.p, r, func() ([2]int, error) {
		m := q.first()
		m.delivered++
		m.from = time.Now().Add(ackWait)
		return [2]int{m.n, m.delivered}, nil
	})
	if err != nil {
		return nil, err
	}
	q.p.s.mu.Lock()
	defer q.p.s.mu.Unlock()
	for _, m := range q.p.s.intake {
		if m.n == n[0] {
			return &taking{p: q.p, what: what, asked: *m}, nil
		}
	}
	return nil, bus.ErrClosed // another gateway had it for so long that it was delivered twice
}

// taking is a request that a gateway holds.
type taking struct {
	asked

	p    *process
	what string
}

// Tenant implements bus.Message.
func (*taking) Tenant() string { return state.DefaultTenant }

func (t *taking) Key() string               { return t.key }
func (t *taking) Data() []byte              { return t.data }
func (t *taking) Header(name string) string { return t.headers[name] }
func (t *taking) ID() string                { return fmt.Sprint(t.n) }
func (t *taking) Delivered() int            { return t.delivered }

func (t *taking) Ack() error {
	return ask0(context.Background(), t.p, request{name: fmt.Sprintf("%s: acknowledge the %s", t.p.name, t.what), can: replies}, func() error {
		t.p.s.intake = slices.DeleteFunc(slices.Clone(t.p.s.intake), func(m *asked) bool { return m.n == t.n && m.delivered == t.delivered })
		return nil
	})
}

func (t *taking) Nak(delay time.Duration) error {
	return ask0(context.Background(), t.p, request{name: fmt.Sprintf("%s: return the %s", t.p.name, t.what), can: replies}, func() error {
		for _, m := range t.p.s.intake {
			if m.n == t.n && m.delivered == t.delivered {
				m.from = time.Now().Add(delay)
			}
		}
		return nil
	})
}

// checkReply compares the reply to the service with the run's end.
func (s *deployment) checkReply(data []byte) {
	var run struct {
		ID     state.RunID  `json:"id"`
		Status state.Status `json:"status"`
	}
	if err := json.Unmarshal(data, &run); err != nil || !run.Status.Terminal() {
		s.violate("I1: a service got the reply %s (%v)", data, err)
		return
	}
	if r, ok := s.record(run.ID); !s.rolledBack && (!ok || r.Status != run.Status) {
		s.violate("I1: the reply to a service says that its run is %s, and it is %s", run.Status, r.Status)
	}
	s.replies++
}

// checkService checks at the end that all requests over the bus were handled.
func (s *deployment) checkService() error {
	switch {
	case s.abortSent && !s.abortTried:
		return fmt.Errorf("I7: an abort over the bus never reached the store")
	case s.replies == 0:
		return fmt.Errorf("I1: the service got no reply about the end of its run")
	default:
		return nil
	}
}
