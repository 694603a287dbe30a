package model

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// BreakerPolicy configures a breaker: it opens after Failures consecutive failures, for Rest. Zero fields mean 5
// failures and 15 seconds.
type BreakerPolicy struct {
	Failures int
	Rest     time.Duration
}

// Breakers keep a worker from calling models that do not answer (A17). There is one breaker for each name, which stands
// for a tenant, a provider, an address and a model. Breakers are safe for concurrent use.
type Breakers struct {
	policy BreakerPolicy

	mu     sync.Mutex
	byName map[string]*breaker
}

type breaker struct {
	failures int
	openTill time.Time
	trying   bool // a call is testing whether the model answers again
}

// NewBreakers returns breakers that are all closed.
func NewBreakers(p BreakerPolicy) *Breakers {
	if p.Failures == 0 {
		p.Failures = 5
	}
	if p.Rest == 0 {
		p.Rest = 15 * time.Second
	}
	return &Breakers{policy: p, byName: map[string]*breaker{}}
}

// ErrTrial is wrapped by the error of Allow while another call tests whether the model answers again. It does not
// mean that the model has failed again: a good answer also takes time.
var ErrTrial = errors.New("this call was not made, since another call is testing whether the model answers again: retry after that call")

// Allow returns nil if the caller may make a call; the caller must then report its outcome to Done. Otherwise it
// returns an error of class Overloaded with a time to wait. After a rest Allow permits one call, as a test; it refuses
// others until Done has an outcome, of that call or of one from before the rest.
func (b *Breakers) Allow(name string) *Error {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.byName[name]
	if c == nil || c.openTill.IsZero() {
		return nil
	}
	left := time.Until(c.openTill)
	if left <= 0 && !c.trying {
		c.trying = true
		return nil
	}
	if left <= 0 {
		return &Error{
			Class: Overloaded, Provider: name, RetryAfter: b.policy.Rest / 3,
			Message: "circuit breaker open: " + ErrTrial.Error(), Err: ErrTrial,
		}
	}
	return &Error{
		Class: Overloaded, Provider: name, RetryAfter: max(left, time.Second),
		Message: fmt.Sprintf("the call was not made, since the last %d calls to this model failed (circuit breaker open): check the provider's status", c.failures),
	}
}

// Done records the outcome of a call. Overload, transport errors and timeouts count as failures: as many in a row as
// the policy says open the breaker, and during a test one does. A cancelled call counts neither way; after a rest
// another call may then test. Any other outcome closes the breaker, including a rate limit, which has its own delay.
func (b *Breakers) Done(name string, err *Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.byName[name]
	if err == nil || err.Class != Overloaded && err.Class != Transport && err.Class != Timeout {
		if c != nil && (err == nil || err.Class != Cancelled) {
			delete(b.byName, name)
		} else if c != nil {
			c.trying = false // a call that was cut short proves nothing
		}
		return
	}
	if c == nil {
		c = &breaker{}
		b.byName[name] = c
	}
	c.failures++
	if c.failures >= b.policy.Failures {
		c.openTill = time.Now().Add(b.policy.Rest)
	}
	c.trying = false
}
