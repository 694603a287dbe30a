package turnpike_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// lossy loses the response to the first try of every change.
type lossy struct {
	next http.RoundTripper

	mu   sync.Mutex
	last string
	lost int
}

func (l *lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err != nil || r.Method == http.MethodGet {
		return resp, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if what := r.Method + r.URL.Path; l.last != what {
		l.last = what
		l.lost++
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return nil, errors.New("connection reset")
	}
	l.last = ""
	return resp, nil
}

// A change whose response is lost is retried, and happens once.
func TestChangesHappenOnce(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	put(t, d.Client, agents()...)
	g, err := d.NewGateway(turnpike.GatewayOptions{Auth: turnpike.NoAuth()})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g)
	defer server.Close()
	defer server.CloseClientConnections()
	network := &lossy{next: server.Client().Transport}
	c, err := turnpike.Dial(server.URL, turnpike.DialOptions{HTTP: &http.Client{Transport: network}})
	if err != nil {
		t.Fatal(err)
	}
	first := put1(t, c, agentOf("once", says("One.", "Two.")...))
	if again := put1(t, c, agentOf("once", says("One.", "Two.")...)); again.Version != first.Version {
		t.Errorf("versions %d and %d, want one", first.Version, again.Version)
	}
	r, _, err := done(t.Context(), c, turnpike.Submission{Agent: "once", Input: "x"})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Message(t.Context(), "And?"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	said, err := r.History(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, m := range said {
		if m.Role == state.RoleUser {
			asked++
		}
	}
	if asked != 2 {
		t.Errorf("the run has %d user messages, want 2", asked)
	}
	if _, err := r.Fork(t.Context(), turnpike.Fork{Turn: new(1), Input: json.RawMessage(`"And?"`)}); err != nil {
		t.Fatal(err)
	}
	b, err := c.SubmitBatch(t.Context(), turnpike.Batch{Runs: []turnpike.Submission{{Agent: "once", Input: "x"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	runs := 0
	for _, err := range c.Runs(t.Context(), turnpike.Filter{Agent: "once"}) {
		if err != nil {
			t.Fatal(err)
		}
		runs++
	}
	if runs != 3 {
		t.Errorf("%d runs, want 3: one submitted, one forked, one of the batch", runs)
	}
	if err := r.Delete(t.Context()); err != nil {
		t.Errorf("Delete = %v", err)
	}
	if network.lost < 6 {
		t.Errorf("%d responses were lost, want at least 6", network.lost)
	}
}

func put1(t *testing.T, c *turnpike.Client, a turnpike.Agent) turnpike.Saved {
	t.Helper()
	saved, err := c.PutAgent(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	return saved
}
