package main

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// gc deletes the runs that ended before the time, however long ago they were submitted, and reads all pages. Child runs
// are deleted with their parents only.
func TestGCDeletesWhatEndedBefore(t *testing.T) {
	t.Parallel()
	store := early{memstore.New(memstore.Config{})}
	c := atGateway(t, store)
	now := time.Now()
	run := func(created, ended time.Duration, end state.Reason, parent *state.Parent) string {
		t.Helper()
		at := state.At(now.Add(-created))
		st, err := state.State{
			ID: state.FirstIDAt(at.Time), Agent: "a", AgentVersion: 1, Loop: "react", Tenant: state.DefaultTenant, Priority: state.Normal, Parent: parent,
		}.Move(state.Submitted, state.Entry{At: at})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := store.Create(t.Context(), state.NewRun{State: st, RedeliveryDelay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if end == "" {
			return string(st.ID)
		}
		claimed, err := store.Claim(t.Context(), state.ClaimRequest{Run: st.ID, Version: 1, Token: "t", Worker: "w", Lease: time.Minute})
		if err != nil || claimed.Outcome != state.Claimed {
			t.Fatal(claimed.Outcome, err)
		}
		if st, err = claimed.State.Move(end, state.Entry{At: state.At(now.Add(-ended))}); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Commit(t.Context(), claimed.Lease, state.Commit{ID: "c", State: &st, From: claimed.State.LogLen()}); err != nil {
			t.Fatal(err)
		}
		return string(st.ID)
	}
	const day = 24 * time.Hour
	var old []string
	for i, end := range []state.Reason{state.EndCompleted, state.EndModelError, state.EndAbortedQueued, state.EndMaxTurns, state.EndCompleted} {
		old = append([]string{run(40*day-time.Duration(i)*time.Hour, 31*day, end, nil)}, old...) // newest first
	}
	young := run(39*day, 29*day, state.EndCompleted, nil)
	run(38*day, 0, "", nil)
	run(37*day, 36*day, state.EndCompleted, &state.Parent{RunID: state.RunID(young), CallID: "c1", Depth: 1})
	run(day, day, state.EndCompleted, nil)
	for _, test := range []struct {
		args []string
		left int
		want []string
	}{
		{[]string{"--dry-run"}, 9, old}, {nil, 4, old}, {nil, 4, []string{}},
	} {
		var got struct {
			Runs   []string `json:"runs"`
			DryRun bool     `json:"dry_run"`
		}
		out, err := says(t, c, append([]string{"-o", "json", "gc", "--older-than", "30d"}, test.args...)...)
		if err != nil || json.Unmarshal([]byte(out), &got) != nil || !slices.Equal(got.Runs, test.want) || got.DryRun != (test.args != nil) {
			t.Errorf("gc %q printed %s, %v; want %q", test.args, out, err, test.want)
		}
		if page, err := store.Store.List(t.Context(), state.Filter{Limit: 100}); err != nil || len(page.Runs) != test.left {
			t.Errorf("after gc %q there are %d runs, %v; want %d", test.args, len(page.Runs), err, test.left)
		}
	}
	if out, err := says(t, c, "gc", "--older-than", "30d"); err != nil || out != "deleted 0 runs that ended more than 30d ago\n" {
		t.Errorf("gc printed %q, %v", out, err)
	}
}
