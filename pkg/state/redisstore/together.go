package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

const (
	// roundTrips is how many messages with scripts of turns are under way at once: one
	// that the server works at, one that is read or written here.
	roundTrips = 2

	// together bounds the scripts of one message: who waits for the first waits for
	// the last, too.
	together = 64
)

// errClosed is what calls get once the store is closed.
var errClosed = errors.New("store is closed")

// joint sends scripts that are called at the same time to the server as one message,
// and reads their replies as one: the way there and back costs more than most scripts.
// A call that is alone waits for nobody.
//
// What is sent may be sent again, and all of a message is, even if some replies had
// come: only for scripts that may be repeated after they were answered.
type joint struct {
	rdb *redis.Client

	mu     sync.Mutex
	some   sync.Cond // calls are waiting, or closed
	calls  []*call
	closed bool
	all    sync.WaitGroup
}

// call is one script on its way.
type call struct {
	ctx  context.Context //nolint:containedctx // of the caller, who waits
	cmd  *redis.Cmd
	done chan struct{}
}

// newJoint returns a joint, or nil for servers whose scripts go
// different ways: a node that does not answer must not hold up the others.
func newJoint(rdb redis.UniversalClient) *joint {
	one, ok := rdb.(*redis.Client)
	if !ok {
		return nil
	}
	j := &joint{rdb: one}
	j.some.L = &j.mu
	for range roundTrips {
		j.all.Go(j.run)
	}
	return j
}

// call calls a script. An error of the server's own means that the script is to be
// called by itself.
func (j *joint) call(ctx context.Context, script *redis.Script, keys []string, args []any) ([]any, error) {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, "evalsha", script.Hash(), len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	c := &call{ctx, redis.NewCmd(ctx, append(all, args...)...), make(chan struct{})}
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil, errClosed
	}
	j.calls = append(j.calls, c)
	j.mu.Unlock()
	j.some.Signal()
	select {
	case <-c.done:
		return c.cmd.Slice()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run sends what waits, until close.
func (j *joint) run() {
	var batch []*call
	for {
		j.mu.Lock()
		for len(j.calls) == 0 && !j.closed {
			j.some.Wait()
		}
		n := min(len(j.calls), together)
		if n == 0 {
			j.mu.Unlock()
			return
		}
		batch = append(batch[:0], j.calls[:n]...)
		j.calls = slices.Delete(j.calls, 0, n)
		j.mu.Unlock()
		j.send(batch)
		clear(batch)
	}
}

func (j *joint) send(batch []*call) {
	pipe := j.rdb.Pipeline()
	for _, c := range batch {
		if c.ctx.Err() == nil {
			_ = pipe.Process(context.Background(), c.cmd)
		}
	}
	_, _ = pipe.Exec(context.Background()) // each call has its own error
	for _, c := range batch {
		close(c.done)
	}
}

// close refuses calls from now on. What waits is still sent; wait returns when that is
// done.
func (j *joint) close() {
	if j == nil {
		return
	}
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	j.some.Broadcast()
}

func (j *joint) wait() {
	if j != nil {
		j.all.Wait()
	}
}
