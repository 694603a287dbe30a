package service

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// firings is a store with an agent, and the gateways that fire schedules, on the clock of a synctest bubble.
type firings struct {
	*testing.T

	store   state.Store
	back    time.Duration // how far the store's clock is behind
	author  access.Caller
	current *Service
}

func newFirings(t *testing.T) *firings {
	t.Helper()
	f := &firings{T: t, author: access.Caller{Principal: access.Anonymous(), Tenant: "default", Roles: access.Roles()}}
	f.store = memstore.New(memstore.Config{Now: func() time.Time { return time.Now().Add(-f.back) }})
	f.current = f.gateway(f.store)
	if _, err := f.current.Agents.Put(t.Context(), f.author, "a", []byte("name: a\nmodel: {provider: scripted, responses: [{text: done}]}\n")); err != nil {
		t.Fatal(err)
	}
	return f
}

// gateway returns the service of a gateway over a store.
func (f *firings) gateway(store state.Store) *Service {
	f.Helper()
	s, err := New(store, membus.New(), Config{
		Known: agent.Known{Providers: model.BuiltinSpecs()}, Prefix: "turnpike", Tenant: "default", MaxBody: 1 << 20, RedeliveryDelay: time.Minute,
		Random: rand.Reader, Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(s.Close)
	return s
}

func (f *firings) put(settings api.ScheduleSettings) api.Schedule {
	f.Helper()
	settings.Run.Agent, settings.Run.Input = "a", api.Text("go")
	out, _, err := f.current.Schedules.Put(f.Context(), f.author, "s", settings)
	if err != nil {
		f.Fatal(err)
	}
	return out
}

func (f *firings) get() api.Schedule {
	f.Helper()
	out, err := f.current.Schedules.Get(f.Context(), f.author, "s")
	if err != nil {
		f.Fatal(err)
	}
	return out
}

// keep runs gateways for a duration.
func (f *firings) keep(d time.Duration, gateways ...*Service) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	var running sync.WaitGroup
	for _, g := range gateways {
		running.Go(func() { g.Schedules.Keep(ctx) })
	}
	time.Sleep(d) // the bubble's clock
	synctest.Wait()
	cancel()
	running.Wait()
}

// runs returns the runs by the instant that started them, and fails if two have the same.
func (f *firings) runs() map[string]state.State {
	f.Helper()
	page, err := f.store.List(f.Context(), state.Filter{Limit: 1000})
	if err != nil {
		f.Fatal(err)
	}
	out := map[string]state.State{}
	for _, st := range page.Runs {
		at := st.Metadata["scheduled_at"]
		if other, twice := out[at]; twice {
			f.Fatalf("the runs %s and %s both are of %s", other.ID, st.ID, at)
		}
		if st.Metadata["schedule"] != "s" {
			f.Errorf("a run has the metadata %v", st.Metadata)
		}
		out[at] = st
	}
	return out
}

// want fails unless the runs are those of the given minutes after the start of the bubble.
func (f *firings) want(minutes ...int) map[string]state.State {
	f.Helper()
	var want []string
	for _, m := range minutes {
		want = append(want, began.Add(time.Duration(m)*time.Minute).Format(time.RFC3339))
	}
	runs := f.runs()
	if got := slices.Sorted(maps.Keys(runs)); !slices.Equal(got, want) {
		f.Fatalf("there are runs of\n%s\nwant\n%s", strings.Join(got, " "), strings.Join(want, " "))
	}
	return runs
}

// began is the time at which a bubble starts.
var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// end ends a run.
func (f *firings) end(st state.State) {
	f.Helper()
	c, err := f.store.Claim(f.Context(), state.ClaimRequest{Run: st.ID, Version: st.Version, Token: "t", Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour})
	if err != nil || c.Outcome != state.Claimed {
		f.Fatal(c.Outcome, err)
	}
	next, err := c.State.Move(state.EndCompleted, state.Entry{At: state.At(time.Now())})
	if err != nil {
		f.Fatal(err)
	}
	if _, err := f.store.Commit(f.Context(), c.Lease, state.Commit{ID: "c", State: &next, From: c.State.LogLen(), RedeliveryDelay: time.Hour}); err != nil {
		f.Fatal(err)
	}
}

func TestScheduleFires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFirings(t)
		made := f.put(api.ScheduleSettings{Cron: "* * * * *", Overlap: api.OverlapAllow})
		if len(made.Next) != 5 || !made.Next[0].Equal(began.Add(time.Minute)) {
			t.Errorf("it fires next at %v", made.Next)
		}
		f.keep(3*time.Minute+5*time.Second, f.current)
		runs := f.want(1, 2, 3)
		s := f.get()
		last := runs[began.Add(3*time.Minute).Format(time.RFC3339)]
		if s.Fired != 3 || s.Last == nil || s.Last.RunID != string(last.ID) || !s.Last.At.Equal(began.Add(3*time.Minute)) {
			t.Errorf("the schedule says %+v", s)
		}
		log, err := f.store.Log(t.Context(), last.ID, 0, 1)
		if err != nil || log[0].By == nil || log[0].By.Principal != "schedule:s" || log[0].By.Via != "schedule" {
			t.Errorf("it was submitted by %+v, %v", log[0].By, err)
		}
		// Other gateways also fire it, but never twice.
		f.keep(10*time.Minute, f.current, f.gateway(f.store), f.gateway(f.store))
		f.want(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13)
	})
}

// Four eyes count whoever stored a schedule among the requesters of its runs: the run of each firing names the one who
// stored the settings that it was started with, and whoever resumed the schedule since.
func TestFiringNamesRequesters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFirings(t)
		by := func(name string) {
			f.author.Principal = access.Principal{Name: name, Grants: f.author.Principal.Grants}
		}
		pause := func(paused bool) {
			if _, err := f.current.Schedules.Pause(t.Context(), f.author, "s", paused); err != nil {
				t.Fatal(err)
			}
		}
		by("ann")
		f.put(api.ScheduleSettings{Cron: "* * * * *", Overlap: api.OverlapAllow})
		f.keep(time.Minute+5*time.Second, f.current)
		by("bob")
		pause(true)
		pause(false)
		f.keep(time.Minute, f.current)
		by("carl")
		f.put(api.ScheduleSettings{Cron: "* * * * *", Overlap: api.OverlapAllow})
		f.keep(time.Minute, f.current)
		runs := f.want(1, 2, 3)
		for minute, want := range [][]string{1: {"ann"}, 2: {"ann", "bob"}, 3: {"carl"}} {
			if minute == 0 {
				continue
			}
			log, err := f.store.Log(t.Context(), runs[began.Add(time.Duration(minute)*time.Minute).Format(time.RFC3339)].ID, 0, 1)
			if err != nil || !slices.Equal(log[0].Requesters, want) {
				t.Errorf("minute %d: the requesters are %q, %v, want %q", minute, log[0].Requesters, err, want)
			}
		}
	})
}

// deadStore is a store as seen by a gateway that dies at its n-th call: that call takes effect or not, later
// ones do not.
type deadStore struct {
	state.Store

	mu     sync.Mutex
	left   int  // calls until it dies
	effect bool // whether that call takes effect
}

var errDead = errors.New("the gateway is dead")

// die counts a call, and reports whether it takes effect and whether the gateway dies.
func (s *deadStore) die() (effect, dies bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left--
	return s.left > 0 || s.left == 0 && s.effect, s.left <= 0
}

func dying[T any](s *deadStore, call func() (T, error)) (out T, err error) {
	effect, dies := s.die()
	if effect {
		out, err = call()
	}
	if dies {
		return out, errDead
	}
	return out, err
}

func (s *deadStore) ClaimTimers(ctx context.Context, kind state.TimerKind, limit int, lease time.Duration) ([]state.TimerClaim, error) {
	return dying(s, func() ([]state.TimerClaim, error) { return s.Store.ClaimTimers(ctx, kind, limit, lease) })
}

func (s *deadStore) AckTimer(ctx context.Context, c state.TimerClaim, next time.Time) error {
	_, err := dying(s, func() (any, error) { return nil, s.Store.AckTimer(ctx, c, next) })
	return err
}

func (s *deadStore) PutTimer(ctx context.Context, id state.TimerID, due time.Time) error {
	_, err := dying(s, func() (any, error) { return nil, s.Store.PutTimer(ctx, id, due) })
	return err
}

func (s *deadStore) ReplaceDocument(ctx context.Context, kind state.DocumentKind, name string, was, data json.RawMessage) error {
	_, err := dying(s, func() (any, error) { return nil, s.Store.ReplaceDocument(ctx, kind, name, was, data) })
	return err
}

func (s *deadStore) Create(ctx context.Context, n state.NewRun) (state.Created, error) {
	return dying(s, func() (state.Created, error) { return s.Store.Create(ctx, n) })
}

func (s *deadStore) Abort(ctx context.Context, id state.RunID, a state.Abort, delay time.Duration) (state.Wake, error) {
	return dying(s, func() (state.Wake, error) { return s.Store.Abort(ctx, id, a, delay) })
}

// Every instant starts one run, whichever store call is the last of the gateway that fires it.
func TestScheduleSurvivesCrashes(t *testing.T) {
	t.Parallel()
	for _, overlap := range []string{api.OverlapAllow, api.OverlapSkip, api.OverlapQueueOne, api.OverlapCancel} {
		for _, effect := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, with effect %v", overlap, effect), func(t *testing.T) {
				t.Parallel()
				lived := false
				for n := 1; !lived; n++ {
					synctest.Test(t, func(t *testing.T) { lived = crash(t, overlap, effect, n) })
				}
			})
		}
	}
}

// crash makes a gateway die at its n-th call while it fires the second instant of a schedule, and another one
// take over. It reports whether the gateway survived.
func crash(t *testing.T, overlap string, effect bool, n int) (lived bool) {
	t.Helper()
	f := newFirings(t)
	f.put(api.ScheduleSettings{Cron: "*/10 * * * *", Overlap: overlap})
	f.keep(15*time.Minute, f.current)
	first := f.want(10)
	dying := &deadStore{Store: f.store, left: n, effect: effect}
	doomed := f.gateway(dying)
	time.Sleep(5 * time.Minute)
	_, err := doomed.Schedules.Fire(t.Context())
	f.keep(time.Minute, f.current)
	switch overlap {
	case api.OverlapAllow:
		f.want(10, 20)
	case api.OverlapCancel:
		f.want(10, 20)
		for _, was := range first {
			claim := state.ClaimRequest{Run: was.ID, Version: was.Version, Token: "t", Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour}
			if c, err := f.store.Claim(t.Context(), claim); err != nil || c.Abort == nil {
				t.Errorf("the first run was not cancelled: %+v, %v", c, err)
			}
		}
	case api.OverlapSkip:
		f.want(10)
		if s := f.get(); s.Skipped != 1 {
			t.Errorf("it has skipped %d firings, want 1", s.Skipped)
		}
	default:
		f.want(10)
		for _, was := range first {
			f.end(was)
		}
		f.keep(time.Minute, f.current)
		f.want(10, 20)
	}
	if s := f.get(); len(f.runs()) != int(s.Fired) || s.Last == nil || s.Last.Error != "" {
		t.Errorf("there are %d runs, and the schedule says %+v", len(f.runs()), s)
	}
	if t.Failed() {
		t.Fatalf("it died at call %d", n)
	}
	return err == nil
}

// A firing counts if its run ended and was deleted before the gateway recorded the firing, and the schedule continues.
func TestScheduleAfterItsRunWasDeleted(t *testing.T) {
	t.Parallel()
	for n, lived := 1, false; !lived; n++ {
		synctest.Test(t, func(t *testing.T) {
			f := newFirings(t)
			f.put(api.ScheduleSettings{Cron: "*/10 * * * *", Overlap: api.OverlapAllow})
			time.Sleep(11 * time.Minute)
			_, err := f.gateway(&deadStore{Store: f.store, left: n, effect: true}).Schedules.Fire(t.Context())
			lived = err == nil
			for _, st := range f.runs() {
				f.end(st)
				if err := f.store.Delete(t.Context(), st.ID); err != nil {
					t.Fatal(err)
				}
			}
			f.keep(10*time.Minute, f.current)
			if s := f.get(); s.Fired != 2 || s.Last == nil || s.Last.Error != "" || !s.Last.At.Equal(began.Add(20*time.Minute)) {
				t.Fatalf("its gateway died at call %d, and the schedule says %+v", n, s)
			}
		})
	}
}

// A schedule change takes effect completely or not at all, whichever store call is the last of its gateway: the
// schedule fires as its settings say.
func TestScheduleChangeSurvivesCrashes(t *testing.T) {
	t.Parallel()
	yearly := api.ScheduleSettings{Cron: "@yearly", Overlap: api.OverlapAllow, Run: api.SubmitRequest{Agent: "a", Input: api.Text("go")}}
	minutely := yearly
	minutely.Cron = "* * * * *"
	paused := minutely
	paused.Paused = true
	for name, test := range map[string]struct {
		before api.ScheduleSettings
		change func(f *firings, s *Service) error
		after  func(s api.Schedule) bool
	}{
		"settings": {yearly, func(f *firings, s *Service) error {
			_, _, err := s.Schedules.Put(f.Context(), f.author, "s", minutely)
			return err
		}, func(s api.Schedule) bool { return s.Cron == minutely.Cron }},
		"resume": {paused, func(f *firings, s *Service) error {
			_, err := s.Schedules.Pause(f.Context(), f.author, "s", false)
			return err
		}, func(s api.Schedule) bool { return !s.Paused }},
	} {
		for _, effect := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, with effect %v", name, effect), func(t *testing.T) {
				t.Parallel()
				lived := false
				for n := 1; !lived; n++ {
					synctest.Test(t, func(t *testing.T) {
						f := newFirings(t)
						f.put(test.before)
						lived = test.change(f, f.gateway(&deadStore{Store: f.store, left: n, effect: effect})) == nil
						f.keep(3*time.Minute+time.Second, f.current)
						if test.after(f.get()) {
							f.want(1, 2, 3)
						} else {
							f.want()
						}
					})
				}
			})
		}
	}
}

// A refused firing does not make the schedule lose track of its previous run.
func TestScheduleRemembersItsRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFirings(t)
		put := func(suspended bool) {
			t.Helper()
			if _, err := f.current.Tenants.Put(t.Context(), f.author, "default", api.TenantSettings{Suspended: suspended}); err != nil {
				t.Fatal(err)
			}
		}
		f.put(api.ScheduleSettings{Cron: "*/10 * * * *", Overlap: api.OverlapCancel})
		f.keep(11*time.Minute, f.current)
		first := f.want(10)[began.Add(10*time.Minute).Format(time.RFC3339)]
		put(true)
		f.keep(10*time.Minute, f.current)
		put(false)
		f.keep(10*time.Minute, f.current)
		f.want(10, 30)
		claim := state.ClaimRequest{Run: first.ID, Version: first.Version, Token: "t", Worker: "w", Lease: time.Hour, RedeliveryDelay: time.Hour}
		if c, err := f.store.Claim(t.Context(), claim); err != nil || c.Abort == nil {
			t.Errorf("the first run was not cancelled: %v, %v", c.Abort, err)
		}
	})
}

// A firing that was decided happens although the gateways are down until the next instant, which fires as well.
func TestScheduleAfterOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFirings(t)
		f.put(api.ScheduleSettings{Cron: "*/10 * * * *", Overlap: api.OverlapAllow})
		f.keep(15*time.Minute, f.current)
		time.Sleep(5 * time.Minute)
		decides := &deadStore{Store: f.store, left: 2, effect: true} // after it has claimed the timer
		if _, err := f.gateway(decides).Schedules.Fire(t.Context()); !errors.Is(err, errDead) {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		f.keep(time.Minute, f.current)
		f.want(10, 20, 30)
	})
}

// The overlap setting decides what a schedule does while its previous run has not ended.
func TestScheduleOverlap(t *testing.T) {
	t.Parallel()
	t.Run("skip", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := newFirings(t)
			f.put(api.ScheduleSettings{Cron: "*/10 * * * *"})
			f.keep(35*time.Minute, f.current)
			f.end(f.want(10)[began.Add(10*time.Minute).Format(time.RFC3339)])
			f.keep(10*time.Minute, f.current)
			f.want(10, 40)
			if s := f.get(); s.Skipped != 2 {
				t.Errorf("it has skipped %d firings, want 2", s.Skipped)
			}
		})
	})
	t.Run("queue one", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			f := newFirings(t)
			f.put(api.ScheduleSettings{Cron: "*/10 * * * *", Overlap: api.OverlapQueueOne})
			f.keep(35*time.Minute, f.current)
			first := f.want(10)
			if s := f.get(); s.Waiting == nil || !s.Waiting.Equal(began.Add(20*time.Minute)) || s.Skipped != 1 {
				t.Errorf("the schedule says %+v", s)
			}
			f.end(first[began.Add(10*time.Minute).Format(time.RFC3339)])
			f.keep(waitingInterval+fireInterval, f.current)
			second := f.want(10, 20)
			if s := f.get(); s.Waiting != nil {
				t.Errorf("the run of %v still waits", s.Waiting)
			}
			f.end(second[began.Add(20*time.Minute).Format(time.RFC3339)])
			f.keep(10*time.Minute, f.current)
			f.want(10, 20, 40)
		})
	})
}

// After an outage a schedule fires for the latest instant only, if that is recent enough.
func TestScheduleCatchesUp(t *testing.T) {
	t.Parallel()
	for late, want := range map[time.Duration][]int{4 * time.Minute: {60, 240}, 6 * time.Minute: {60}} {
		t.Run(late.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFirings(t)
				f.put(api.ScheduleSettings{Cron: "0 * * * *", Overlap: api.OverlapAllow, CatchUp: new(model.Duration(5 * time.Minute))})
				f.keep(61*time.Minute, f.current)
				time.Sleep(2*time.Hour + 59*time.Minute + late)
				f.keep(10*time.Minute, f.current)
				f.want(want...)
			})
		})
	}
}

// A change applies from the moment it is made: neither earlier instants nor the old schedule fire.
func TestScheduleChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFirings(t)
		f.put(api.ScheduleSettings{Cron: "*/10 * * * *", Overlap: api.OverlapAllow})
		f.keep(11*time.Minute, f.current)
		if s, err := f.current.Schedules.Pause(t.Context(), f.author, "s", true); err != nil || !s.Paused || len(s.Next) != 0 {
			t.Errorf("paused: %+v, %v", s, err)
		}
		f.keep(20*time.Minute, f.current)
		f.want(10)
		if s, err := f.current.Schedules.Pause(t.Context(), f.author, "s", false); err != nil || s.Paused {
			t.Errorf("resumed: %+v, %v", s, err)
		}
		f.keep(10*time.Minute, f.current) // until minute 41
		f.want(10, 40)
		f.keep(7*time.Minute, f.current)
		f.put(api.ScheduleSettings{Cron: "45 * * * *", Overlap: api.OverlapAllow}) // in minute 48
		f.keep(20*time.Minute, f.current)
		f.want(10, 40)
		f.put(api.ScheduleSettings{Cron: "10 * * * *", Overlap: api.OverlapAllow})
		f.keep(5*time.Minute, f.current)
		f.want(10, 40, 70)
		st, err := f.current.Schedules.Run(t.Context(), f.author, "s", "k")
		again, err2 := f.current.Schedules.Run(t.Context(), f.author, "s", "k")
		if err != nil || err2 != nil || st.ID != again.ID {
			t.Errorf("run now: %s, %v; again: %s, %v", st.ID, err, again.ID, err2)
		}
		if err := f.current.Schedules.Delete(t.Context(), f.author, "s"); err != nil {
			t.Fatal(err)
		}
		f.keep(2*time.Hour, f.current)
		f.want(10, 40, 70, 73)
	})
}

// A clock that steps back makes no instant fire twice.
func TestScheduleWithClockStep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFirings(t)
		f.put(api.ScheduleSettings{Cron: "*/10 * * * *", Overlap: api.OverlapAllow})
		f.keep(21*time.Minute, f.current)
		f.back = 15 * time.Minute
		f.keep(25*time.Minute, f.current) // by the store's clock, from minute 6 to 31
		f.want(10, 20, 30)
	})
}

// A tenant's schedules end with it, a suspended tenant starts no runs, and a refusal is shown.
func TestScheduleOfTenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFirings(t)
		put := func(settings api.TenantSettings) {
			t.Helper()
			if _, err := f.current.Tenants.Put(t.Context(), f.author, "acme", settings); err != nil {
				t.Fatal(err)
			}
		}
		put(api.TenantSettings{})
		f.author.Tenant = "acme"
		if _, err := f.current.Agents.Put(t.Context(), f.author, "a", []byte("name: a\nmodel: {provider: scripted}\n")); err != nil {
			t.Fatal(err)
		}
		f.put(api.ScheduleSettings{Cron: "*/10 * * * *", Overlap: api.OverlapAllow})
		f.keep(11*time.Minute, f.current)
		put(api.TenantSettings{Suspended: true})
		f.keep(10*time.Minute, f.current)
		f.want(10)
		if s := f.get(); s.Last == nil || !strings.Contains(s.Last.Error, "suspended") {
			t.Errorf("the schedule of a suspended tenant says %+v", s.Last)
		}
		put(api.TenantSettings{})
		f.keep(10*time.Minute, f.current)
		f.want(10, 30)
		if err := f.current.Tenants.Delete(t.Context(), f.author, "acme"); err != nil {
			t.Fatal(err)
		}
		f.keep(20*time.Minute, f.current)
		f.want(10, 30)
		if names, err := f.store.DocumentNames(t.Context(), state.SchedulesOf("acme")); err != nil || len(names) != 0 {
			t.Errorf("the deleted tenant has the schedules %v, %v", names, err)
		}
	})
}
