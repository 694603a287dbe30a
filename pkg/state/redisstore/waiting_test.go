package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
)

// wire stands for the connection to a server. Each message waits for its answer: the result of all its commands.
type wire struct {
	mu      sync.Mutex
	sent    []string // the commands of each message
	answers chan error
}

func (w *wire) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *wire) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return w.exchange(cmd) }
}

func (w *wire) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error { return w.exchange(cmds...) }
}

func (w *wire) exchange(cmds ...redis.Cmder) error {
	var names []string
	for _, cmd := range cmds {
		names = append(names, cmd.Name())
	}
	w.mu.Lock()
	w.sent = append(w.sent, strings.Join(names, " "))
	w.mu.Unlock()
	err := <-w.answers
	for _, cmd := range cmds {
		cmd.SetErr(err)
	}
	return err
}

// waiting drives a batcher.
type waiting struct {
	t       *testing.T
	wire    *wire
	batcher *batcher
	mu      sync.Mutex
	ended   []string // the calls that have ended, with their errors
}

// bubble calls f in a bubble of synctest.
func bubble(t *testing.T, f func(t *testing.T, w *waiting)) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // outside: it resolves names
	t.Cleanup(func() { _ = rdb.Close() })
	synctest.Test(t, func(t *testing.T) {
		w := &waiting{t: t, wire: &wire{answers: make(chan error)}}
		rdb.AddHook(w.wire)
		w.batcher = newBatcher(rdb, confirm{}, "")
		defer w.batcher.wait()
		defer w.batcher.close()
		f(t, w)
	})
}

// call makes a call and waits until it is sent or waits itself.
func (w *waiting) call(ctx context.Context, name string, k kind) {
	go func() {
		_, err := w.batcher.do(ctx, k, name)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.ended = append(w.ended, fmt.Sprint(name, ": ", err))
	}()
	synctest.Wait()
}

// answer answers one message.
func (w *waiting) answer(err error) {
	w.wire.answers <- err
	synctest.Wait()
}

func (w *waiting) want(sent, ended []string) {
	w.t.Helper()
	if !slices.Equal(w.wire.sent, sent) {
		w.t.Errorf("the messages are %q, want %q", w.wire.sent, sent)
	}
	slices.Sort(w.ended)
	if !slices.Equal(w.ended, ended) {
		w.t.Errorf("the calls that have ended are %q, want %q", w.ended, ended)
	}
	w.wire.sent, w.ended = nil, nil
}

// If the server does not answer, the calls that wait fail without being sent. Those that come later are sent in their
// order: those that begin work last.
func TestWaitingCallsFail(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *waiting) {
		begin := kind{begins: true}
		w.call(t.Context(), "a", kind{})
		w.call(t.Context(), "b", kind{})
		for _, name := range []string{"c", "d", "e"} {
			w.call(t.Context(), name, kind{})
		}
		w.call(t.Context(), "f", begin)
		w.want([]string{"a", "b"}, nil)
		silence := errors.New("no answer")
		w.answer(silence)
		w.want(nil, []string{"a: no answer", "c: no answer", "d: no answer", "e: no answer", "f: no answer"})
		w.call(t.Context(), "g", kind{})
		w.want([]string{"g"}, nil)
		w.call(t.Context(), "h", begin)
		w.call(t.Context(), "i", kind{})
		w.call(t.Context(), "j", begin)
		w.call(t.Context(), "k", kind{})
		w.answer(nil)
		w.want([]string{"i k h j"}, []string{"b: <nil>"})
		w.call(t.Context(), "l", begin)
		w.call(t.Context(), "m", kind{})
		w.answer(nil)
		w.want([]string{"m l"}, []string{"g: <nil>"})
		w.answer(nil)
		w.answer(nil)
		w.want(nil, []string{"h: <nil>", "i: <nil>", "j: <nil>", "k: <nil>", "l: <nil>", "m: <nil>"})
	})
}

// An error reply of the server, and a caller that gives up, are of no concern to the calls that wait.
func TestWaitingCallsAreSent(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, w *waiting) {
		ctx, leave := context.WithCancel(t.Context())
		gone, depart := context.WithCancel(t.Context())
		w.call(ctx, "a", kind{})
		w.call(t.Context(), "b", kind{})
		w.call(t.Context(), "c", kind{})
		w.call(gone, "d", kind{})
		depart()
		leave()
		synctest.Wait()
		w.want([]string{"a", "b"}, []string{"d: context canceled"})
		w.answer(context.Canceled) // of the first
		w.want([]string{"c"}, []string{"a: context canceled"})
		w.call(t.Context(), "e", kind{})
		w.answer(refusal("LOADING"))
		w.want([]string{"e"}, []string{"b: LOADING"})
		w.answer(nil)
		w.answer(nil)
		w.want(nil, []string{"c: <nil>", "e: <nil>"})
	})
}

// refusal is an error reply of a server.
type refusal string

func (r refusal) Error() string { return string(r) }

func (refusal) RedisError() {}
