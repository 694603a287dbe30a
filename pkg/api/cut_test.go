package api_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// pipes is a network within a synctest bubble.
type pipes chan net.Conn

func (p pipes) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	p <- far
	return near, nil
}

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// Follow outlasts a wait of a day behind a proxy that cuts each stream after a minute. It gives up on streams
// that end at once.
func TestFollowOutlastsCuts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		each time.Duration // duration of a stream
		ends bool
	}{{time.Minute, false}, {0, true}} {
		synctest.Test(t, func(t *testing.T) {
			over := time.Now().Add(24 * time.Hour)
			g := &rough{total: 1}
			g.stream = func(_ int64, w http.ResponseWriter, after int64) {
				if time.Now().After(over) {
					g.write(w, after+1, g.total)
					return
				}
				_, _ = fmt.Fprint(w, ": open\n\n")
				_ = http.NewResponseController(w).Flush()
				<-time.After(c.each)
			}
			network := make(pipes)
			server := &http.Server{Handler: g}
			go server.Serve(network) //nolint:errcheck // it ends with the test
			transport := &http.Transport{DialContext: network.dial}
			var last int64
			var failed error
			for e, err := range api.NewWithHTTP("http://gateway", &http.Client{Transport: transport}).Events(t.Context(), id, 0) {
				last, failed = e.Seq, err
			}
			if (failed != nil) != c.ends || !c.ends && last != 1 {
				t.Errorf("streams of %s: event %d, %v", c.each, last, failed)
			}
			transport.CloseIdleConnections()
			_ = server.Close()
		})
	}
}
