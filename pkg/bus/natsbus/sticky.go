package natsbus

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The stream STICKY has a queue for each worker: one consumer for all lanes, so that a deployment with many workers and
// many streams of turns does not need one for each combination.

const (
	// stickyAge is the maximum age of a message in the queue of a worker. No process reads those of a dead worker: its
	// eviction publishes the turns again. A live worker needs the message of a turn in flight only to acknowledge it.
	stickyAge = 24 * time.Hour

	// stickyIdle is the time after which the server deletes the consumer of a worker that requests no messages. A
	// worker that returns later creates it again.
	stickyIdle = time.Hour
)

// stickyQueues are the queues of workers that this process reads: one in most processes.
type stickyQueues struct {
	mu    sync.Mutex
	specs map[string]consumerSpec // by worker
}

func (s *stickyQueues) add(worker string, spec consumerSpec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.specs == nil {
		s.specs = map[string]consumerSpec{}
	}
	s.specs[worker] = spec
}

func (s *stickyQueues) remove(worker string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.specs, worker)
}

func (s *stickyQueues) all() []consumerSpec {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []consumerSpec
	for _, spec := range s.specs {
		all = append(all, spec)
	}
	return all
}

// stickyStream returns the stream of the queues of workers.
func (conn *connection) stickyStream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: conn.stream("STICKY"), Subjects: []string{conn.subject("sticky", ">")},
		Storage: jetstream.FileStorage, Replicas: conn.cfg.Replicas, Duplicates: remembered, MaxAge: stickyAge,
		Retention: jetstream.WorkQueuePolicy, Discard: jetstream.DiscardNew, MaxMsgSize: 64 << 10,
	}
}

// sticky returns the consumer of the queue of a worker.
func (conn *connection) sticky(worker string) consumerSpec {
	return consumerSpec{stream: conn.stream("STICKY"), config: jetstream.ConsumerConfig{
		Durable: workerToken(worker), FilterSubject: conn.subject("sticky", workerToken(worker), ">"), InactiveThreshold: stickyIdle,
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: conn.cfg.AckWait, MaxDeliver: -1, MaxAckPending: -1,
	}}
}

// workerToken encodes the name of a worker as one token of a subject and the name of a consumer. Another worker could
// have the same token only if their names differ in nothing but characters that NATS forbids.
func workerToken(worker string) string {
	if len(worker) > 100 {
		sum := sha256.Sum256([]byte(worker))
		return hex.EncodeToString(sum[:])
	}
	return strings.NewReplacer("/", "_", `\`, "_").Replace(token(worker))
}

// publishSticky stores a turn in the queue of its worker. If the stream does not answer, the turn goes to its lane.
func (b *Bus) publishSticky(ctx context.Context, t bus.Turn, m *nats.Msg) error {
	shard := t.Run.Shard()
	m.Subject = b.subject("sticky", workerToken(t.Sticky), t.Queue().String())
	return b.publish(ctx, m, b.turnSubject(b.layout.Load().of(shard), t.Queue().String(), fmt.Sprint(shard)))
}

// StickyTurns implements bus.Turns.
func (b *Bus) StickyTurns(ctx context.Context, worker string) (bus.TurnQueue, error) {
	spec := b.sticky(worker)
	if err := b.ensureStream(ctx, b.stickyStream()); err != nil {
		return nil, err
	}
	if err := b.ensureConsumer(ctx, spec); err != nil {
		return nil, err
	}
	b.stickies.add(worker, spec)
	p, err := b.pull(ctx, []consumerSpec{spec}, 4*maxBatch)
	if err != nil {
		b.stickies.remove(worker)
		return nil, err
	}
	return turnQueue{p, bus.QueueKey{}, worker}, nil
}

// addSticky adds the messages in the queues of workers to lanes, as fetched ones. A missing stream has none.
func (ts *turnStreams) addSticky(ctx context.Context, lanes map[state.Priority]bus.LaneLag) error {
	var info *jetstream.StreamInfo
	stream, err := ts.js.Stream(ctx, ts.stream("STICKY"))
	if err == nil {
		info, err = stream.Info(ctx, jetstream.WithSubjectFilter(ts.subject("sticky", ">")))
	}
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read stream %s: %w", ts.stream("STICKY"), err)
	}
	for subject, n := range info.State.Subjects {
		lane := queueKey(lastToken(subject)).Lane
		lag := lanes[lane]
		lag.Fetched += int64(n) //nolint:gosec // as in LagByLane
		lanes[lane] = lag
	}
	return nil
}

// queueKey returns the key of a queue by its token in subjects; that of the normal lane if there is none.
func queueKey(token string) bus.QueueKey {
	for _, key := range bus.QueueKeys() {
		if key.String() == token {
			return key
		}
	}
	return bus.QueueKey{Lane: state.Normal}
}
