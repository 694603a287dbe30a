package upgrade_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// oldProcess sends the heartbeats of a build that knows format 1 only, in its words.
type oldProcess struct {
	s    *deployment
	stop func()
}

func (s *deployment) startOld(t *testing.T) *oldProcess {
	t.Helper()
	quit, done := make(chan struct{}), make(chan struct{})
	beat := func(text string) {
		if err := s.js.Conn().Publish("turnpike.presence.old", []byte(text)); err != nil {
			t.Error(err)
		}
	}
	go func() {
		defer close(done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			beat(`{"worker":"old","takes_kept":true}`)
			select {
			case <-tick.C:
			case <-quit:
				beat(`{"worker":"old","gone":true}`)
				return
			}
		}
	}()
	stop := sync.OnceFunc(func() {
		close(quit)
		<-done
	})
	t.Cleanup(stop)
	heard := make(chan struct{}, 1)
	forget, err := s.Bus.Heartbeats(t.Context(), func(b bus.Heartbeat) {
		if b.Worker == "old" {
			select {
			case heard <- struct{}{}:
			default:
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer forget()
	select {
	case <-heard:
	case <-time.After(10 * time.Second):
		t.Fatal("the old process is not heard")
	}
	return &oldProcess{s, stop}
}

// stored waits until a run stands somewhere, and checks the format in which it is stored.
func (s *deployment) stored(t *testing.T, id, where string, format int) {
	t.Helper()
	eventually(t, "the run stands at "+where, func() error {
		if got := stands(s.get(t, id)); got != where {
			return fmt.Errorf("it is at %s", got)
		}
		return nil
	})
	st, err := s.Store.Load(t.Context(), state.RunID(id))
	if err != nil {
		t.Fatal(err)
	}
	if st.Format != format {
		t.Errorf("at %s the run is stored in format %d, want %d", where, st.Format, format)
	}
	if s.redis == nil {
		return
	}
	// As an older build looks at it, without any code of this one.
	keys, err := readKeys(t.Context(), s.redis)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range keys {
		if !strings.HasSuffix(k.Name, id) || k.Hash["h"] == "" {
			continue
		}
		var header map[string]any
		if err := json.Unmarshal([]byte(k.Hash["h"]), &header); err != nil {
			t.Fatal(err)
		}
		_, whole := header["id"]
		if header["format"] != float64(format) || k.Hash["f"] != fmt.Sprint(format) || whole != (format == 1) || (k.Hash["hf"] == "") != (format == 1) {
			t.Errorf("format %d is stored as %s and %s in a hash that says %s", format, k.Hash["h"], k.Hash["hf"], k.Hash["f"])
		}
	}
}

// writes waits until new runs are stored in a format.
func (s *deployment) writes(t *testing.T, format int) {
	t.Helper()
	eventually(t, fmt.Sprintf("format %d is written", format), func() error {
		run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "files", Input: text("go"), StartAt: in(time.Hour)}, "")
		if err != nil {
			return err
		}
		st, err := s.Store.Load(t.Context(), state.RunID(run.ID))
		if err == nil && st.Format != format {
			err = fmt.Errorf("format %d is", st.Format)
		}
		return err
	})
}

// While a process of an older build is heard, what it can read is written; once all know
// more, the new format is, and takes over what was begun in the old one.
func TestFleet(t *testing.T) {
	t.Parallel()
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			s := newDeployment(t, store, nil)
			close(s.gate)
			s.work(t, 10)
			s.put(t, "files")
			s.put(t, "steps")
			s.writes(t, state.Format) // a deployment of this build alone

			old := s.startOld(t)
			s.writes(t, 1)
			var ids []string
			for _, name := range []string{"files", "steps", "files"} {
				run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: name, Input: text("go")}, "")
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, run.ID)
			}
			for _, id := range ids {
				s.stored(t, id, "waiting_client_tool", 1)
			}
			s.answer(t, s.get(t, ids[2]))
			s.stored(t, ids[2], "completed", 1)

			old.stop()
			s.writes(t, state.Format)
			for _, id := range ids[:2] {
				s.answer(t, s.get(t, id))
				s.stored(t, id, "completed", state.Format)
			}
			if run := s.get(t, ids[1]); run.Output == nil || *run.Output != "stepped" {
				t.Errorf("the second phase of the run ended with %v", run.Output)
			}

			// A newer run stays what it is.
			old = s.startOld(t)
			defer old.stop()
			s.writes(t, 1)
			s.signal(t, ids[0], api.SignalRequest{Message: text("more")})
			s.stored(t, ids[0], "model_error", state.Format) // its model has nothing more to say
		})
	}
}
