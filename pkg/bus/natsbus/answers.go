package natsbus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// answers sends messages to streams and receives the server's answer to each. It replaces the publish
// functions of the client library, which need several times as much processor time for an answer as for
// the message: they decode every field that an answer may have, and allocate two channels and a timer.
type answers struct {
	nc    *nats.Conn
	inbox string // the answer to message n arrives on <inbox>.<n>

	timers sync.Pool

	mu     sync.Mutex
	number uint64
	open   map[uint64]question
}

type question struct {
	sent   time.Time
	answer chan error
}

// listenForAnswers subscribes to answers, until stop or until the connection closes. Messages in flight fail with
// nats.ErrConnectionClosed at stop, and with nats.ErrDisconnected when the connection breaks or closes.
func listenForAnswers(nc *nats.Conn) (a *answers, stop func(), err error) {
	a = &answers{nc: nc, inbox: nc.NewInbox(), open: map[uint64]question{}}
	sub, err := nc.Subscribe(a.inbox+".*", a.hear)
	if err != nil {
		return nil, nil, fmt.Errorf("subscribe to answers: %w", err)
	}
	status := nc.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	go func() {
		for range status { // ends with stop
			// The server that received the requests is not the one that the client reconnects to.
			a.drop(nats.ErrDisconnected, 0)
		}
	}()
	return a, sync.OnceFunc(func() {
		nc.RemoveStatusListener(status)
		_ = sub.Unsubscribe() // fails if the connection, and so the subscription, is gone
		a.drop(nats.ErrConnectionClosed, 0)
	}), nil
}

// pending is a message in flight. The zero value was never sent.
type pending struct {
	a      *answers
	number uint64
	answer chan error
}

// send sends m without waiting. The header of m must have its id.
func (a *answers) send(m *nats.Msg) (pending, error) {
	p := pending{a: a, answer: make(chan error, 1)}
	a.mu.Lock()
	a.number++
	p.number = a.number
	a.open[p.number] = question{time.Now(), p.answer}
	a.mu.Unlock()
	if p.number%forgetEvery == 0 {
		a.drop(nats.ErrTimeout, 2*publishTimeout)
	}
	m.Reply = a.inbox + "." + strconv.FormatUint(p.number, 10)
	if err := a.nc.PublishMsg(m); err != nil {
		a.take(p.number)
		return pending{}, err
	}
	return p, nil
}

// forgetEvery is the number of messages sent between searches for those that are unanswered and
// have no waiter.
const forgetEvery = 1 << 12

// wait returns the server's answer: nil if the message is stored. If the error is that of ctx,
// nats.ErrTimeout because there was no answer within limit, or one of listenForAnswers, the message may be
// stored or not.
func (p pending) wait(ctx context.Context, limit time.Duration) error {
	select { // most answers arrive before the wait
	case err := <-p.answer:
		return err
	default:
	}
	timer, _ := p.a.timers.Get().(*time.Timer)
	if timer == nil {
		timer = time.NewTimer(limit)
	} else {
		timer.Reset(limit)
	}
	defer func() {
		timer.Stop()
		p.a.timers.Put(timer)
	}()
	select {
	case err := <-p.answer:
		return err
	case <-timer.C:
		p.a.take(p.number)
		return nats.ErrTimeout
	case <-ctx.Done():
		p.a.take(p.number)
		return ctx.Err()
	}
}

func (a *answers) take(number uint64) (question, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q, ok := a.open[number]
	delete(a.open, number)
	return q, ok
}

// drop ends with err the wait for the answers to all messages that were sent at least older ago.
func (a *answers) drop(err error, older time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for number, q := range a.open {
		if time.Since(q.sent) >= older {
			delete(a.open, number)
			q.answer <- err
		}
	}
}

func (a *answers) hear(m *nats.Msg) {
	number, err := strconv.ParseUint(lastToken(m.Subject), 10, 64)
	if err != nil {
		return
	}
	if q, ok := a.take(number); ok {
		q.answer <- verdict(m)
	}
}

// verdict decodes an answer: nil if the message is stored, now or before.
func verdict(m *nats.Msg) error {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return jetstream.ErrNoStreamResponse
	}
	if bytes.HasPrefix(m.Data, []byte(`{"stream":`)) && !bytes.Contains(m.Data, []byte(`"error"`)) {
		return nil
	}
	var said struct {
		Stream string              `json:"stream"`
		Error  *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(m.Data, &said); {
	case err != nil:
		return fmt.Errorf("%w: %w", jetstream.ErrInvalidJSAck, err)
	case said.Error != nil:
		return said.Error
	case said.Stream == "":
		return jetstream.ErrInvalidJSAck
	}
	return nil
}

// isAnswer reports whether a message of a stream is JetStream's answer to another message: a client named the subject
// of the stream for the reply to it. A subject for replies needs no permission, see docs/reference/nats.md#permissions.
func isAnswer(m *nats.Msg) bool {
	if len(m.Header) > 0 || !bytes.HasPrefix(m.Data, []byte(`{"stream":`)) && !bytes.HasPrefix(m.Data, []byte(`{"error":`)) {
		return false
	}
	var said struct {
		Stream string              `json:"stream"`
		Seq    *uint64             `json:"seq"`
		Error  *jetstream.APIError `json:"error"`
	}
	if json.Unmarshal(m.Data, &said) != nil {
		return false
	}
	return said.Stream != "" && said.Seq != nil || said.Error != nil && said.Error.Code != 0
}

// dropAnswer acknowledges an answer, see isAnswer. It stores no dead letter: those would evict others.
func (b *Bus) dropAnswer(m *nats.Msg) {
	if err := m.Ack(); err != nil {
		b.log.Debug("ack", "error", err) // delivered again after the ack wait
	}
	b.log.Warn("an answer of JetStream arrived as a message and is dropped: a NATS client publishes with this subject as its reply subject",
		"subject", m.Subject, "answer", string(m.Data[:min(len(m.Data), maxLogged)]),
		"hint", "the answer names the stream that the client publishes to: put clients that you do not trust into an account of their own, see `turnpike nats account` and docs/reference/nats.md#permissions")
}
