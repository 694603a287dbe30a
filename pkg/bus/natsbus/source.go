package natsbus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// source brings the messages of one consumer to a puller.
//
// It speaks the pull protocol itself. The client library's iterator, with a buffer for
// one message, skips a pull now and then when a message outruns its bookkeeping, and
// then stands still until its heartbeat is missed ten seconds later; and what comes
// while nobody calls it lies there until the ack wait is over.
type source struct {
	p      *puller
	spec   consumerSpec
	sub    *nats.Subscription
	inbox  string // requests are answered to <inbox>.<number>
	msgs   chan *nats.Msg
	status chan nats.Status

	asked chan struct{} // holds a token if somebody may wait
	quit  chan struct{} // closed by stop
	done  chan struct{} // closed when run has returned
	stop  func()

	// Guarded by the puller's mu.
	open int       // messages that all requests may still bring
	more bool      // it is taken to have messages; it says nothing of the only source of a puller
	dry  time.Time // when it was last seen to have none
}

const (
	// pullExpiry is how long the server keeps a request open. It may have forgotten
	// it without a word, so it is short.
	pullExpiry = 5 * time.Second

	// askPatience is how long an answer may take that says what is there now: beside it
	// other streams are not asked.
	askPatience = 500 * time.Millisecond

	// lookAgain is how long a stream is passed over that was seen to have no messages, while
	// others have some and few are wanted.
	lookAgain = 20 * time.Millisecond

	// pullPause is the time between requests that fail.
	pullPause = 200 * time.Millisecond

	// farewell is how long stop waits for what the server has sent already.
	farewell = 2 * time.Second
)

func (p *puller) open(ctx context.Context, spec consumerSpec) (*source, error) {
	nc := p.b.nc
	s := &source{
		p: p, spec: spec, inbox: nc.NewInbox(), msgs: make(chan *nats.Msg, 4*maxBatch),
		asked: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
		more: true, // until it is known better
	}
	s.stop = sync.OnceFunc(func() {
		close(s.quit)
		<-s.done
	})
	var err error
	if s.sub, err = nc.ChanSubscribe(s.inbox+".*", s.msgs); err != nil {
		return nil, fmt.Errorf("pull: %w", err)
	}
	s.status = nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	go s.run(context.WithoutCancel(ctx)) // ends with stop
	return s, nil
}

func (s *source) isOf(spec consumerSpec) bool { return s.spec.stream == spec.stream }

// run asks the server while somebody waits, until stop.
func (s *source) run(ctx context.Context) {
	defer close(s.done)
	defer s.p.b.nc.RemoveStatusListener(s.status)
	defer s.leave()
	var (
		number int              // of the latest request
		again  <-chan time.Time // ends the requests, or the pause after one that failed
		paused bool
	)
	timer := time.NewTimer(pullExpiry)
	defer timer.Stop()
	wait := func(d time.Duration) {
		timer.Reset(d)
		again = timer.C
	}
	pause := func() {
		paused = true
		wait(pullPause)
	}
	for {
		if n, now := s.p.wanted(s); !paused && n > 0 {
			number++
			if err := s.request(number, n, now); err == nil {
				s.opened(n)
				if now {
					wait(askPatience)
				} else {
					wait(pullExpiry + time.Second)
				}
			} else if s.p.b.nc.IsClosed() {
				s.p.fail(fmt.Errorf("%w: %w", bus.ErrClosed, err))
			} else {
				pause() // the server is away
			}
		}
		select {
		case m := <-s.msgs:
			status := statusOf(m)
			if status == "" {
				s.p.came(s, m)
				continue
			}
			left, err := strconv.Atoi(m.Header.Get("Nats-Pending-Messages"))
			if m.Subject == s.inbox+"."+strconv.Itoa(number) {
				s.ended() // older ones have ended before
			} else if err == nil {
				s.opened(-left)
			}
			if status != "408" && status != "404" { // expired, or nothing there
				s.ended()
				s.refused(ctx, status, m.Header.Get("Description"))
				pause()
			}
		case <-again:
			again, paused = nil, false
			s.ended()
		case st := <-s.status:
			// The server that had the requests is not the one we talk to now.
			again, paused = nil, false
			s.ended()
			if st == nats.CLOSED {
				s.p.fail(fmt.Errorf("%w: %w", bus.ErrClosed, nats.ErrConnectionClosed))
			}
		case <-s.asked:
		case <-s.quit:
			return
		}
	}
}

// opened counts messages that requests may bring.
func (s *source) opened(n int) {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.open = max(0, s.open+n)
}

// ended notes that no request is open any more. Another stream may be asked instead.
func (s *source) ended() {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.open = 0
	s.isDry()
}

// isDry notes that a source has no messages now, as far as is known. The caller holds mu.
func (s *source) isDry() {
	if s.more {
		s.p.wake()
	}
	s.more, s.dry = false, time.Now()
}

func (s *source) request(number, n int, now bool) error {
	subject := fmt.Sprintf("%sCONSUMER.MSG.NEXT.%s.%s", s.p.b.api, s.spec.stream, s.spec.config.Durable)
	body := fmt.Sprintf(`{"batch":%d,"expires":%d}`, n, pullExpiry.Nanoseconds())
	if now {
		body = fmt.Sprintf(`{"batch":%d,"no_wait":true}`, n)
	}
	return s.p.b.nc.PublishRequest(subject, s.inbox+"."+strconv.Itoa(number), []byte(body))
}

// statusOf returns the code of an answer that is no message.
func statusOf(m *nats.Msg) string {
	if len(m.Data) > 0 || m.Reply != "" { // a message has a subject for its ack
		return ""
	}
	return m.Header.Get("Status")
}

// refused deals with an answer that says that something is wrong: a queue that is
// gone is made anew, since whatever was in it is found again by the sweepers.
func (s *source) refused(ctx context.Context, status, description string) {
	b := s.p.b
	log := b.log.With().Str("stream", s.spec.stream).Str("consumer", s.spec.config.Durable).Logger()
	log.Debug().Str("status", status).Str("description", description).Msg("pull refused")
	if status != "503" && !strings.Contains(description, "Deleted") {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if _, err := b.js.Consumer(ctx, s.spec.stream, s.spec.config.Durable); !isMissing(err) {
		return
	}
	if b.isDrained(s.spec.stream) {
		return // nobody publishes to it, and it is deleted by whoever found it empty
	}
	if err := b.restore(ctx); err != nil {
		log.Warn().Err(err).Str("hint", "is JetStream on, and may this account make streams? it is tried again").Msg("streams not restored")
		return
	}
	log.Warn().Str("hint", "sweepers publish the turns again; did NATS lose its JetStream directory?").Msg("streams were missing and are made anew")
}

// isMissing reports whether a stream or consumer does not exist.
func isMissing(err error) bool {
	for _, missing := range []error{jetstream.ErrConsumerNotFound, jetstream.ErrConsumerDoesNotExist, jetstream.ErrStreamNotFound} {
		if errors.Is(err, missing) {
			return true
		}
	}
	return false
}

// leave gives back what the server has sent already.
func (s *source) leave() {
	drained := make(chan struct{})
	// A connection that is closed meanwhile calls it a second time.
	closed := sync.OnceFunc(func() { close(drained) })
	s.sub.SetClosedHandler(func(string) { closed() })
	if s.sub.Drain() != nil {
		return // the connection is closed
	}
	bye := time.NewTimer(farewell)
	defer bye.Stop()
	for {
		select {
		case m := <-s.msgs:
			s.p.giveBack(m)
		case <-drained:
			for {
				select {
				case m := <-s.msgs:
					s.p.giveBack(m)
				default:
					return
				}
			}
		case <-bye.C: // a server that is away does not answer
			return
		}
	}
}
