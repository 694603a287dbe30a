package inprocess_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-dev/turnpike/internal/inprocess"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(t *testing.T, ctx context.Context, tr *inprocess.Transport, path string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://here"+path, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	return (&http.Client{Transport: tr}).Do(r)
}

// The handler gets the request, and the caller the answer.
func TestAnswer(t *testing.T) {
	t.Parallel()
	tr := inprocess.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Header().Set("X-Seen", fmt.Sprint(r.Host, " ", r.RequestURI))
		w.WriteHeader(http.StatusTeapot)
		w.Header().Set("X-Late", "1")
		_, _ = w.Write(b)
	}))
	defer tr.Close()
	resp, err := get(t, t.Context(), tr, "/a?b=c")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || string(b) != "body" || resp.StatusCode != http.StatusTeapot || resp.Header.Get("X-Seen") != "here /a?b=c" || resp.Header.Get("X-Late") != "" {
		t.Errorf("%d %v %q %v", resp.StatusCode, resp.Header, b, err)
	}
}

// What a handler has written can be read before it returns, and the handler ends when its caller
// closes the body.
func TestStream(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	tr := inprocess.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, "first\n")
		<-r.Context().Done()
		_, err := io.WriteString(w, "second\n")
		ended <- err
	}))
	defer tr.Close()
	resp, err := get(t, t.Context(), tr, "/")
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "first\n" {
		t.Errorf("read %q, %v", line, err)
	}
	_ = resp.Body.Close()
	if err := <-ended; err == nil {
		t.Error("the handler writes to a closed body")
	}
}

// A request ends with its context, before and after its header.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	tr := inprocess.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/header" {
			w.WriteHeader(http.StatusOK)
		}
		<-r.Context().Done()
	}))
	defer tr.Close()
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := get(t, ctx, tr, "/header")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cancel()
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
		t.Errorf("read: %v, want canceled", err)
	}
	resp, err = get(t, ctx, tr, "/")
	if err == nil {
		resp.Body.Close()
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("request: %v, want canceled", err)
	}
}

// Close ends requests, waits for handlers, and refuses later requests.
func TestClose(t *testing.T) {
	t.Parallel()
	returned := false
	tr := inprocess.New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		<-r.Context().Done()
		returned = true
	}))
	resp, err := get(t, t.Context(), tr, "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	tr.Close()
	if !returned {
		t.Error("the handler still runs")
	}
	if _, err := io.ReadAll(resp.Body); !errors.Is(err, inprocess.ErrClosed) {
		t.Errorf("read: %v, want ErrClosed", err)
	}
	resp, err = get(t, t.Context(), tr, "/")
	if err == nil {
		resp.Body.Close()
	}
	if !errors.Is(err, inprocess.ErrClosed) {
		t.Errorf("request: %v, want ErrClosed", err)
	}
}

// Half an answer of a handler that panics is an error.
func TestPanic(t *testing.T) {
	t.Parallel()
	tr := inprocess.New(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		panic(http.ErrAbortHandler)
	}))
	defer tr.Close()
	resp, err := get(t, t.Context(), tr, "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read %q, %v, want an unexpected end", b, err)
	}
}
