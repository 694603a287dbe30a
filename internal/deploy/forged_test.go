package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// An attacker on NATS sends forged events and turns. With keys, none reaches a reader; without keys, forged
// live events do, but committed events do not. A forged turn causes no model call and does not affect the run.
func TestForgedMessages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys  string
		heard int // of the forged live event
	}{"keys": {"0123456789abcdef", 0}, "no keys": {"", 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc := testbed.NATS(t)
			d, err := deploy.Open(t.Context(), deploy.Config{NATS: nc, BusKeys: text("BUS_KEYS", c.keys)})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(d.Close)
			client := serve(t, d)
			release, watched, heard := make(chan struct{}), make(chan struct{}), make(chan struct{}, 100)
			w, err := d.NewWorker(durable(func(ctx context.Context, _ tool.Call) (tool.Result, error) {
				select {
				case <-release:
				case <-ctx.Done():
				}
				return tool.Result{Content: "seat 12A"}, nil
			}))
			if err != nil {
				t.Fatal(err)
			}
			run := submit(t, client)
			var events []api.Event
			read := make(chan error, 1)
			go func() {
				for e, err := range client.Events(t.Context(), run, 0) {
					if err != nil {
						read <- err
						return
					}
					if len(events) == 0 {
						close(watched)
					}
					events = append(events, e)
					if isForged(e) {
						heard <- struct{}{}
					}
				}
				read <- nil
			}()
			<-watched
			goes(t, w.Run)
			forge(t, nc, run)
			for range c.heard { // they arrive before the end of the run, which ends the reader
				select {
				case <-heard:
				case err := <-read:
					t.Fatalf("the reader ended: %v", err)
				}
			}
			close(release)
			if err := <-read; err != nil {
				t.Fatal(err)
			}
			forged, committed := 0, int64(0)
			for _, e := range events {
				if isForged(e) {
					forged++
				}
				if e.Seq > 0 {
					if committed++; e.Seq != committed {
						t.Errorf("event %d arrives where %d is expected", e.Seq, committed)
					}
				}
			}
			if forged != c.heard {
				t.Errorf("%d forged events reached the reader, want %d", forged, c.heard)
			}
			done, err := client.Get(t.Context(), run)
			if err != nil || done.Status != string(state.Completed) || done.Usage.ModelCalls != 2 {
				t.Errorf("the run ended %+v, %v", done, err)
			}
		})
	}
}

func isForged(e api.Event) bool {
	text, err := json.Marshal(e)
	return err != nil || strings.Contains(string(text), "forged")
}

// forge sends messages on a run's subjects that no process of the deployment has sent.
func forge(t *testing.T, nc *nats.Conn, run string) {
	t.Helper()
	send := func(subject, data string) {
		t.Helper()
		if err := nc.Publish(subject, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	live := `{"seq":%s,"run_id":%q,"type":%q,"turn":9,"attempt":1,"at":"2026-01-01T00:00:00Z","name":"forged","call_id":"forged"}`
	send("turnpike.live."+run, fmt.Sprintf(live, "null", run, "tool.started"))
	send("turnpike.live."+run, fmt.Sprintf(live, "null", run, "run.finished"))
	send("turnpike.live."+run, fmt.Sprintf(live, "3", run, "tool.started"))
	send("turnpike.live."+run, fmt.Sprintf(live, "null", "run_forged", "tool.started"))
	send("turnpike.live."+run, "forged")
	send("turnpike.grown."+run, "0 1000000")
	send("turnpike.events."+run, fmt.Sprintf(live, "2", run, "run.finished"))
	for _, turn := range []string{`{"run_id":%q,"version":1}`, `{"run_id":%q,"version":2}`, `{"run_id":%q,"version":99}`, `{"run_id":%q,"version":-1}`, `{"run_id":"run_forged","version":1}`, `forged`} {
		if strings.Contains(turn, "%q") {
			turn = fmt.Sprintf(turn, run)
		}
		if _, err := nc.RequestWithContext(t.Context(), "turnpike.turn.normal.0", []byte(turn)); err != nil {
			t.Fatal(err)
		}
	}
}
