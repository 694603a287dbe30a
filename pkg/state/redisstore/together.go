package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

const (
	// roundTrips is how many messages are under way at once: one
	// that the server works at, one that is read or written here.
	roundTrips = 2

	// together bounds the calls of one message, and togetherBytes what they say: who
	// waits for the first waits for the last, too.
	together      = 64
	togetherBytes = 1 << 20
)

// errClosed is what calls get once the store is closed.
var errClosed = errors.New("store is closed")

// joint sends what is asked of the server at the same time as one message, and reads
// the replies as one: the way there and back costs more than most scripts. A call that is
// alone waits for nobody.
//
// What is sent may be sent again, and all of a message is, even if some replies had
// come: only for what may be repeated after it was answered.
type joint struct {
	rdb *redis.Client

	mu     sync.Mutex
	some   sync.Cond // calls are waiting and may be sent, or closed
	calls  []*call
	under  int // messages under way
	closed bool
	all    sync.WaitGroup
}

// call is one command on its way.
type call struct {
	ctx  context.Context //nolint:containedctx // of the caller, who waits
	cmd  *redis.Cmd
	size int
	done chan struct{}
}

// newJoint returns a joint, or nil for a cluster: a node that does not answer must not
// hold up the others.
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

// do sends a command and returns its reply. An error that is the server's own means that
// the command is to be sent alone.
func (j *joint) do(ctx context.Context, args ...any) (any, error) {
	cmd := redis.NewCmd(ctx, args...)
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil, errClosed
	}
	if j.under == 0 && len(j.calls) == 0 {
		// Nobody to travel with: a sender would only cost two changes of goroutines.
		j.under++
		j.mu.Unlock()
		err := j.rdb.Process(ctx, cmd)
		if ctx.Err() != nil || refused(err) {
			err = nil
		}
		j.sent(err)
		return cmd.Result()
	}
	c := &call{ctx, cmd, size(args), make(chan struct{})}
	j.calls = append(j.calls, c)
	j.mu.Unlock()
	j.some.Signal()
	select {
	case <-c.done:
		return cmd.Result()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// size is how long the arguments are that may be long.
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

// fit is how many of the calls go into one message: at least one if there is one.
func fit(calls []*call) int {
	n, bytes := 0, 0
	for n < min(len(calls), together) {
		if bytes += calls[n].size; n > 0 && bytes > togetherBytes {
			break
		}
		n++
	}
	return n
}

// run sends what waits, until close.
func (j *joint) run() {
	var batch []*call
	for {
		j.mu.Lock()
		for (len(j.calls) == 0 || j.under >= roundTrips) && !j.closed {
			j.some.Wait()
		}
		n := fit(j.calls)
		if n == 0 {
			j.mu.Unlock()
			return
		}
		batch = append(batch[:0], j.calls[:n]...)
		j.calls = slices.Delete(j.calls, 0, n)
		j.under++
		j.mu.Unlock()
		j.sent(j.send(batch))
		clear(batch)
	}
}

// send sends one message. The error says that the server does not answer, however often
// the client has tried.
func (j *joint) send(batch []*call) error {
	pipe := j.rdb.Pipeline()
	for _, c := range batch {
		if err := c.ctx.Err(); err != nil {
			c.cmd.SetErr(err) // who asked has left
			continue
		}
		_ = pipe.Process(context.Background(), c.cmd)
	}
	sent, _ := pipe.Exec(context.Background()) // each call has its own error
	for _, c := range batch {
		close(c.done)
	}
	if len(sent) == 0 {
		return nil
	}
	// What a broken connection costs one call, it costs all behind it.
	if err := sent[len(sent)-1].Err(); !refused(err) {
		return err
	}
	return nil
}

// sent notes that a message is no longer under way. One that has failed ends what waits:
// one after the other, each message would wait for a server that does not answer as long
// as the one before.
func (j *joint) sent(err error) {
	j.mu.Lock()
	j.under--
	var failed []*call
	if err != nil {
		failed, j.calls = j.calls, nil
	}
	waiting := len(j.calls) > 0
	j.mu.Unlock()
	if waiting {
		j.some.Signal()
	}
	for _, c := range failed {
		c.cmd.SetErr(err)
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
