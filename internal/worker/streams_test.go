package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Runs continue while turn streams are added and removed: each turn is committed once, and none is lost. There
// is no sweeper, so a lost message would stop its run for good.
func TestRunsWhileStreamsChange(t *testing.T) {
	t.Parallel()
	const turns = 6
	s := newDeployment(t)
	server := testbed.NATSServer(t)
	connect := func() *nats.Conn {
		nc, err := server.Conn(t.Name())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
	process := func(streams int) *natsbus.Bus {
		b, err := natsbus.Open(t.Context(), connect(), natsbus.Config{Prefix: "changing", TurnStreams: streams})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	var mu sync.Mutex
	steps := map[string]int{}
	s.tools["step"] = tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		steps[string(c.Run)+c.ID]++
		return tool.Result{Content: "done"}, nil
	})
	for range 3 {
		cfg := s.config()
		cfg.SweepInterval, cfg.HeartbeatInterval = time.Hour, time.Second
		s.workWith(s.store, process(0), cfg)
	}
	responses := make([]model.Scripted, 0, turns)
	for i := range turns - 1 {
		responses = append(responses, call("step", fmt.Sprint("c", i)))
	}
	responses = append(responses, model.Scripted{Text: "end"})

	quit := make(chan struct{})
	var submitting sync.WaitGroup
	var all []state.RunID
	gateway := process(0)
	submitting.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
			}
			id := s.create(state.Limits{}, []agent.Tool{{Name: "step"}}, responses...)
			if err := gateway.PublishTurn(t.Context(), bus.Turn{Run: id, Version: 1, Priority: state.Normal}, string(id)+":1"); err != nil {
				t.Errorf("PublishTurn: %v", err)
			}
			all = append(all, id)
		}
	})
	js, err := jetstream.New(connect())
	if err != nil {
		t.Fatal(err)
	}
	completed := func() int64 {
		counts, err := s.store.Counts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return counts[state.Completed]
	}
	until := func(what string, ok func() bool) {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(4 * time.Minute); !ok(); <-tick.C {
			if time.Now().After(end) {
				t.Fatalf("%s: %d runs have ended", what, completed())
			}
		}
	}
	for _, streams := range []int{4, 2, 1} {
		process(streams)
		before := completed()
		until(fmt.Sprint(streams, " streams"), func() bool { return len(streamsOf(t, js)) == streams && completed() > before+50 })
	}
	close(quit)
	submitting.Wait()
	until("the end", func() bool { return completed() == int64(len(all)) })
	for _, id := range all {
		st, err := s.store.Load(t.Context(), id)
		if err != nil || st.Turn != turns || st.Version != turns+1 {
			t.Fatalf("run %s: turn %d, version %d, %v", id, st.Turn, st.Version, err)
		}
		for i := range turns - 1 {
			if n := steps[string(id)+fmt.Sprint("c", i)]; n != 1 {
				t.Errorf("run %s: step %d was made %d times", id, i, n)
			}
		}
	}
	t.Logf("%d runs of %d turns", len(all), turns)
}

// streamsOf returns the streams of turns.
func streamsOf(t *testing.T, js jetstream.JetStream) []string {
	t.Helper()
	names := js.StreamNames(t.Context())
	var all []string
	for name := range names.Name() {
		if strings.Contains(name, "_TURNS") {
			all = append(all, name)
		}
	}
	if err := names.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}
