package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// Each instant of each schedule starts one run, and so does each request for one, while two gateways are killed
// and restarted in turn.
func TestSchedulesSurviveKills(t *testing.T) {
	t.Parallel()
	const rounds, requests = 5, 8
	s := newDeployment(t, 0)
	other := freeAddr(t)
	gateways := []*process{s.gateway, spawn(t, "gateway", append(s.env, "TURNPIKE_ADDR="+other))}
	clients := []*api.Client{s.client, api.New("http://" + other)}
	f := newFirings(t, s)
	requested := map[string]string{} // run id: schedule, for requested runs
	for n := range rounds {
		for _, c := range clients {
			eventually(t, "both gateways are ready", func() error { return c.Ready(t.Context()) })
		}
		f.rewind(n - rounds)
		eventually(t, "a schedule has fired", func() error {
			if len(f.runs()) <= n*len(f.names)+len(requested) {
				return fmt.Errorf("none has")
			}
			return nil
		})
		doomed, lives := clients[n%2], clients[1-n%2]
		type answer struct {
			run api.Run
			err error // the gateway was killed before it answered
		}
		answers := make([]chan answer, requests)
		for i := range answers {
			answers[i] = make(chan answer, 1)
			go func() {
				run, err := doomed.RunSchedule(t.Context(), f.names[i], fmt.Sprint(n))
				answers[i] <- answer{run, err}
			}()
		}
		gateways[n%2].kill()
		f.due() // as when the leases of the dead gateway end, at the worst moment for the other one
		gateways[n%2].start()
		for i, early := range answers {
			var run api.Run
			eventually(t, "the other gateway starts the run", func() (err error) {
				run, err = lives.RunSchedule(t.Context(), f.names[i], fmt.Sprint(n))
				return err
			})
			if a := <-early; a.err == nil && a.run.ID != run.ID {
				t.Errorf("the request was answered with run %s, repeated with run %s", a.run.ID, run.ID)
			}
			requested[run.ID] = f.names[i]
		}
		eventually(t, "all schedules have fired", f.settled)
	}
	if len(requested) != rounds*requests {
		t.Errorf("%d runs were requested, want %d", len(requested), rounds*requests)
	}
	fired := map[string]bool{}
	for _, run := range f.runs() {
		name, at := run.Metadata["schedule"], run.Metadata["scheduled_at"]
		if requested[string(run.ID)] == name {
			delete(requested, string(run.ID))
			continue
		}
		if fired[name+at] {
			t.Errorf("schedule %s has started two runs for %s", name, at)
		}
		fired[name+at] = true
	}
	if len(requested) > 0 || len(fired) != rounds*len(f.names) {
		t.Errorf("%d instants started runs, want %d; missing requested runs: %v", len(fired), rounds*len(f.names), requested)
	}
}

// firings are schedules that a test makes due directly in the store: real schedules are due at least a minute
// apart.
type firings struct {
	*testing.T

	store *redisstore.Store
	names []string
	began time.Time // a full minute
}

func newFirings(t *testing.T, s *deployment) *firings {
	t.Helper()
	store, err := redisstore.Open(t.Context(), redisstore.Config{URL: testbed.Redis(t), Prefix: s.prefix()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if _, err := s.client.PutAgent(t.Context(), "a", []byte("name: a\nmodel: {provider: scripted, responses: [{text: done}]}\n")); err != nil {
		t.Fatal(err)
	}
	f := &firings{T: t, store: store, began: time.Now().UTC().Truncate(time.Minute)}
	for i := range 200 {
		f.names = append(f.names, fmt.Sprintf("s%03d", i))
		settings := api.ScheduleSettings{Cron: "@yearly", Overlap: api.OverlapAllow, Run: api.SubmitRequest{Agent: "a", Input: api.Text("go")}}
		if _, err := s.client.PutSchedule(t.Context(), f.names[i], settings); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// rewind makes all schedules due for an instant some minutes before the test began, as after an outage.
func (f *firings) rewind(minutes int) {
	f.Helper()
	at := f.began.Add(time.Duration(minutes) * time.Minute)
	for _, name := range f.names {
		err := state.ErrChanged
		for errors.Is(err, state.ErrChanged) { // by a gateway that lost its claim and notices it late
			err = f.change(name, at)
		}
		if err != nil {
			f.Fatalf("schedule %s: %v", name, err)
		}
	}
	f.due()
}

// change makes a schedule due for an instant.
func (f *firings) change(name string, at time.Time) error {
	kind := state.SchedulesOf("default")
	was, err := f.store.Document(f.Context(), kind, name)
	var doc map[string]any
	if err == nil {
		err = json.Unmarshal(was, &doc)
	}
	if err != nil {
		return err
	}
	doc["cron"] = at.Format("4 15 2 1 *")
	doc["status"].(map[string]any)["seen"] = at.Add(-time.Second)
	now, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	return f.store.ReplaceDocument(f.Context(), kind, name, was, now)
}

func timerOf(name string) state.TimerID {
	return state.TimerID{Tenant: "default", Kind: "schedule", Name: name}
}

// due ends all leases and makes gateways check all schedules.
func (f *firings) due() {
	f.Helper()
	for _, name := range f.names {
		if err := f.store.PutTimer(f.Context(), timerOf(name), time.Now().Add(-time.Second)); err != nil {
			f.Fatal(err)
		}
	}
}

// settled returns nil once gateways have checked all schedules.
func (f *firings) settled() error {
	for _, name := range f.names {
		at, err := f.store.Timer(f.Context(), timerOf(name))
		if err == nil && at.Before(time.Now()) {
			err = fmt.Errorf("schedule %s is due since %v", name, at)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *firings) runs() []state.State {
	f.Helper()
	page, err := f.store.List(f.Context(), state.Filter{Limit: 10_000})
	if err != nil {
		f.Fatal(err)
	}
	return page.Runs
}
