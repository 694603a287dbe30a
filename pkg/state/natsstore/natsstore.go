package natsstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Config of a Store. The zero value of each field gives its default.
type Config struct {
	Prefix   string       // default "turnpike"
	Domain   string       // of JetStream; default that of the connected server
	Replicas int          // of each stream; Open raises existing streams with fewer; default 1
	Logger   *slog.Logger // default: no log

	// Now is the clock of this process. The store uses the server's clock, and regularly measures
	// the difference between the two. Default time.Now.
	Now func() time.Time

	// ReadOnly opens a store for inspection: Open creates and changes no stream, and fails with
	// jetstream.ErrStreamNotFound if one is missing.
	ReadOnly bool
}

// Store is a state.Store in JetStream. It has many methods and fields because the port has many operations,
// and the process has an index of most data.
type Store struct {
	state.FormatSetting
	figures

	cfg    Config
	nc     *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	feed   jetstream.ConsumeContext

	mu       sync.Mutex
	index    map[state.RunID]version
	active   record.ActiveRuns // of the index
	lists    lists             // of the index
	schedule schedule          // of the index
	timers   timers
	warned   bool // whether the warning about too many runs was logged
	logs     map[state.RunID]cachedLog
	logBytes int                  // bytes in logs
	pages    map[state.RunID]page // where readers of parts of logs that are not in logs have stopped
	maxBytes int                  // maximum of logBytes

	batchLocks [batchLocks]sync.Mutex // of records of deleted batches, by shard of the first run

	quotas quotas
	audit  jetstream.Stream
	clock  clock

	last      mark          // of the feed; under mu
	newest    uint64        // sequence number of the newest record in the index, which the feed may lack; under mu
	created   time.Time     // the stream; of followStream
	proof     proof         // of followStream
	suspected chan struct{} // the stream may have gone back in time

	stop  context.CancelFunc // ends followStream
	ended chan struct{}
}

// version is a record, its position in the stream, and the size of its message.
type version struct {
	rec   record.Record
	seq   uint64
	bytes int
}

var _ state.Store = (*Store)(nil)

// Open creates missing streams, raises replicas that are lower than Config asks for, enables message TTLs, and returns
// when the index is up to date. It uses an existing stream that it cannot change as it is, and logs that. With
// Config.ReadOnly it creates and changes no stream, and fails if one is missing. It refuses a stream of runs with
// max_age or max_msgs_per_subject, which would delete runs. ctx bounds only Open. The caller must close nc itself,
// after the store.
func Open(ctx context.Context, nc *nats.Conn, cfg Config) (*Store, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = "turnpike"
	}
	if cfg.Replicas == 0 {
		cfg.Replicas = 1
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	var js jetstream.JetStream
	var err error
	if cfg.Domain == "" {
		js, err = jetstream.New(nc)
	} else {
		js, err = jetstream.NewWithDomain(nc, cfg.Domain)
	}
	if err != nil {
		return nil, fmt.Errorf("open JetStream: %w", err)
	}
	s := &Store{cfg: cfg, nc: nc, js: js, index: map[state.RunID]version{}, active: record.ActiveRuns{}, lists: lists{}, schedule: newSchedule(), timers: newTimers(), logs: map[state.RunID]cachedLog{}, pages: map[state.RunID]page{}, maxBytes: maxLogBytes, suspected: make(chan struct{}, 1)}
	want := jetstream.StreamConfig{
		Name:     streamName(cfg.Prefix, "STATE"),
		Subjects: []string{cfg.Prefix + ".state.>"}, Storage: jetstream.FileStorage, Replicas: cfg.Replicas,
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, Duplicates: 2 * time.Minute, AllowDirect: false, AllowMsgTTL: true,
	}
	if s.stream, err = s.ensure(ctx, want); err != nil {
		return nil, err
	}
	if have := s.stream.CachedInfo().Config; have.MaxAge != 0 || have.MaxMsgsPerSubject > 0 {
		return nil, fmt.Errorf("stream %s has the limits max_age %s and max_msgs_per_subject %d, with which NATS would delete runs: set both to unlimited with `nats stream edit %[1]s`", want.Name, have.MaxAge, have.MaxMsgsPerSubject)
	}
	s.figures.store, s.figures.folding = s, make(chan struct{}, 1)
	s.clock.local = cfg.Now
	info, err := s.readClock(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the server's time: %w", err)
	}
	s.created = info.Created
	if err := s.openQuotas(ctx); err != nil {
		return nil, err
	}
	if err := s.openAudit(ctx); err != nil {
		return nil, err
	}
	if err := s.follow(ctx); err != nil {
		return nil, err
	}
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop, s.ended = stop, make(chan struct{})
	go func() {
		defer close(s.ended)
		s.followStream(following)
	}()
	return s, nil
}

func streamName(prefix, kind string) string {
	return strings.ToUpper(strings.ReplaceAll(prefix, ".", "_")) + "_" + kind
}

// note applies a message of the feed to the index.
func (s *Store) note(m jetstream.Msg) {
	meta, err := m.Metadata()
	if err != nil {
		return
	}
	s.mu.Lock()
	if meta.Sequence.Stream > s.last.seq {
		s.last = mark{meta.Sequence.Stream, meta.Timestamp}
	}
	s.mu.Unlock()
	if strings.HasPrefix(m.Subject(), s.timerPrefix()) {
		s.noteTimer(m.Subject(), m.Data(), meta.Sequence.Stream)
		return
	}
	id := state.RunID(m.Subject()[strings.LastIndexByte(m.Subject(), '.')+1:])
	if s.knows(id, meta.Sequence.Stream) {
		return // this process has written it
	}
	ch, err := decode(id, m.Data())
	switch {
	case errors.Is(err, state.ErrFormat), errors.Is(err, state.ErrNotFound):
		s.forget(id)
	case err != nil:
		s.cfg.Logger.Error("a stored run cannot be decoded, it is ignored", "error", err, "subject", m.Subject(), "hint", "check that only Turnpike writes to this stream; to undo the damage, restore all streams of Turnpike from one backup")
	default:
		s.learn(id, version{ch.record, meta.Sequence.Stream, len(m.Data())})
	}
}

// knows reports whether the index has a record of a run that is at least as new as a message.
func (s *Store) knows(id state.RunID, seq uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.index[id].seq >= seq
}

// forget removes from the index a run that this build must no longer touch.
func (s *Store) forget(id state.RunID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.move(id, record.Record{})
	delete(s.index, id)
	s.logBytes -= s.logs[id].bytes
	delete(s.logs, id)
	delete(s.pages, id)
}

// learn puts a record into the index unless the index has a later one.
func (s *Store) learn(id state.RunID, v version) {
	if v.rec.Header.CheckFormat() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.index[id]; v.seq > have.seq {
		s.move(id, v.rec)
		s.index[id] = v
		s.newest = max(s.newest, v.seq)
		s.tooMany()
	}
}

// move updates the structures derived from the index when the record of a run is replaced; the
// caller holds s.mu.
func (s *Store) move(id state.RunID, to record.Record) {
	from := s.index[id].rec
	s.active.Move(from, to)
	s.lists.move(id, from, to)
	s.schedule.move(id, from, to)
}

// noisy reports whether a run is noisy, as far as the index knows.
func (s *Store) noisy(id state.RunID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active.Noisy(s.index[id].rec)
}

// Close stops following the stream and waits until that has ended. It leaves the connection open.
func (s *Store) Close() error {
	s.stop()
	<-s.ended
	s.feed.Stop()
	<-s.feed.Closed()
	return nil
}

// Ready implements state.Store. It writes to the streams of runs and of rate limits: a
// server that has once failed to write to a stream may refuse further writes to that
// stream only. No consumer reads the messages. The one in the stream of runs expires.
func (s *Store) Ready(ctx context.Context) error {
	if !s.nc.IsConnected() {
		return errors.New("this process is not connected to NATS: start NATS, or repair the network; the process reconnects")
	}
	if _, err := s.stream.Info(ctx); err != nil {
		return fmt.Errorf("read stream: %w", err)
	}
	_, err := s.js.Publish(ctx, s.cfg.Prefix+".state.ready", nil, jetstream.WithMsgTTL(probeLifetime))
	if err == nil {
		_, err = s.js.Publish(ctx, s.cfg.Prefix+".quota.ready", nil)
	}
	if err != nil {
		if _, answered := errors.AsType[jetstream.JetStreamError](err); answered {
			err = fmt.Errorf("%w: %w", check.ErrNoWrites, err)
		}
		return fmt.Errorf("write to JetStream: %w", err)
	}
	return nil
}

// probeLifetime is the time after which the server deletes the message of a probe, the shortest that it accepts.
const probeLifetime = time.Second

func (s *Store) runSubject(id state.RunID) string { return s.cfg.Prefix + ".state.run." + string(id) }

// read returns a run's last record from the stream's leader.
func (s *Store) read(ctx context.Context, id state.RunID) (version, string, error) {
	s.mu.Lock()
	had := s.index[id].seq
	s.mu.Unlock()
	m, err := s.stream.GetLastMsgForSubject(ctx, s.runSubject(id))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return version{}, "", fmt.Errorf("run %s: %w", id, state.ErrNotFound)
	}
	if err != nil {
		return version{}, "", fmt.Errorf("read run %s: %w", id, err)
	}
	ch, err := decode(id, m.Data)
	if errors.Is(err, state.ErrNotFound) {
		s.forget(id)              // the feed may be late
		return version{}, "", err // the error is specific enough
	}
	if err != nil {
		return version{}, "", fmt.Errorf("decode run %s: %w", id, err)
	}
	v := version{ch.record, m.Sequence, len(m.Data)}
	s.learn(id, v)
	s.compare(id, had, v)
	return v, ch.op, nil
}

// errUnchanged is returned by an update that has nothing to write.
var errUnchanged = errors.New("unchanged")

// Conflicts between writers are retried; this many in a row mean a fault.
const maxConflicts = 100

// update applies fn to a run's record in one atomic step. fn may be called several times, also because other processes
// have changed the run; its last call is the one that counts. If fn returns an error for a record from the index,
// update calls it again with the leader's record, and returns the error of that call, or nil if it is errUnchanged.
// After an error of fn nothing is written; after an error of the write the change may be stored. After maxConflicts
// conflicts update gives up.
func (s *Store) update(ctx context.Context, id state.RunID, fn func(*record.Record, time.Time) ([]state.Entry, error)) error {
	return s.updateWith(ctx, id, "", fn)
}

// updateWith is update with a text for the message's header figuresHeader.
func (s *Store) updateWith(ctx context.Context, id state.RunID, figures string, fn func(*record.Record, time.Time) ([]state.Entry, error)) error {
	s.mu.Lock()
	v, known := s.index[id]
	s.mu.Unlock()
	fresh := false
	op := nats.NewInbox()
	for range maxConflicts {
		if !known {
			var err error
			if v, _, err = s.read(ctx, id); err != nil {
				return err
			}
			fresh = true
		}
		rec := v.rec
		entries, err := fn(&rec, s.clock.now())
		if err != nil {
			if fresh {
				if errors.Is(err, errUnchanged) {
					return nil
				}
				return err
			}
			known = false
			continue
		}
		noteCheckpoint(&rec, v, entries)
		data, err := change{op, rec, entries}.encode()
		if err != nil {
			return err
		}
		seq, err := s.sendWith(ctx, s.runSubject(id), figures, data, v.seq)
		if err != nil && !conflict(err) {
			// The outcome is unknown: check the last message.
			last, lastOp, readErr := s.read(ctx, id)
			if readErr != nil || lastOp != op {
				return fmt.Errorf("write run %s: %w", id, err)
			}
			seq, err = last.seq, nil
		}
		if err == nil {
			s.learn(id, version{rec, seq, len(data)})
			s.extend(id, v.seq, seq, entries, len(data), rec.Header.Checkpoint)
			return nil
		}
		known = false
		if !pause(ctx, time.Duration(rand.IntN(2000))*time.Microsecond) { //nolint:gosec // jitter
			return ctx.Err()
		}
	}
	return fmt.Errorf("write run %s: other processes changed it %d times in a row: retry", id, maxConflicts)
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// headerBytes is the part of max_payload that the condition of a publish takes.
const headerBytes = 256

// publish stores v, as JSON, on a subject whose last message has the number last; 0 means that the subject has none. If
// the subject has another last message, conflict reports true for the error. The error is a *state.TooLargeError if v
// does not fit into max_payload together with a header (headerBytes).
func (s *Store) publish(ctx context.Context, subject string, v any, last uint64) (uint64, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return 0, err
	}
	return s.send(ctx, subject, data, last)
}

// send is publish for encoded data.
func (s *Store) send(ctx context.Context, subject string, data []byte, last uint64) (uint64, error) {
	return s.sendWith(ctx, subject, "", data, last)
}

// sendWith is send with a text for the header figuresHeader.
func (s *Store) sendWith(ctx context.Context, subject, figures string, data []byte, last uint64) (uint64, error) {
	if limit := s.nc.MaxPayload() - headerBytes - int64(len(figures)); int64(len(data)) > limit {
		return 0, &state.TooLargeError{Bytes: int64(len(data)), Limit: limit, Remedy: "raise max_payload of the NATS server, or send smaller messages and tool results"}
	}
	callCtx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	m := &nats.Msg{Subject: subject, Data: data}
	if figures != "" {
		m.Header = nats.Header{figuresHeader: {figures}}
	}
	ack, err := s.js.PublishMsg(callCtx, m, jetstream.WithExpectLastSequencePerSubject(last))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// conflict reports whether another writer was faster.
func conflict(err error) bool {
	var api *jetstream.APIError
	const wrongLastSequenceConstant = 10164
	return errors.As(err, &api) &&
		(api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == wrongLastSequenceConstant)
}
