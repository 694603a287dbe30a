package mcptool

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/guard"
	"github.com/turnpike-dev/turnpike/internal/secret"
	"github.com/turnpike-dev/turnpike/internal/tool/confine"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
)

// pool has the sessions of one tenant with one server and one set of secrets.
type pool struct {
	slots chan struct{} // has an element for each call with a session
	users int           // number of calls that have a session or wait for one
	idle  []*session    // the one used last at the end
}

// target is a server with its secrets filled in.
type target struct {
	Server

	secrets *secret.Redactor
}

// lease is the exclusive use of a session by one call.
type lease struct {
	c       *Caller
	key     string
	pool    *pool
	session *session
	target  target
}

// fill replaces the references to secrets in a server.
func fill(s Server, resolve Resolve) (target, error) {
	t := target{Server: s}
	var secrets []string
	replace := func(values map[string]string) (map[string]string, error) {
		out := maps.Clone(values)
		for _, name := range slices.Sorted(maps.Keys(values)) {
			var failed error
			out[name] = toolspec.SecretRef.ReplaceAllStringFunc(values[name], func(ref string) string {
				v, err := resolve(strings.TrimPrefix(ref, "secret://"), toolspec.HostPort(s.URL))
				failed = cmp.Or(failed, err)
				secrets = append(secrets, v)
				return v
			})
			if failed != nil {
				return nil, failed
			}
		}
		return out, nil
	}
	var err error
	if t.Env, err = replace(s.Env); err != nil {
		return target{}, err
	}
	if t.Headers, err = replace(s.Headers); err != nil {
		return target{}, err
	}
	t.secrets = secret.New(secrets...)
	return t, nil
}

// key identifies sessions that are interchangeable for a tenant: a server may keep what a call has left in its session,
// and calls of one tenant must not use up the sessions of another. With a new value of a secret, the key differs.
func (t target) key(tenant string) string {
	h := sha256.New()
	for _, part := range append([]string{tenant, t.URL}, t.Command...) {
		fmt.Fprintf(h, "%d:%s,", len(part), part)
	}
	for _, values := range []map[string]string{t.Env, t.Headers} {
		for _, name := range slices.Sorted(maps.Keys(values)) {
			fmt.Fprintf(h, "%s=%d:%s,", name, len(values[name]), values[name])
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// acquire returns a session of a tenant with a server for exclusive use, a new one if none is idle. While the maximum
// number of these sessions is in use, it waits until one is free or ctx ends. The caller must call release, unless
// there is an error.
func (c *Caller) acquire(ctx context.Context, tenant string, s Server, resolve Resolve) (*lease, error) {
	t, err := fill(s, resolve)
	if err != nil {
		return nil, err
	}
	l := &lease{c: c, key: t.key(tenant), target: t}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, errors.New("the worker is shutting down")
	}
	l.pool = c.pools[l.key]
	if l.pool == nil {
		size := c.cfg.Sessions
		if s.URL == "" {
			size = c.cfg.Processes
		}
		l.pool = &pool{slots: make(chan struct{}, size)}
		c.pools[l.key] = l.pool
	}
	l.pool.users++
	c.closing.Add(1)
	c.mu.Unlock()

	select {
	case l.pool.slots <- struct{}{}:
	case <-ctx.Done():
		l.leave()
		return nil, fmt.Errorf("MCP server %q was not called, since this tenant has %d calls of it in flight at this worker, the maximum (%w)", s, cap(l.pool.slots), context.Cause(ctx))
	}
	if l.session = l.reuse(); l.session != nil {
		return l, nil
	}
	l.session, err = c.connect(ctx, t)
	if err != nil {
		<-l.pool.slots
		l.leave()
		if errors.Is(err, confine.ErrRefused) { // its text is for the operator
			return nil, fmt.Errorf("MCP server %q cannot be used: this worker cannot confine its program, so the operator must set up confinement (turnpike doctor shows what is missing)", s)
		}
		unusable := errors.New(t.secrets.Redact(fmt.Sprintf("MCP server %q cannot be used: %v", s, err)))
		if _, ok := errors.AsType[faultError](err); ok || guard.Refusal(err) != nil {
			return nil, unusable // with its remedy
		}
		return nil, unreachableError{unusable}
	}
	return l, nil
}

// unreachableError reports that no session with a server could begin, without a remedy.
type unreachableError struct{ error }

// reuse removes an idle session that is alive from the pool and returns it, or nil.
func (l *lease) reuse() *session {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	for len(l.pool.idle) > 0 {
		last := len(l.pool.idle) - 1
		s := l.pool.idle[last]
		l.pool.idle = l.pool.idle[:last]
		s.timer.Stop()
		if s.alive() {
			return s
		}
		l.c.closing.Go(s.close)
	}
	return nil
}

// release returns the session to the pool. It closes a session that is broken, has ended, or may still be executing a
// call, and any session of a closed Caller. The caller must not use the lease afterwards.
func (l *lease) release(broken bool) {
	l.c.mu.Lock()
	if s := l.session; broken || s.spent.Load() || l.c.closed || !s.alive() {
		l.c.closing.Go(s.close)
	} else {
		l.pool.idle = append(l.pool.idle, s)
		s.timer = afterIdle(l, s)
	}
	l.c.mu.Unlock()
	<-l.pool.slots
	l.leave()
}

// leave records that a call no longer uses the pool.
func (l *lease) leave() {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.pool.users--
	l.c.tidy(l.key, l.pool)
	l.c.closing.Done()
}

// tidy removes a pool that nothing uses. The caller holds c.mu.
func (c *Caller) tidy(key string, p *pool) {
	if p.users == 0 && len(p.idle) == 0 && c.pools[key] == p {
		delete(c.pools, key)
	}
}
