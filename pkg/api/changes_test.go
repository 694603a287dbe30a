package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/turnpike-dev/turnpike/internal/sse"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// changes reads the changes of a gateway whose connections stream answers, by number from 1, until they end or the
// reader has seen as many as most. It returns what it has seen, and the header Last-Event-ID of each connection.
func changes(t *testing.T, most int, stream func(n int, w http.ResponseWriter)) (seen, after []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := make(pipes)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			after = append(after, r.Header.Get("Last-Event-ID"))
			stream(len(after), w)
		})}
		go server.Serve(network) //nolint:errcheck // it ends with the test
		transport := &http.Transport{DialContext: network.dial}
		for change, err := range api.NewWithHTTP("http://gateway", &http.Client{Transport: transport}).Changes(t.Context(), nil) {
			if err != nil {
				seen = append(seen, "the end")
				continue
			}
			if seen = append(seen, change.Type+" "+change.RunID); len(seen) == most {
				break
			}
		}
		transport.CloseIdleConnections()
		_ = server.Close()
	})
	return seen, after
}

// send writes a change to a stream. Those that a reader has missed have no id.
func send(w http.ResponseWriter, id, kind, run string) {
	data, _ := json.Marshal(api.Change{Type: kind, RunID: run})
	_, _ = w.Write(sse.Append(nil, sse.Event{ID: id, Type: kind, Data: data}))
}

func refuse(w http.ResponseWriter, status int) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(api.Problem{Code: "any", Status: status})
}

// A reader whose connection breaks continues after the last change that has an id. Changes without one, connections
// that end before the first change, and a gateway that is not available do not make it forget that.
func TestChangesComeBack(t *testing.T) {
	t.Parallel()
	seen, after := changes(t, -1, func(n int, w http.ResponseWriter) {
		switch n {
		case 1:
			send(w, "5", api.ChangesOpen, "")
			send(w, "6", api.RunDeleted, "a")
		case 2, 6:
			refuse(w, http.StatusServiceUnavailable)
		case 3: // it breaks after the changes that the reader has missed
			send(w, "", api.RunDeleted, "b")
			send(w, "", api.RunDeleted, "c")
		case 4: // it breaks at once
		case 5:
			send(w, "", api.RunDeleted, "c")
			send(w, "9", api.ChangesOpen, "")
			_, _ = w.Write([]byte("id: 10\ndata: {\"type\":"))
		default:
			refuse(w, http.StatusForbidden)
		}
	})
	if want := []string{"", "6", "6", "6", "6", "9", "9"}; !slices.Equal(after, want) {
		t.Errorf("the reader connects after %q, want %q", after, want)
	}
	want := []string{"stream.open ", "run.deleted a", "run.deleted b", "run.deleted c", "run.deleted c", "stream.open ", "the end"}
	if !slices.Equal(seen, want) {
		t.Errorf("the reader has seen %q, want %q", seen, want)
	}
}

// Only reconnections in a row count: the reader gives up after 120 without a change, and not before.
func TestChangesGiveUp(t *testing.T) {
	t.Parallel()
	seen, after := changes(t, -1, func(n int, w http.ResponseWriter) {
		if n == 121 {
			send(w, "1", api.ChangesOpen, "")
		}
	})
	if want := []string{"stream.open ", "the end"}; !slices.Equal(seen, want) || len(after) != 241 {
		t.Errorf("after %d connections the reader has seen %q, want %q after 241", len(after), seen, want)
	}
}

// A reader that has enough reads no more changes, and does not connect again.
func TestChangesAreEnough(t *testing.T) {
	t.Parallel()
	seen, after := changes(t, 1, func(_ int, w http.ResponseWriter) {
		send(w, "1", api.ChangesOpen, "")
		send(w, "2", api.RunDeleted, "a")
	})
	if want := []string{"stream.open "}; !slices.Equal(seen, want) || len(after) != 1 {
		t.Errorf("the reader has seen %q over %d connections, want %q over 1", seen, len(after), want)
	}
}
