package chaos

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
)

// nonceMark is the placeholder for a number that differs in each answer.
const nonceMark = "nonce_here__"

// Answer is one answer that the model server began to give.
type Answer struct {
	At     time.Time
	Run    string
	Nonce  string
	Failed bool // it was an error, or its reader had left
}

// modelServer is the mock model server, with distinguishable answers and a log of them.
type modelServer struct {
	url  string
	mock *mockmodel.Server

	nonces atomic.Int64
	mu     sync.Mutex
	log    []Answer
}

func startModel(ctx context.Context) (*modelServer, error) {
	mock, err := mockmodel.New(scripts())
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &modelServer{url: "http://" + l.Addr().String() + "/v1", mock: mock}
	server := &http.Server{Handler: m, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(l) }() // ends with ctx
	return m, nil
}

// ServeHTTP answers after a delay, mostly a short one.
func (m *modelServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	run, _, _ := strings.Cut(r.Header.Get("X-Client-Request-Id"), "/")
	a := Answer{At: time.Now(), Run: run, Nonce: fmt.Sprintf("%0*d", len(nonceMark), m.nonces.Add(1))}
	out := &stamper{ResponseWriter: w, nonce: []byte(a.Nonce), status: http.StatusOK}
	finished := false
	defer func() {
		a.Failed = !finished || out.status != http.StatusOK || r.Context().Err() != nil
		m.mu.Lock()
		defer m.mu.Unlock()
		m.log = append(m.log, a)
	}()
	if !rig.Pause(r.Context(), 30*time.Millisecond+time.Duration(rand.ExpFloat64()*float64(120*time.Millisecond))) { //nolint:gosec // not a secret
		return
	}
	m.mock.ServeHTTP(out, r)
	finished = true
}

// answers returns the answers so far.
func (m *modelServer) answers() []Answer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Answer(nil), m.log...)
}

// stamper replaces the placeholder with the answer's nonce.
type stamper struct {
	http.ResponseWriter
	nonce  []byte
	status int
}

func (s *stamper) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *stamper) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

func (s *stamper) Write(b []byte) (int, error) {
	return s.ResponseWriter.Write(bytes.ReplaceAll(b, []byte(nonceMark), s.nonce))
}
