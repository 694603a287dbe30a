package natsstore

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// figuresHeader is the header with the figures of a message that ends a run.
const figuresHeader = "Turnpike-Figures"

// foldPart is the number of messages that a fold reads before it writes sums.
const foldPart = 5000

// foldTimeout is the time after which the server deletes the consumer of a fold, or of catchUp, whose process died,
// and the maximum that this process waits for the deletion.
const foldTimeout = 10 * time.Second

// figures are the hourly figures. The message that ends a run has its figures in a header. A fold
// reads the headers of all messages of runs since the last fold, and adds what they have to the sums
// of their hour, a message per tenant and hour. The sums store the sequence up to which they have
// the stream, so a fold that is repeated, or that runs in two processes, adds each message once.
type figures struct {
	store   *Store
	known   atomic.Uint64 // the cursor, as this process saw it last
	folding chan struct{} // holds a value while this process folds
}

// sums is the message of a tenant's hour.
type sums struct {
	Through uint64            `json:"through"` // the sequence of the latest message in it
	Series  map[string]string `json:"series"`  // counters by agent and model
}

// cursor says that all messages up to Through were folded.
type cursor struct {
	Through uint64 `json:"through"`
}

// packFigures returns the figures of a commit as a header, or "" if it has none.
func packFigures(c state.Commit) string {
	if !c.State.Status.Terminal() || len(c.Figures) == 0 {
		return ""
	}
	by := map[state.SeriesKey]state.Figures{}
	state.AddSeries(by, c.Figures)
	b, err := json.Marshal(ended{c.State.Tenant, pack(by)})
	if err != nil {
		return "" // it has only strings
	}
	return base64.RawStdEncoding.EncodeToString(b)
}

// ended is the header of a message that ends a run.
type ended struct {
	Tenant string            `json:"tenant"`
	Series map[string]string `json:"series"`
}

func pack(by map[state.SeriesKey]state.Figures) map[string]string {
	series := make(map[string]string, len(by))
	for key, f := range by {
		series[key.Agent+"\n"+key.Model] = f.String()
	}
	return series
}

func unpack(series map[string]string) ([]state.FigureSeries, error) {
	list := make([]state.FigureSeries, 0, len(series))
	for _, name := range slices.Sorted(maps.Keys(series)) {
		agent, model, _ := strings.Cut(name, "\n")
		f, err := state.ParseFigures(series[name])
		if err != nil {
			return nil, err
		}
		list = append(list, state.FigureSeries{SeriesKey: state.SeriesKey{Agent: agent, Model: model}, Figures: f})
	}
	return list, nil
}

func (f *figures) subject(name string) string { return f.store.cfg.Prefix + ".state.figures." + name }

func (f *figures) hourSubject(tenant string, hour time.Time) string {
	return f.subject("hour." + tenant + "." + strconv.FormatInt(hour.Unix()/3600, 10))
}

// last reads the last message of a subject into v. The sequence is 0 without a message.
func (f *figures) last(ctx context.Context, subject string, v any) (uint64, error) {
	m, err := f.store.stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", subject, err)
	}
	if err := json.Unmarshal(m.Data, v); err != nil {
		return 0, fmt.Errorf("decode %s: %w", subject, err)
	}
	return m.Sequence, nil
}

// Figures implements state.HourlyFigures.
func (f *figures) Figures(ctx context.Context, tenant string, from, to time.Time) ([]state.HourFigures, error) {
	if err := f.FoldFigures(ctx); err != nil {
		return nil, err
	}
	var hours []state.HourFigures
	for hour := state.FirstHour(from); hour.Before(to); hour = hour.Add(time.Hour) {
		var s sums
		if _, err := f.last(ctx, f.hourSubject(tenant, hour), &s); err != nil {
			return nil, err
		}
		series, err := unpack(s.Series)
		if err != nil {
			return nil, err
		}
		if len(series) > 0 {
			hours = append(hours, state.HourFigures{Hour: hour, Series: series})
		}
	}
	return hours, nil
}

// foldThrough folds unless the cursor is known to be at a sequence, or after it.
func (f *figures) foldThrough(ctx context.Context, seq uint64) error {
	return f.foldUnless(ctx, func() bool { return f.known.Load() >= seq })
}

// FoldFigures implements state.HourlyFigures.
func (f *figures) FoldFigures(ctx context.Context) error {
	return f.foldUnless(ctx, func() bool { return false })
}

// foldUnless folds, once this process does not fold already, unless the fold that it waited for was enough.
func (f *figures) foldUnless(ctx context.Context, enough func() bool) error {
	if enough() {
		return nil
	}
	select {
	case f.folding <- struct{}{}:
		defer func() { <-f.folding }()
	case <-ctx.Done():
		return fmt.Errorf("metrics of ended runs not aggregated, since this process is still aggregating others: %w", ctx.Err())
	}
	for !enough() {
		more, err := f.fold(ctx)
		if err != nil {
			return fmt.Errorf("aggregate stored metrics: %w", err)
		}
		if !more {
			return nil
		}
	}
	return nil
}

// message is a message that ends a run.
type message struct {
	seq    uint64
	series []state.FigureSeries
}

// fold folds the messages after the cursor, at most foldPart. It reports whether there are more.
func (f *figures) fold(ctx context.Context) (more bool, err error) {
	var from cursor
	at, err := f.last(ctx, f.subject("cursor"), &from)
	if err != nil {
		return false, err
	}
	f.known.Store(from.Through)
	c, err := f.store.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubject: f.store.runSubject("*"), DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from.Through + 1,
		HeadersOnly: true, AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: foldTimeout,
	})
	if err != nil {
		return false, err
	}
	defer f.store.deleteConsumer(ctx, c)
	pending := int(c.CachedInfo().NumPending) //nolint:gosec // messages of one stream
	if pending == 0 {
		return false, nil
	}
	through, ends, err := f.read(c, min(pending, foldPart))
	if err != nil {
		return false, err
	}
	for subject, list := range ends {
		if err := f.add(ctx, subject, list); err != nil {
			return false, err
		}
	}
	if through > from.Through {
		if err := f.put(ctx, f.subject("cursor"), cursor{through}, at, 0); err != nil && !conflict(err) {
			return false, err // if another process has moved it, the next fold begins there
		}
		f.known.Store(through)
	}
	return pending > foldPart, nil
}

// read reads n messages. It returns the sequence of the last one, and those that end runs by the
// subject of their hour.
func (f *figures) read(c jetstream.Consumer, n int) (through uint64, ends map[string][]message, err error) {
	ends = map[string][]message{}
	delivered := uint64(0)
	for n > 0 {
		batch, err := c.FetchNoWait(min(n, 500))
		if err != nil {
			return 0, nil, err
		}
		before := n
		for m := range batch.Messages() {
			n--
			meta, err := m.Metadata()
			if err != nil {
				return 0, nil, err
			}
			if delivered++; meta.Sequence.Consumer != delivered {
				return 0, nil, errors.New("NATS has not delivered one of the messages with metrics: retry")
			}
			through = meta.Sequence.Stream
			encoded := m.Headers().Get(figuresHeader)
			if encoded == "" {
				continue
			}
			var e ended
			text, err := base64.RawStdEncoding.DecodeString(encoded)
			if err == nil {
				err = json.Unmarshal(text, &e)
			}
			if err != nil {
				return 0, nil, fmt.Errorf("decode header of %s: %w", m.Subject(), err)
			}
			series, err := unpack(e.Series)
			if err != nil {
				return 0, nil, err
			}
			subject := f.hourSubject(e.Tenant, meta.Timestamp.UTC().Truncate(time.Hour))
			ends[subject] = append(ends[subject], message{through, series})
		}
		if err := batch.Error(); err != nil {
			return 0, nil, err
		}
		if n == before {
			return through, ends, nil // messages were deleted since they were counted
		}
	}
	return through, ends, nil
}

// add adds messages to the sums of an hour, without those that it has.
func (f *figures) add(ctx context.Context, subject string, list []message) error {
	began, err := strconv.ParseInt(subject[strings.LastIndexByte(subject, '.')+1:], 10, 64)
	if err != nil {
		return err
	}
	expires := time.Unix(began*3600, 0).Add(state.FiguresLifetime)
	lifetime := max(time.Second, expires.Sub(f.store.clock.now()))
	for range maxConflicts {
		var s sums
		at, err := f.last(ctx, subject, &s)
		if err != nil {
			return err
		}
		have, err := unpack(s.Series)
		if err != nil {
			return err
		}
		by := map[state.SeriesKey]state.Figures{}
		state.AddSeries(by, have)
		before := s.Through
		for _, m := range list {
			if m.seq > before {
				state.AddSeries(by, m.series)
				s.Through = m.seq
			}
		}
		if s.Through == before {
			return nil
		}
		s.Series = pack(by)
		if err := f.put(ctx, subject, s, at, lifetime); !conflict(err) {
			return err
		}
		if !pause(ctx, time.Duration(rand.IntN(2000))*time.Microsecond) { //nolint:gosec // jitter
			return ctx.Err()
		}
	}
	return fmt.Errorf("write stored metrics to subject %s: other processes changed them %d times in a row: retry", subject, maxConflicts)
}

// put replaces the last message of a subject, and removes the earlier ones. A lifetime of 0 has no
// end.
func (f *figures) put(ctx context.Context, subject string, v any, last uint64, lifetime time.Duration) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	opts := []jetstream.PublishOpt{jetstream.WithExpectLastSequencePerSubject(last)}
	if lifetime > 0 {
		opts = append(opts, jetstream.WithMsgTTL(lifetime.Truncate(time.Second)))
	}
	ack, err := f.store.js.Publish(ctx, subject, data, opts...)
	if err != nil {
		return err
	}
	if last == 0 {
		return nil
	}
	return f.store.stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(ack.Sequence))
}
