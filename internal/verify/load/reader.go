package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// reader reads the events of a run, and comes back with the last id where its
// connection ends early. A slow one takes nothing after its first event until slow is
// closed.
type reader struct {
	s      *deployment
	id     string
	slow   <-chan struct{}
	opened func()

	last int64
	done bool
}

func (r *reader) read(ctx context.Context) {
	// A separate connection each, with a small buffer on the reader's side: the gateway must hold
	// or drop what the reader does not take.
	dialer := net.Dialer{}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, addr)
		if tcp, ok := conn.(*net.TCPConn); ok && r.slow != nil {
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
}

// errStream reports a stream that is not as promised.
var errStream = errors.New("event stream is out of order")

func (r *reader) connect(ctx context.Context, c *http.Client) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.s.URL+"/v1/runs/"+r.id+"/events", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Last-Event-ID", strconv.FormatInt(r.last, 10))
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("read events: %s", resp.Status)
	}
	r.opened()
	for frames := sse.NewReader(resp.Body); ; {
		frame, err := frames.Next()
		if err != nil {
			return err
		}
		e, err := api.DecodeEvent(frame.Data)
		if err != nil {
			return err
		}
		if e.Seq > 0 && e.Seq != r.last+1 {
			r.s.fail("a reader of run %s got event %d after %d", r.id, e.Seq, r.last)
			r.done = true
			return errStream
		}
		r.last = max(r.last, e.Seq)
		if e.Type == state.EntryFinished {
			r.done = true
			return nil
		}
		if r.slow != nil {
			select {
			case <-r.slow:
			case <-ctx.Done():
			}
		}
	}
}
