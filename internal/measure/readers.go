package measure

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// audience is the set of all readers of a trial.
type audience struct {
	t      *trial
	opened atomic.Int64
	events atomic.Int64
	slow   chan struct{} // closed when slow readers continue

	mu    sync.Mutex
	first []time.Duration // from the request to the first event
}

// readers runs many readers of the events of five runs, 2 MB each. Every second one stops reading after its
// first event until the runs have ended. It is a failure if one misses a committed event or gets one twice.
func readers(ctx context.Context, t *trial) error {
	const runs, pages, perSecond = 5, 20, 250
	if err := t.deploy(ctx, rig.Config{}); err != nil {
		return err
	}
	if err := t.define(ctx, "read", `
model: {provider: scripted, responses: [{tool_calls: [{name: ask, arguments: {question: "all here?"}}]}, `+strings.Repeat("{tool_calls: [{name: page}]}, ", pages)+`{text: done}]}
tools: [{name: ask, kind: human}, {name: page, kind: http, url: "`+t.model.url+`page", idempotent: true, reuse: false}]
loop: {max_turns: 100, tool_loop_threshold: 100}`); err != nil {
		return err
	}
	batches, ids, err := t.submitMany(ctx, request("read"), runs, 0)
	if err != nil {
		return err
	}
	if err := t.reach(ctx, batches, state.Waiting); err != nil {
		return err
	}
	a := &audience{t: t, slow: make(chan struct{})}
	reading, groupCtx := errgroup.WithContext(ctx)
	began := time.Now()
	for i := range t.n {
		pause(groupCtx, time.Until(began.Add(time.Duration(i)*time.Second/perSecond)))
		r := &reader{a: a, id: ids[i%runs], slow: i%2 == 1}
		reading.Go(func() error { return r.read(groupCtx) })
	}
	if err := soon(groupCtx, "every reader has its first event", func() (bool, error) { return a.opened.Load() >= int64(t.n), nil }); err != nil {
		return err
	}
	before := t.used()
	for _, id := range ids {
		if err := t.answer(ctx, id); err != nil {
			return err
		}
	}
	if err := t.reach(ctx, batches, state.Completed); err != nil {
		return err
	}
	close(a.slow)
	if err := reading.Wait(); err != nil {
		return err
	}
	t.times(fmt.Sprintf("first event, %d readers come a second", perSecond), a.first, 0.99, 50)
	t.figure(Figure{Name: "gateway's processor time for an event of 100 KB", Value: ms(t.used().since(before).gateway) / float64(a.events.Load()), Unit: "ms", Note: fmt.Sprintf("%d events", a.events.Load())})
	t.figure(Figure{Name: "gateway at most", Value: mib(t.Gateway.Peak()), Unit: "MiB"})
	return nil
}

// reader reads the events of a run, and reconnects with the last id if its connection ends early.
type reader struct {
	a    *audience
	id   string
	slow bool

	seen bool // whether it had its first event
	last int64
	done bool
}

// read reads to the last event of the run.
func (r *reader) read(ctx context.Context) error {
	// Each reader has its own connection, with a small buffer on its side: the gateway must hold or drop what
	// the reader does not read.
	dialer := net.Dialer{}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, addr)
		if tcp, ok := conn.(*net.TCPConn); ok && r.slow {
			err = tcp.SetReadBuffer(64 << 10)
		}
		return conn, err
	}}
	defer transport.CloseIdleConnections()
	for !r.done && ctx.Err() == nil {
		if err := r.connect(ctx, &http.Client{Transport: transport}); err != nil && !r.done {
			rig.Pause(ctx, 100*time.Millisecond)
		}
	}
	return ctx.Err()
}

// connect reads one connection to its end. An error does not count as a failure; read connects again.
func (r *reader) connect(ctx context.Context, c *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.a.t.URL+"/v1/runs/"+r.id+"/events", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Last-Event-ID", strconv.FormatInt(r.last, 10))
	began := time.Now()
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("read events: %s", resp.Status)
	}
	for frames := sse.NewReader(resp.Body); !r.done; {
		frame, err := frames.Next()
		if err != nil {
			return err
		}
		e, err := api.DecodeEvent(frame.Data)
		if err != nil {
			return err
		}
		r.take(e, time.Since(began))
		if r.slow {
			select {
			case <-r.a.slow:
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// take handles one event.
func (r *reader) take(e api.Event, after time.Duration) {
	if !r.seen {
		r.seen = true
		r.a.mu.Lock()
		r.a.first = append(r.a.first, after)
		r.a.mu.Unlock()
		r.a.opened.Add(1)
	}
	r.a.events.Add(1)
	if e.Seq > 0 && e.Seq != r.last+1 {
		r.a.t.fail("events of run %s were lost or repeated: a reader got %d after %d; report this bug in Turnpike", r.id, e.Seq, r.last)
		r.done = true
	}
	r.last = max(r.last, e.Seq)
	r.done = r.done || e.Type == state.EntryFinished
}
