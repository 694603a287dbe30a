package service

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/hookin"
	"github.com/turnpike-dev/turnpike/internal/policy"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// limited is a gateway with hooks, on the clock of a synctest bubble.
type limited struct {
	*testing.T

	*Service
	author access.Caller
	sent   int
}

func newLimited(t *testing.T) *limited {
	t.Helper()
	s, err := New(memstore.New(memstore.Config{Now: time.Now}), membus.New(), Config{
		Known: agent.Known{Providers: model.BuiltinSpecs()}, Prefix: "turnpike", Tenant: "default", MaxBody: 1 << 20, RedeliveryDelay: time.Minute,
		Random: rand.Reader, Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
		Secret: func(string, string, policy.Policy) (string, error) { return "a secret", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	l := &limited{T: t, Service: s, author: access.Caller{Principal: access.Anonymous(), Tenant: "default", Roles: access.Roles()}}
	if _, err := s.Agents.Put(t.Context(), l.author, "a", []byte("name: a\nmodel: {provider: scripted, responses: [{text: done}]}\n")); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *limited) put(perMinute int) {
	l.Helper()
	settings := api.HookSettings{Verify: "github", Secret: api.SecretReferences{"secret://S"}, Run: &api.HookRun{Agent: "a"}, MaxPerMinute: perMinute}
	if _, _, err := l.Hooks.Put(l.Context(), l.author, "h", settings); err != nil {
		l.Fatal(err)
	}
}

// deliver sends the next delivery, and returns 0 if it was accepted, else the seconds in Retry-After.
func (l *limited) deliver(hook string) int {
	l.Helper()
	l.sent++
	body := []byte(`{"n": 1}`)
	mac := hmac.New(sha256.New, []byte("a secret"))
	mac.Write(body)
	header := http.Header{"X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(mac.Sum(nil))}, "X-Github-Delivery": {fmt.Sprint(l.sent)}, "X-Github-Event": {"issues"}, "Content-Type": {"application/json"}}
	_, err := l.Hooks.Deliver(l.Context(), Arrival{Hook: hook, Delivery: hookin.Delivery{Body: bytes.Clone(body), Header: header, At: time.Now()}})
	p, refused := errors.AsType[*api.Problem](err)
	switch {
	case err == nil:
		return 0
	case refused && p.Code == api.CodeTooManyDeliveries && p.RetryAfter > 0:
		return p.RetryAfter
	case refused && p.Code == api.CodeUnauthenticated && hook != "h":
		return 0
	}
	l.Fatalf("delivery: %v", err)
	return 0
}

// want sends a delivery, which must be accepted if after is 0, or else refused with that Retry-After.
func (l *limited) want(after int) {
	l.Helper()
	if got := l.deliver("h"); got != after {
		l.Errorf("at %s Retry-After is %d, want %d; 0 means accepted", time.Since(began), got, after)
	}
}

// Retry-After of a refused delivery is the time until the hook accepts one, in whole seconds: one that comes then is
// accepted, and one that comes before is not.
func TestHookRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimited(t)
		l.put(2)
		l.want(0)
		time.Sleep(20 * time.Second)
		l.want(0)
		l.want(40)
		time.Sleep(39*time.Second + 500*time.Millisecond)
		l.want(1)
		time.Sleep(500 * time.Millisecond)
		l.want(0)
		l.want(20)
		time.Sleep(20 * time.Second)
		l.want(0)
		l.want(40)
	})
}

// A hook accepts at most max_per_minute deliveries in any 60 seconds, the first ones included, and that many again after
// a minute. Other settings, or deliveries to unknown hooks, do not change what counts.
func TestHookRateInAnyMinute(t *testing.T) {
	t.Parallel()
	disturbances := map[string]func(l *limited, most int){
		"none":         func(*limited, int) {},
		"settings":     func(l *limited, most int) { l.put(most) },
		"other limits": func(l *limited, most int) { l.put(most + 1); l.deliver("x"); l.put(most) },
		"unknown hooks": func(l *limited, _ int) {
			for i := range maxFreshHooks + 1 {
				if l.deliver(fmt.Sprint("x", i)); l.Failed() {
					return
				}
			}
		},
	}
	for name, disturb := range disturbances {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const most, seconds = 7, 180
				l := newLimited(t)
				l.put(most)
				var accepted []int
				for second := range seconds {
					if second == 31 {
						disturb(l, most)
					}
					if l.deliver("h") == 0 {
						accepted = append(accepted, second)
					}
					time.Sleep(time.Second)
				}
				if len(accepted) != 3*most {
					t.Errorf("the hook accepted %d deliveries in 3 minutes, want %d: at %v", len(accepted), 3*most, accepted)
				}
				for i := most; i < len(accepted); i++ {
					if accepted[i]-accepted[i-most] < 60 {
						t.Errorf("the hook accepted %d deliveries within 60 seconds, at most %d are allowed: at %v", most+1, most, accepted)
					}
				}
			})
		})
	}
}

// A limiter keeps only the deliveries of the last minute.
func TestLimiterForgets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		for range 100 {
			for range maxRate / 10 {
				l.reserve(maxRate)
			}
			time.Sleep(6 * time.Second)
		}
		if n := cap(l.taken); n > 3*maxRate {
			t.Errorf("the limiter has memory for %d deliveries, at most %d count", n, maxRate)
		}
		time.Sleep(time.Minute)
		if l.allow(1); len(l.taken) != 1 || cap(l.taken) > 8 {
			t.Errorf("after an idle minute the limiter has %d deliveries, and memory for %d", len(l.taken), cap(l.taken))
		}
	})
}

// Deliveries that wait are spread: no minute has more than the limit, also after the limit was lowered.
func TestReservationsAreSpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		var at []time.Time
		reserve := func(limit, n int) {
			for range n {
				at = append(at, l.reserve(limit))
			}
		}
		most := func(limit int, times []time.Time) {
			t.Helper()
			for i := limit; i < len(times); i++ {
				if gap := times[i].Sub(times[i-limit]); gap < time.Minute {
					t.Errorf("delivery %d comes %s after the one that is %d before it, want a minute", i, gap, limit)
				}
			}
		}
		for range 4 {
			reserve(4, 1)
			time.Sleep(10 * time.Second)
		}
		reserve(4, 8)
		most(4, at)
		reserve(2, 4)
		most(2, at[len(at)-6:])
		for i := 1; i < len(at); i++ {
			if at[i].Before(at[i-1]) {
				t.Errorf("delivery %d is before the one reserved before it", i)
			}
		}
	})
}
