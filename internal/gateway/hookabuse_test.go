package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// unsigned starts a delivery of n bytes without a signature, and waits until the gateway wants its body.
func (s *guarded) unsigned(path string, n int) *wire {
	s.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(s.t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	c := &wire{s.t, conn, bufio.NewReader(conn)}
	c.send("POST", path, "", fmt.Sprintf("Content-Length: %d\r\nExpect: 100-continue\r\n", n), "")
	resp, p := c.answer()
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusContinue {
		s.t.Fatalf("the gateway refused a body of %d bytes before it arrived: %d %s", n, resp.StatusCode, p.Detail)
	}
	return c
}

// Senders that cannot sign use up no memory by what they claim to send. By what they do send, they use up that of the
// hook whose name they know, and of no other.
func TestUnsignedDeliveries(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	victim, other := s.hook("acme", "triage", triage), s.hook("globex", "triage", triage)
	for range 30 {
		s.unsigned("/v1/hooks/acme/none", 1<<20)
		s.unsigned(victim.Path, 1<<20)
	}
	if status, _, p := s.github(victim.Path, "a secret", "d-1", opened(1)); status != http.StatusAccepted {
		t.Errorf("a delivery while others claim to send: %d %s", status, p.Detail)
	}
	half := strings.Repeat(" ", 1<<19)
	for _, path := range []string{"/v1/hooks/acme/none", victim.Path} {
		for n := 0; ; n++ { // the share has memory for 24
			c := s.unsigned(path, 1<<20)
			if _, err := c.conn.Write([]byte(half)); err != nil {
				t.Fatal(err)
			}
			_ = c.conn.SetReadDeadline(time.Now().Add(5 * time.Millisecond))
			if _, err := c.in.Peek(1); err != nil && n < 300 {
				continue
			}
			_ = c.conn.SetReadDeadline(time.Time{})
			c.wantProblem(fmt.Sprintf("%s: body %d", path, n), http.StatusTooManyRequests, api.CodeTooManyBytes)
			break
		}
		if status, _, p := s.github(other.Path, "a secret", "d-"+path[len(path)-1:], opened(1)); status != http.StatusAccepted {
			t.Errorf("a delivery to another hook: %d %s", status, p.Detail)
		}
	}
}

// gatheringStore delays the first reads of hooks until as many as due have begun.
type gatheringStore struct {
	state.Store

	due atomic.Int64
	all chan struct{}
}

func (s *gatheringStore) Document(ctx context.Context, kind state.DocumentKind, name string) (json.RawMessage, error) {
	if kind == state.HooksOf("acme") {
		if s.due.Add(-1) == 0 {
			close(s.all)
		}
		<-s.all
	}
	return s.Store.Document(ctx, kind, name)
}

// Deliveries that read the settings of a hook at the same time share its limit.
func TestHookRateOfConcurrentDeliveries(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	made := s.hook("acme", "rare", strings.Replace(triage, `"verify"`, `"max_per_minute": 1, "verify"`, 1))
	const sent = 40
	store := &gatheringStore{Store: s.store.Store, all: make(chan struct{})}
	store.due.Store(sent)
	s.store.Store = store
	var accepted atomic.Int64
	var deliveries sync.WaitGroup
	for i := range sent {
		deliveries.Go(func() {
			if status, _, _ := s.github(made.Path, "a secret", fmt.Sprint("d-", i), opened(i)); status == http.StatusAccepted {
				accepted.Add(1)
			}
		})
	}
	deliveries.Wait()
	if n := accepted.Load(); n != 1 {
		t.Errorf("the hook accepted %d of %d deliveries at once, at most 1 a minute is allowed", n, sent)
	}
}
