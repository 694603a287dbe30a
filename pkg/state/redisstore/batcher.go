package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

const (
	// roundTrips is the maximum number of pipelines in flight: one that the server executes, one
	// that is read or written here.
	roundTrips = 2

	// batchCalls is the maximum number of calls in one pipeline, and batchBytes that of their
	// bytes: the first call waits until the last one is done.
	batchCalls = 64
	batchBytes = 1 << 20
)

// errClosed is the error of calls after the store is closed.
var errClosed = errors.New("the store is closed, since this process is shutting down: retry when it runs again")

// batcher pipelines scripts: it sends concurrent calls as one pipeline, and reads the replies
// together, because a round trip costs more than most scripts. A single call does not wait.
//
// A pipeline may be sent again as a whole, even if some of its replies had arrived. So batch only
// calls that may be repeated after they were answered.
//
// Calls that begin work are sent after all others that wait: new work would only add to the work that waits, and a
// crash repeats the work whose end is not stored yet.
type batcher struct {
	rdb     *redis.Client
	confirm confirm
	marker  string

	mu       sync.Mutex
	some     sync.Cond // calls are waiting and may be sent, or closed
	calls    []*call
	ends     int // the first calls, which do not begin work
	inFlight int // pipelines in flight
	closed   bool
	all      sync.WaitGroup
}

// call is one command in flight.
type call struct {
	ctx     context.Context //nolint:containedctx // of the caller, which waits
	cmd     *redis.Cmd
	size    int
	confirm bool // replicas must confirm its write
	done    chan struct{}
}

// newBatcher returns a batcher, or nil for a cluster: a node that does not answer must not delay
// calls to the others.
func newBatcher(rdb redis.UniversalClient, c confirm, marker string) *batcher {
	one, ok := rdb.(*redis.Client)
	if !ok {
		return nil
	}
	b := &batcher{rdb: one, confirm: c, marker: marker}
	b.some.L = &b.mu
	for range roundTrips {
		b.all.Go(b.run)
	}
	return b
}

// kind says how a batcher treats a call.
type kind struct {
	promise bool // replicas must confirm the write, if the deployment has Config.Confirm
	begins  bool // the call begins work
}

// do sends a command and returns its reply. If the server answered with an error (see refused), the caller
// must send the command alone. If ctx ends first, the command may still be executed. If the server does not answer a
// call before this one, do may return the error of that one without sending the command. After close, do returns
// errClosed.
func (b *batcher) do(ctx context.Context, k kind, args ...any) (any, error) {
	cmd := redis.NewCmd(ctx, args...)
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return nil, errClosed
	}
	if b.inFlight == 0 && len(b.calls) == 0 {
		// No other calls: a sender would only cost two goroutine switches.
		b.inFlight++
		b.mu.Unlock()
		err := b.alone(ctx, k.promise, cmd)
		if ctx.Err() != nil || refused(err) {
			err = nil
		}
		b.sent(err)
		return cmd.Result()
	}
	c := &call{ctx, cmd, size(args), k.promise && b.confirm.on(), make(chan struct{})}
	if k.begins {
		b.calls = append(b.calls, c)
	} else {
		b.calls = slices.Insert(b.calls, b.ends, c)
		b.ends++
	}
	b.mu.Unlock()
	b.some.Signal()
	select {
	case <-c.done:
		return cmd.Result()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// alone sends a command in its own message. The error means that the server does not answer.
func (b *batcher) alone(ctx context.Context, promise bool, cmd *redis.Cmd) error {
	if !promise || !b.confirm.on() {
		return b.rdb.Process(ctx, cmd)
	}
	pipe := b.rdb.Pipeline()
	_ = pipe.Process(ctx, cmd)
	question := b.confirm.ask(ctx, pipe, b.marker)
	_, _ = pipe.Exec(ctx) // each command has its own error
	err := cmd.Err()
	if err == nil {
		cmd.SetErr(b.confirm.verdict(question))
	}
	return err
}

// size returns the total length of the variable-length arguments.
func size(args []any) int {
	n := 0
	for _, a := range args {
		switch v := a.(type) {
		case string:
			n += len(v)
		case *string:
			n += len(*v)
		case []byte:
			n += len(v)
		}
	}
	return n
}

// fit returns the number of calls that fit into one pipeline: at least one if there is one.
func fit(calls []*call) int {
	n, bytes := 0, 0
	for n < min(len(calls), batchCalls) {
		if bytes += calls[n].size; n > 0 && bytes > batchBytes {
			break
		}
		n++
	}
	return n
}

// run sends waiting calls, until close.
func (b *batcher) run() {
	var batch []*call
	for {
		b.mu.Lock()
		for (len(b.calls) == 0 || b.inFlight >= roundTrips) && !b.closed {
			b.some.Wait()
		}
		n := fit(b.calls)
		if n == 0 {
			b.mu.Unlock()
			return
		}
		batch = append(batch[:0], b.calls[:n]...)
		b.calls = slices.Delete(b.calls, 0, n)
		b.ends = max(0, b.ends-n)
		b.inFlight++
		b.mu.Unlock()
		b.sent(b.send(batch))
		clear(batch)
	}
}

// send sends one pipeline. The error means that the server does not answer, despite the client's
// retries.
func (b *batcher) send(batch []*call) error {
	pipe := b.rdb.Pipeline()
	ask := false
	for _, c := range batch {
		if err := c.ctx.Err(); err != nil {
			c.cmd.SetErr(err) // the caller has left
			continue
		}
		ask = ask || c.confirm
		_ = pipe.Process(context.Background(), c.cmd)
	}
	var question asked
	if ask {
		question = b.confirm.ask(context.Background(), pipe, b.marker)
	}
	sent, _ := pipe.Exec(context.Background()) // each call has its own error
	if ask {
		b.judge(batch, b.confirm.verdict(question))
	}
	for _, c := range batch {
		close(c.done)
	}
	if len(sent) == 0 {
		return nil
	}
	// An error of the connection applies to every call after it.
	if err := sent[len(sent)-1].Err(); !refused(err) {
		return err
	}
	return nil
}

// judge sets the error of those calls of a pipeline whose writes were not confirmed.
func (b *batcher) judge(batch []*call, unconfirmed error) {
	for _, c := range batch {
		if unconfirmed != nil && c.confirm && c.cmd.Err() == nil {
			c.cmd.SetErr(unconfirmed)
		}
	}
}

// sent records that a pipeline is no longer in flight. If it failed, sent fails all waiting calls:
// otherwise each pipeline in turn would wait as long for a server that does not answer.
func (b *batcher) sent(err error) {
	b.mu.Lock()
	b.inFlight--
	var failed []*call
	if err != nil {
		failed, b.calls, b.ends = b.calls, nil, 0
	}
	waiting := len(b.calls) > 0
	b.mu.Unlock()
	if waiting {
		b.some.Signal()
	}
	for _, c := range failed {
		c.cmd.SetErr(err)
		close(c.done)
	}
}

// close refuses calls from now on. Waiting calls are still sent; wait returns when they are done.
func (b *batcher) close() {
	if b == nil {
		return
	}
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.some.Broadcast()
}

func (b *batcher) wait() {
	if b != nil {
		b.all.Wait()
	}
}
