package redisstore

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Batches stay within the size limit, and none is empty because its first call is larger than the limit.
func TestFit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sizes []int
		want  int
	}{
		{nil, 0},
		{[]int{10, 10, 10}, 3},
		{make([]int, 100), batchCalls},
		{[]int{batchBytes / 2, batchBytes / 2, 1}, 2},
		{[]int{batchBytes + 1, 1}, 1},
		{[]int{1, batchBytes}, 1},
	} {
		calls := make([]*call, len(c.sizes))
		for i, n := range c.sizes {
			calls[i] = &call{size: n}
		}
		if got := fit(calls); got != c.want {
			t.Errorf("fit of %d calls = %d, want %d", len(calls), got, c.want)
		}
	}
	if got := size([]any{"abc", []byte("de"), 7, int64(7)}); got != 5 {
		t.Errorf("size = %d, want 5", got)
	}
}

// A call whose caller has left before it was sent has an error: without one it would look executed, with an empty reply.
func TestCallsOfCallersThatLeft(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	leave()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nothing is sent to it
	t.Cleanup(func() { _ = rdb.Close() })
	c := &call{ctx: ctx, cmd: redis.NewCmd(ctx, "ping"), done: make(chan struct{})}
	if err := (&batcher{rdb: rdb}).send([]*call{c}); err != nil {
		t.Errorf("send = %v", err)
	}
	<-c.done
	if _, err := c.cmd.Result(); !errors.Is(err, context.Canceled) {
		t.Errorf("the call has the error %v, want context cancelled", err)
	}
}

// Only the calls that need a confirmation get the error of a missing one, unless they have their own.
func TestUnconfirmedCalls(t *testing.T) {
	t.Parallel()
	unconfirmed, refused := errors.New("unconfirmed"), errors.New("refused")
	for _, c := range []struct {
		confirm         bool
		own, said, want error
	}{
		{true, nil, unconfirmed, unconfirmed}, {false, nil, unconfirmed, nil}, {true, refused, unconfirmed, refused}, {true, nil, nil, nil},
	} {
		one := &call{cmd: redis.NewCmd(t.Context(), "set"), confirm: c.confirm}
		one.cmd.SetErr(c.own)
		(&batcher{}).judge([]*call{one}, c.said)
		if got := one.cmd.Err(); !errors.Is(got, c.want) || c.want == nil && got != nil {
			t.Errorf("to be confirmed %t, own error %v: %v, want %v", c.confirm, c.own, got, c.want)
		}
	}
}
