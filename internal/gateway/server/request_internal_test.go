package server

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
)

// slow is a client that receives a piece of a response in some time. A write fails at its deadline.
type slow struct {
	*httptest.ResponseRecorder

	takes    time.Duration
	deadline time.Time
}

func (s *slow) SetWriteDeadline(t time.Time) error { s.deadline = t; return nil }

func (s *slow) Write(b []byte) (int, error) {
	time.Sleep(s.takes * time.Duration(len(b)) / writePiece) // the bubble's clock
	if !s.deadline.IsZero() && time.Now().After(s.deadline) {
		return 0, os.ErrDeadlineExceeded
	}
	return s.ResponseRecorder.Write(b)
}

// A client gets a large response as long as it receives each piece in time, however long all of them take, and however
// long the handler has taken before.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	s := &Server{cfg: Config{WriteTimeout: 10 * time.Second}}
	body := make([]byte, 5*writePiece+1)
	for name, c := range map[string]struct {
		takes time.Duration
		want  int // the received bytes
		err   error
	}{
		"steady":   {9 * time.Second, len(body), nil},
		"too slow": {11 * time.Second, 0, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := &slow{ResponseRecorder: httptest.NewRecorder(), takes: c.takes, deadline: time.Now()} // of the request before
				time.Sleep(time.Second)
				w := s.receive(client, httptest.NewRequest(http.MethodGet, "/", nil))
				if !client.deadline.IsZero() {
					t.Error("the deadline of the previous request is in force")
				}
				w.WriteHeader(http.StatusOK)
				if left := time.Until(client.deadline); left != 10*time.Second {
					t.Errorf("the client must receive the headers within %s, want 10s", left)
				}
				time.Sleep(time.Hour)
				n, err := w.Write(body)
				if n != c.want || client.Body.Len() != c.want || !errors.Is(err, c.err) {
					t.Errorf("Write = %d, %v, and the client has %d bytes; want %d, %v", n, err, client.Body.Len(), c.want, c.err)
				}
			})
		})
	}
}

// The id that a client gives its request is kept if it is short and simple, else the request gets a new one.
func TestRequestIDs(t *testing.T) {
	t.Parallel()
	s := &Server{}
	long := strings.Repeat("x", 64)
	for id, keeps := range map[string]bool{"": false, "Az09_.-": true, long: true, long + "x": false, "a b": false, "a\nb": false, "ä": false, "a/b": false} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set(exchange.HeaderRequestID, id)
		got := s.receive(httptest.NewRecorder(), r).Header().Get(exchange.HeaderRequestID)
		if got == "" || (got == id) != keeps {
			t.Errorf("the request with id %q has id %q", id, got)
		}
	}
}

// The size of a request includes its URL, and the names and the values of its headers.
func TestHeaderBytes(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/1234", nil)
	r.Header = http.Header{"Abc": {"de", "f"}, "G": {"h"}}
	if got, want := headerBytes(r), 5+5+4+2; got != want {
		t.Errorf("headerBytes = %d, want %d", got, want)
	}
}
