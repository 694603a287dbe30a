package statetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// bygone is a time in the past of any clock.
var bygone = time.Date(2020, 1, 1, 12, 0, 0, 7e6, time.UTC)

func timerID(name string) state.TimerID {
	return state.TimerID{Tenant: "default", Kind: "schedule", Name: name}
}

// A due timer is claimed once, and again at the time that its claimer sets.
func testTimer(t *testing.T, s state.Timers) {
	id := timerID("daily")
	if due, err := s.Timer(t.Context(), id); !errors.Is(err, state.ErrNotFound) {
		t.Errorf("Timer of a name that was never put = %v, %v; want ErrNotFound", due, err)
	}
	putTimer(t, s, id, time.Now().Add(long))
	claimTimers(t, s, 9)
	putTimer(t, s, id, bygone)
	c := claimTimers(t, s, 9, id)[0]
	if !c.Due.Equal(bygone) {
		t.Errorf("the claim is for %v, want %v", c.Due, bygone)
	}
	isDue(t, s, id, bygone)
	claimTimers(t, s, 9)
	next := bygone.Add(24 * time.Hour)
	if err := s.AckTimer(t.Context(), c, next); err != nil {
		t.Fatal(err)
	}
	isDue(t, s, id, next)
	again := claimTimers(t, s, 9, id)[0]
	if !again.Due.Equal(next) || again.Version == c.Version {
		t.Errorf("second ClaimTimers = %+v, want another version than the first, %+v, with Due %v", again, c, next)
	}
	tomorrow := time.Now().Add(24 * time.Hour).Truncate(time.Millisecond)
	if err := s.AckTimer(t.Context(), again, tomorrow); err != nil {
		t.Fatal(err)
	}
	isDue(t, s, id, tomorrow)
	claimTimers(t, s, 9)
	if err := s.AckTimer(t.Context(), again, bygone); !errors.Is(err, state.ErrFenced) {
		t.Errorf("second AckTimer of a claim = %v, want ErrFenced", err)
	}
	isDue(t, s, id, tomorrow)
}

// A timer that is acknowledged without a next time, or removed, is gone. Both may be repeated.
func testTimerRemove(t *testing.T, s state.Timers) {
	for _, remove := range []func(c state.TimerClaim) error{
		func(c state.TimerClaim) error { return s.AckTimer(t.Context(), c, time.Time{}) },
		func(c state.TimerClaim) error { return s.PutTimer(t.Context(), c.TimerID, time.Time{}) },
	} {
		id := timerID("once")
		putTimer(t, s, id, bygone)
		c := claimTimers(t, s, 9, id)[0]
		if err := remove(c); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Timer(t.Context(), id); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("a removed timer = %v, want ErrNotFound", err)
		}
		if err := s.AckTimer(t.Context(), c, bygone); !errors.Is(err, state.ErrFenced) {
			t.Errorf("AckTimer of a removed timer = %v, want ErrFenced", err)
		}
		putTimer(t, s, id, time.Time{})
		claimTimers(t, s, 9)
	}
}

// A late claimer can no longer acknowledge: the timer was claimed again, put or removed, or removed and put
// again. The later claim and the later time stand.
func testTimerFenced(t *testing.T, s state.Timers) {
	id := timerID("late")
	late := func(c state.TimerClaim) {
		t.Helper()
		for _, next := range []time.Time{{}, bygone, time.Now().Add(long)} {
			if err := s.AckTimer(t.Context(), c, next); !errors.Is(err, state.ErrFenced) {
				t.Errorf("a late acknowledgement = %v, want ErrFenced", err)
			}
		}
	}
	putTimer(t, s, id, bygone)
	first := claimFor(t, s, 0, id)
	second := claimFor(t, s, long, id)
	late(first)
	isDue(t, s, id, bygone)
	claimTimers(t, s, 9)
	later := bygone.Add(time.Hour)
	putTimer(t, s, id, later)
	late(second)
	isDue(t, s, id, later)
	third := claimFor(t, s, long, id)
	putTimer(t, s, id, time.Time{})
	late(third)
	putTimer(t, s, id, later)
	late(third)
	fourth := claimFor(t, s, long, id)
	late(third)
	late(first)
	if err := s.AckTimer(t.Context(), fourth, later); err != nil {
		t.Errorf("the acknowledgement of the latest claim = %v", err)
	}
	fifth := claimFor(t, s, 0, id) // its lease has ended, and no other claimer has the timer
	if err := s.AckTimer(t.Context(), fifth, time.Time{}); err != nil {
		t.Errorf("an acknowledgement after the lease = %v", err)
	}
}

// When the lease of a claim ends by the store's clock, the timer is claimed again, for the same time.
func testTimerLease(t *testing.T, s state.Timers) {
	id := timerID("dies")
	putTimer(t, s, id, bygone)
	first := claimFor(t, s, short, id)
	var second []state.TimerClaim
	for end := time.Now().Add(soon); len(second) == 0 && time.Now().Before(end); {
		var err error
		if second, err = s.ClaimTimers(t.Context(), id.Kind, 9, long); err != nil {
			t.Fatal(err)
		}
	}
	if len(second) != 1 || second[0].TimerID != id || !second[0].Due.Equal(bygone) || second[0].Version == first.Version {
		t.Errorf("ClaimTimers after the lease of a claim = %+v; want one claim of timer %v, due %v, with another version than %d", second, id, bygone, first.Version)
	}
}

// Timers of different tenants, kinds or names are different, whatever their names.
func testTimerNames(t *testing.T, s state.Timers) {
	var ids []state.TimerID
	for _, name := range append(hostileValues(), "a.b", "a b", ">", "daily") {
		if name == "" {
			continue
		}
		for _, tenant := range []string{"default", "acme", ""} {
			ids = append(ids, state.TimerID{Tenant: tenant, Kind: "schedule", Name: name}, state.TimerID{Tenant: tenant, Kind: "webhook-2", Name: name})
		}
	}
	for i, id := range ids {
		putTimer(t, s, id, bygone.Add(time.Duration(i)*time.Millisecond))
	}
	for _, kind := range []state.TimerKind{"schedule", "webhook-2", "none"} {
		claims, err := s.ClaimTimers(t.Context(), kind, 1000, long)
		if err != nil {
			t.Fatal(err)
		}
		var want []state.TimerID
		for _, id := range ids {
			if id.Kind == kind {
				want = append(want, id)
			}
		}
		if len(claims) != len(want) {
			t.Errorf("%d timers of kind %s are claimed, want %d", len(claims), kind, len(want))
		}
		for _, c := range claims {
			i := slices.Index(ids, c.TimerID)
			if i < 0 || c.Kind != kind || !c.Due.Equal(bygone.Add(time.Duration(i)*time.Millisecond)) {
				t.Errorf("a claim of kind %s is %.80q, due %v", kind, fmt.Sprint(c.TimerID), c.Due)
			}
		}
	}
}

// A tenant's timers of a kind are listed in pages, by name, including claimed ones. Those of others are not.
func testTimerList(t *testing.T, s state.Timers) {
	names := slices.DeleteFunc(append(hostileValues(), "a.b", "a b", ">", "daily", "default", "\x01"), func(name string) bool { return name == "" })
	for i := range 20 {
		names = append(names, fmt.Sprint("run ", i))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	due := map[string]time.Time{}
	for i, name := range names {
		due[name] = bygone.Add(time.Duration(len(names)-i) * time.Millisecond)
		putTimer(t, s, timerID(name), due[name])
		for _, tenant := range []string{"", "defaul", "default2", "acme"} {
			putTimer(t, s, state.TimerID{Tenant: tenant, Kind: "schedule", Name: name}, bygone)
		}
		putTimer(t, s, state.TimerID{Tenant: "default", Kind: "webhook-2", Name: name}, bygone)
	}
	if _, err := s.ClaimTimers(t.Context(), "schedule", len(names), long); err != nil {
		t.Fatal(err)
	}
	list := func(limit int) (got []string) {
		t.Helper()
		for after := ""; ; after = got[len(got)-1] {
			page, err := s.ListTimers(t.Context(), "default", "schedule", after, limit)
			if err != nil || len(page) > limit {
				t.Fatalf("ListTimers = %d timers, %v, want at most %d", len(page), err, limit)
			}
			for _, l := range page {
				got = append(got, l.Name)
				if !l.Due.Equal(due[l.Name]) || l.Note != "" {
					t.Errorf("ListTimers has timer %.80q due %v with the note %q, want due %v without a note", l.Name, l.Due, l.Note, due[l.Name])
				}
			}
			if len(page) < limit {
				return got
			}
		}
	}
	for _, limit := range []int{1, 7, len(names), 1000} {
		if got := list(limit); !slices.Equal(got, names) {
			t.Errorf("ListTimers in pages of %d = %.80q, want %.80q", limit, got, names)
		}
	}
	for _, name := range names[:len(names)/2] {
		putTimer(t, s, timerID(name), time.Time{})
	}
	names = names[len(names)/2:]
	if got := list(7); !slices.Equal(got, names) {
		t.Errorf("ListTimers after half of the timers were removed = %.80q, want %.80q", got, names)
	}
	if got, err := s.ListTimers(t.Context(), "none", "schedule", "", 9); err != nil || len(got) > 0 {
		t.Errorf("ListTimers for a tenant without timers = %v, %v, want none", got, err)
	}
}

// A note is stored with an acknowledgement, and stays until the next one, or until the timer is put.
func testTimerNote(t *testing.T, s state.Timers) {
	id := timerID("noted")
	listed := func(want state.Timer) {
		t.Helper()
		got, err := s.ListTimers(t.Context(), id.Tenant, id.Kind, "", 9)
		if err != nil || len(got) != 1 || got[0].Name != want.Name || !got[0].Due.Equal(want.Due) || got[0].Note != want.Note {
			t.Errorf("ListTimers = %.300q, %v, want %.200q", fmt.Sprint(got), err, fmt.Sprint(want))
		}
	}
	putTimer(t, s, id, bygone)
	notes := append(hostileValues(), "7 8 9", "-1", " ", `{"attempts":3,"error":"the receiver answers 503"}`, strings.Repeat("ä", 512), "")
	late := claimFor(t, s, 0, id)
	for i, note := range notes {
		c := claimFor(t, s, 0, id)
		next := bygone.Add(time.Duration(i) * time.Millisecond)
		c.Note = note
		if err := s.AckTimer(t.Context(), c, next); err != nil {
			t.Fatal(err)
		}
		listed(state.Timer{Name: id.Name, Due: next, Note: note})
		if again := claimFor(t, s, 0, id); again.Note != note || !again.Due.Equal(next) {
			t.Errorf("ClaimTimers after AckTimer with a note = note %q, due %v; want %q, %v", again.Note, again.Due, note, next)
		}
		listed(state.Timer{Name: id.Name, Due: next, Note: note}) // a claimer that dies leaves it
		late.Note = "late"
		if err := s.AckTimer(t.Context(), late, bygone); !errors.Is(err, state.ErrFenced) {
			t.Errorf("AckTimer of an earlier claim, with a note = %v, want ErrFenced", err)
		}
		late = c
	}
	c := claimFor(t, s, 0, id)
	c.Note = "noted"
	if err := s.AckTimer(t.Context(), c, bygone); err != nil {
		t.Fatal(err)
	}
	putTimer(t, s, id, bygone)
	listed(state.Timer{Name: id.Name, Due: bygone})
}

// Ten thousand timers due in the same minute are claimed in pages by several claimers, each timer by one.
func testTimerRace(t *testing.T, s state.Timers) {
	n := 10_000
	if testing.Short() {
		n = 1_000
	}
	const page, claimers, writers = 100, 8, 32
	var puts errgroup.Group
	puts.SetLimit(writers)
	for i := range n {
		puts.Go(func() error { return s.PutTimer(t.Context(), timerID(fmt.Sprint("timer ", i)), bygone) })
	}
	if err := puts.Wait(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	total, claims := 0, map[state.TimerID][]state.TimerClaim{}
	var all errgroup.Group
	for range claimers {
		all.Go(func() error {
			for {
				got, err := s.ClaimTimers(t.Context(), "schedule", page, long)
				if err != nil {
					return err
				}
				if len(got) > page {
					return fmt.Errorf("a page has %d timers, want at most %d", len(got), page)
				}
				mu.Lock()
				total += len(got)
				for _, c := range got {
					claims[c.TimerID] = append(claims[c.TimerID], c)
				}
				so := total
				mu.Unlock()
				if so > n {
					return fmt.Errorf("of %d timers %d are claimed", n, so)
				}
				if len(got) < page {
					return nil
				}
			}
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(claims) != n {
		t.Errorf("%d timers are claimed, want %d", len(claims), n)
	}
	var acks errgroup.Group
	acks.SetLimit(writers)
	for id, of := range claims {
		if len(of) != 1 {
			t.Errorf("timer %v is claimed %d times", id, len(of))
		}
		acks.Go(func() error { return s.AckTimer(t.Context(), of[0], time.Time{}) })
	}
	if err := acks.Wait(); err != nil {
		t.Error(err)
	}
	claimTimers(t, s, page)
}

func putTimer(t *testing.T, s state.Timers, id state.TimerID, due time.Time) {
	t.Helper()
	if err := s.PutTimer(t.Context(), id, due); err != nil {
		t.Fatal(err)
	}
}

// claimTimers fails unless exactly these timers of kind schedule are due, and returns their claims.
func claimTimers(t *testing.T, s state.Timers, limit int, want ...state.TimerID) []state.TimerClaim {
	t.Helper()
	claims, err := s.ClaimTimers(t.Context(), "schedule", limit, long)
	var got []state.TimerID
	for _, c := range claims {
		got = append(got, c.TimerID)
	}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("ClaimTimers = %v, %v, want %v", got, err, want)
	}
	return claims
}

// claimFor claims the only due timer.
func claimFor(t *testing.T, s state.Timers, lease time.Duration, id state.TimerID) state.TimerClaim {
	t.Helper()
	claims, err := s.ClaimTimers(t.Context(), id.Kind, 9, lease)
	if err != nil || len(claims) != 1 || claims[0].TimerID != id {
		t.Fatalf("ClaimTimers = %v, %v, want %v", claims, err, id)
	}
	return claims[0]
}

func isDue(t *testing.T, s state.Timers, id state.TimerID, want time.Time) {
	t.Helper()
	if due, err := s.Timer(t.Context(), id); err != nil || !due.Equal(want) {
		t.Errorf("the timer is due %v, %v, want %v", due, err, want)
	}
}
