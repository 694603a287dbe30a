package e2e_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Processes are restarted one by one with another TURNPIKE_TURN_STREAMS while runs pass through all of them.
// The others follow without a restart, doctor reports it, and every run ends.
func TestTurnStreamsOnALiveDeployment(t *testing.T) {
	t.Parallel()
	s := newDeployment(t, 2)
	s.definePlain()
	js, err := jetstream.New(s.nats)
	if err != nil {
		t.Fatal(err)
	}
	prefix := strings.ToUpper(s.prefix())
	streams := func() (names []string) {
		all := js.StreamNames(t.Context())
		for name := range all.Name() {
			if strings.HasPrefix(name, prefix+"_TURNS") {
				names = append(names, name)
			}
		}
		return names
	}

	var mu sync.Mutex
	var ids []string
	var slowest time.Duration
	quit := make(chan struct{})
	var submitting sync.WaitGroup
	for range 4 {
		submitting.Go(func() {
			for {
				select {
				case <-quit:
					return
				default:
				}
				began := time.Now()
				run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "plain", Input: json.RawMessage(`"x"`)}, rand.Text())
				if err != nil {
					t.Errorf("Submit: %v", err)
					return
				}
				if run, err = s.client.Wait(t.Context(), run.ID); err != nil || run.Status != "completed" {
					t.Errorf("run %s is %s, %v", run.ID, run.Status, err)
					return
				}
				mu.Lock()
				ids, slowest = append(ids, run.ID), max(slowest, time.Since(began))
				mu.Unlock()
			}
		})
	}
	ended := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(ids)
	}
	for i, n := range []int{4, 2, 1} {
		w := s.workers[i%2]
		_ = w.cmd.Process.Signal(syscall.SIGTERM) // its turns end, and it leaves
		<-w.done
		w.env = slices.Concat(s.env, []string{fmt.Sprintf("TURNPIKE_TURN_STREAMS=%d", n)})
		w.start()
		before := ended()
		eventually(t, fmt.Sprintf("%d streams", n), func() error {
			if have := streams(); len(have) != n || ended() < before+50 {
				return fmt.Errorf("%d runs have ended, streams are %v", ended()-before, have)
			}
			return nil
		})
		doctor := spawn(t, "turnpike", slices.Concat(s.env, []string{"TURNPIKE_TURN_STREAMS=4"}), "doctor")
		<-doctor.done
		if said := doctor.log(); !strings.Contains(said, fmt.Sprintf("%d: %s_TURNS", n, prefix)) || (n == 4) == strings.Contains(said, "the process that starts last decides") {
			t.Errorf("with %d streams doctor says:\n%s", n, said)
		}
	}
	close(quit)
	submitting.Wait()
	t.Logf("%d runs, the slowest took %v", len(ids), slowest)
}
