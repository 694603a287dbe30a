package stream

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// lookInterval is the time between two reads of the store for events without a notice.
	lookInterval = 2 * time.Second

	// statusLooks is the number of such reads after which one also reads the status of the run.
	statusLooks = 5

	// readerBuffer is the maximum number of events that wait for a slow reader, and readerBytes their maximum size
	// together, in bytes. The reader reads the others from the store later, in pages of about as many bytes: events
	// that a slow reader has not taken use memory.
	readerBuffer = 256
	readerBytes  = 64 << 10

	// pageEvents is the maximum number of events in such a page.
	pageEvents = 64
)

// Events follows the events of runs. It is safe for concurrent use.
type Events struct {
	runs      Runs
	store     Store
	restore   *restore.Review
	quit      <-chan struct{}
	audiences audiences
}

// NewEvents returns the events of runs. While review waits for a decision, a missing run does not count as lost; review
// may be nil. All readers end when quit is closed.
func NewEvents(runs Runs, store Store, b Bus, review *restore.Review, quit <-chan struct{}) *Events {
	return &Events{runs: runs, store: store, restore: review, quit: quit, audiences: audiences{bus: b, read: runs.Follow, runs: map[state.RunID]*audience{}}}
}

// Selection selects the events of a run that a reader gets.
type Selection struct {
	After    int64 // the number of the last event that the reader has; 0: all events
	NoDeltas bool  // omit deltas of model responses
}

// Open returns a reader of a run, which the caller must close. known is the run as the caller has read it; the caller
// must have checked its permission to read the run. The error is a *service.BusError if the bus refuses the
// subscription or ctx ends.
func (e *Events) Open(ctx context.Context, known state.State, s Selection) (*Reader, error) {
	r := &Reader{events: e, id: known.ID, known: known, after: s.After, noDeltas: s.NoDeltas, live: make(chan *Event, readerBuffer)}
	// Subscribe before the first read of the store, so that no event is missed in between.
	leave, err := e.audiences.join(ctx, r)
	if err != nil {
		return nil, &service.BusError{Err: err}
	}
	r.leave = leave
	return r, nil
}

// Sink receives the events of a reader. Run does not call its methods concurrently.
type Sink interface {
	// Event processes an event. It may buffer the event until Flush.
	Event(e *Event) error

	// KeepAlive is called about every 15 s (keepAliveInterval) and followed by Flush, so that a client also receives
	// data from a stream without events. It may buffer the data until Flush.
	KeepAlive() error

	// Flush sends what is buffered.
	Flush() error
}

// Reader reads the events of one run: those in the store after Selection.After, and then new ones. Committed events
// come from the store: a reader that resumes misses none and gets none twice, unless the store has lost some. Live
// events may be missing.
type Reader struct {
	events *Events
	id     state.RunID
	known  state.State // the run when the reader was opened
	leave  func()
	sink   Sink

	noDeltas bool

	live     chan *Event
	buffered atomic.Int64 // bytes in live

	after    int64 // number of the last committed event sent
	turn     int   // number of the turn of that event
	going    bool  // the last event that shows a status says that the run has not ended
	finished bool  // the last event sent is the end of the run
	looks    int   // number of reads of the store without a notice
	lacking  int   // number of consecutive reads that did not find the run
}

// Close ends the subscription. The caller must call it once, after Run.
func (r *Reader) Close() { r.leave() }

// offer adds an event for the reader to send, without blocking. It must not be called concurrently. If the reader is
// too slow, offer drops the event; if that is a committed one, the reader later reads it from the store.
func (r *Reader) offer(e *Event) {
	size := int64(len(e.frame))
	if buffered := r.buffered.Load(); buffered > 0 && buffered+size > readerBytes {
		return
	}
	r.buffered.Add(size)
	select {
	case r.live <- e:
	default:
		r.buffered.Add(-size)
	}
}

// errEnded ends a reader after the run's last event.
var errEnded = errors.New("run has ended")

// Run sends events to sink until the run has ended or counts as lost, the gateway stops, ctx ends, or sink or the
// store returns an error. A run counts as lost if lostLooks reads of the store in a row did not find it; its last
// event is then the recorded end of the lost run. Run returns nil after the last event of a run, nil or
// service.ErrStopped when the gateway stops, and otherwise the error, which wraps state.ErrDeleted if the run was
// deleted. It also returns nil, without a last event, if the store turns out to have the run when Run records it as
// lost: nil does not prove that the run has ended. Run must be called once.
func (r *Reader) Run(ctx context.Context, sink Sink) error {
	r.sink = sink
	err := r.run(ctx)
	if errors.Is(err, errEnded) {
		return nil
	}
	return err
}

func (r *Reader) run(ctx context.Context) error {
	if err := r.catchUp(ctx); err != nil {
		return err
	}
	alive := time.NewTicker(keepAliveInterval)
	defer alive.Stop()
	look := time.NewTicker(lookInterval)
	defer look.Stop()
	for {
		var err error
		select {
		case e := <-r.live:
			r.buffered.Add(-int64(len(e.frame)))
			err = r.take(ctx, e)
		case <-look.C:
			if r.looks++; r.looks%statusLooks == 0 {
				r.going = false // read the status too: if the run was lost, its log is shorter now
			}
			err = r.catchUp(ctx)
		case <-alive.C:
			if err = r.sink.KeepAlive(); err == nil {
				err = r.sink.Flush()
			}
		case <-r.events.quit:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// take sends an event from the bus if it is the next one. If events are missing before it, take reads them from the
// store.
func (r *Reader) take(ctx context.Context, e *Event) error {
	switch {
	case e.seq == 0:
		// A live event of an earlier turn, which arrived while older events were read, is outdated.
		if e.Turn < r.turn || r.noDeltas && e.Type == state.LiveModelDelta {
			return nil
		}
		return r.sendNow(e)
	case e.seq <= r.after:
		return nil
	case e.seq > r.after+1:
		return r.catchUp(ctx)
	}
	r.sent(e)
	if err := r.sendNow(e); err != nil {
		return err
	}
	if e.Type == state.EntryFinished {
		return r.end(ctx)
	}
	return nil
}

// catchUp sends the events in the store after the last one sent. If the store repeatedly does not have the run, it ends
// the reader.
func (r *Reader) catchUp(ctx context.Context) error {
	err := r.sendStored(ctx)
	if errors.Is(err, state.ErrNotFound) {
		return r.missing(ctx, err)
	}
	r.lacking = 0
	return err
}

// sendStored sends stored events in pages: a client needs about a second to receive a thousand events in a thousand
// pieces.
func (r *Reader) sendStored(ctx context.Context) error {
	for {
		page, err := r.read(ctx, pageEvents)
		if err != nil {
			return err
		}
		for _, entry := range page.Entries {
			data, err := api.EncodeEvent(r.id, entry)
			if err != nil {
				return err
			}
			e := newEvent(entry.Seq, head{entry.Type, entry.Turn}, data)
			r.sent(e)
			if err := r.sink.Event(e); err != nil {
				return err
			}
		}
		if err := r.sink.Flush(); err != nil {
			return err
		}
		if !page.More {
			return r.end(ctx)
		}
	}
}

// read reads the next events from the store, when it is the turn of this reader.
func (r *Reader) read(ctx context.Context, limit int) (state.LogPage, error) {
	return r.events.runs.Follow(ctx, r.id, r.after, limit, readerBytes)
}

// end returns errEnded if the run has ended and all its events were sent.
func (r *Reader) end(ctx context.Context) error {
	if r.going {
		return nil // without this, each reader of a waiting run would read the store
	}
	st, err := r.events.store.Load(ctx, r.id)
	if err != nil {
		return err
	}
	if !st.Status.Terminal() {
		r.going = true
		return nil
	}
	if st.Transition.Reason == state.EndLost && !r.finished {
		return r.endLost(ctx)
	}
	page, err := r.read(ctx, 1)
	if err != nil {
		return err
	}
	if len(page.Entries) > 0 {
		return nil // take or catchUp sends it
	}
	return errEnded
}

// sent records a committed event that is passed to the sink.
func (r *Reader) sent(e *Event) {
	r.after, r.turn, r.finished = e.seq, e.Turn, e.Type == state.EntryFinished
	switch e.Type {
	case state.EntrySubmitted, state.EntryTransition, state.EntryWaiting:
		r.going = true
	case state.EntryFinished:
		r.going = false
	default: // the event does not show the status of the run
	}
}

// sendNow sends one event and flushes.
func (r *Reader) sendNow(e *Event) error {
	if err := r.sink.Event(e); err != nil {
		return err
	}
	return r.sink.Flush()
}
