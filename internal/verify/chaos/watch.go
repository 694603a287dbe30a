package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// watch is the reader of one run's events.
type watch struct {
	u        *users
	s        *Submitted
	waits    chan struct{}
	finished chan struct{}

	// Guarded by u.mu.
	worker      string // that has the turn in flight
	interrupted *Fault
}

// read follows the event stream, and reconnects with Last-Event-ID until the run has finished or ctx ends.
func (w *watch) read(ctx context.Context) {
	last := int64(0)
	for ctx.Err() == nil {
		done, err := w.connect(ctx, &last)
		if done {
			close(w.finished)
			return
		}
		var p *api.Problem
		if errors.As(err, &p) && p.Status == http.StatusNotFound {
			return
		}
		rig.Pause(ctx, 100*time.Millisecond)
	}
}

// connect reads from one connection to any of the gateways.
func (w *watch) connect(ctx context.Context, last *int64) (done bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.u.door().url+"/v1/runs/"+w.s.ID+"/events", nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Last-Event-ID", strconv.FormatInt(*last, 10))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, err := io.ReadAll(resp.Body)
		p := &api.Problem{Status: resp.StatusCode}
		if json.Unmarshal(b, p) == nil {
			err = p
		}
		return false, err
	}
	for frames := sse.NewReader(resp.Body); ; {
		frame, err := frames.Next()
		if err != nil {
			return false, err
		}
		e, err := api.DecodeEvent(frame.Data)
		if err != nil {
			return false, err
		}
		w.heard(e)
		if e.Seq > 0 {
			*last = e.Seq
		}
		if e.Type == state.EntryFinished {
			w.u.ended(w.s, e.At.Time)
			return true, nil
		}
		if w.u.dice(100) < droppedShare {
			return false, nil
		}
	}
}

// heard records an event.
func (w *watch) heard(e api.Event) {
	w.u.mu.Lock()
	defer w.u.mu.Unlock()
	if e.Seq > 0 {
		w.s.Seen = append(w.s.Seen, e.Data)
	}
	goesOn := e.Seq > 0 || e.Type == state.LiveTurnStarted
	if f := w.interrupted; f != nil && goesOn && e.At.After(f.From) {
		w.u.recoveries = append(w.u.recoveries, Recovery{f.Kind, time.Since(f.From)})
		w.interrupted = nil
	}
	switch e.Type {
	case state.LiveTurnStarted:
		w.worker = e.Worker
	case state.EntryTransition, state.EntryFinished:
		w.worker = ""
	case state.EntryWaiting:
		w.worker = ""
		select {
		case w.waits <- struct{}{}:
		default:
		}
	default:
	}
}
