package deploy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/internal/worker"
)

// A heartbeat may be as short as 20 ms, and a lease must be longer than four of them.
func TestCheckLease(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lease, heartbeat time.Duration
		want             string // in the error; "" means that they are valid
	}{
		{time.Second, 20 * time.Millisecond, ""},
		{time.Second, 20*time.Millisecond - 1, "heartbeat is 19.999999ms, the minimum is 20ms: raise TURNPIKE_HEARTBEAT"},
		{400*time.Millisecond + 1, 100 * time.Millisecond, ""},
		{400 * time.Millisecond, 100 * time.Millisecond, "lease is 400ms and must be more than 400ms"},
		{0, 0, "heartbeat is 0s"},
	} {
		if err := deploy.CheckLease(c.lease, c.heartbeat); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("lease %s, heartbeat %s: %v, want %q", c.lease, c.heartbeat, err, c.want)
		}
	}
}

// Settings that contradict each other are refused with both names.
func TestRelationsOfSettings(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	for name, c := range map[string]struct {
		deployment deploy.Config
		worker     worker.Config
		want       []string // in the error; none: they are valid
	}{
		"defaults":                          {deploy.Config{}, worker.Config{}, nil},
		"a short lease":                     {deploy.Config{Lease: 3 * time.Second}, worker.Config{}, nil},
		"lease under four heartbeats":       {deploy.Config{Lease: time.Second}, worker.Config{}, []string{"lease is 1s", "1.2s", "TURNPIKE_LEASE", "TURNPIKE_HEARTBEAT"}},
		"lease that fits fast heartbeats":   {deploy.Config{Lease: time.Second}, worker.Config{HeartbeatInterval: 100 * time.Millisecond}, nil},
		"heartbeats too slow for the lease": {deploy.Config{}, worker.Config{HeartbeatInterval: 10 * time.Second, LateResults: time.Minute}, []string{"lease is 25s", "every 10s", "TURNPIKE_HEARTBEAT"}},
		"heartbeats too fast":               {deploy.Config{}, worker.Config{HeartbeatInterval: time.Millisecond}, []string{"heartbeat is 1ms", "TURNPIKE_HEARTBEAT"}},
		"late results within a heartbeat":   {deploy.Config{}, worker.Config{HeartbeatInterval: 5 * time.Second}, []string{"3s", "TURNPIKE_LATE_RESULTS", "TURNPIKE_HEARTBEAT"}},
		"no late results":                   {deploy.Config{}, worker.Config{HeartbeatInterval: 5 * time.Second, LateResults: -1}, nil},
		"negative grace":                    {deploy.Config{}, worker.Config{ShutdownGrace: -time.Second}, []string{"TURNPIKE_SHUTDOWN_GRACE"}},
		"negative attempts":                 {deploy.Config{}, worker.Config{MaxAttempts: -1}, []string{"MaxAttempts", "-1", "set 1 or more"}},
		"fewer messages than slots":         {deploy.Config{MaxAckPending: 500}, worker.Config{}, []string{"max ack pending is 500", "1000 slots", "TURNPIKE_MAX_ACK_PENDING", "TURNPIKE_SLOTS"}},
		"a result larger than its memory":   {deploy.Config{MaxResult: 32 << 20}, worker.Config{AnswerMemory: 31 << 20}, []string{"33554432 bytes", "31 MiB", "TURNPIKE_MAX_RESULT", "TURNPIKE_ANSWERS_MIB"}},
		"memory for one default result":     {deploy.Config{}, worker.Config{AnswerMemory: 4 << 20}, nil},
		"no directory of secrets":           {deploy.Config{}, worker.Config{SecretsDir: "/nope"}, []string{"/nope", "no such file", "TURNPIKE_SECRETS_DIR"}},
		"several streams":                   {deploy.Config{MaxAckPending: 500, TurnStreams: 2}, worker.Config{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.deployment.NATS = nc
			c.deployment.Prefix = strings.ReplaceAll(name, " ", "-")
			d, err := deploy.Open(t.Context(), c.deployment)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			_, err = d.NewWorker(c.worker)
			if (err == nil) != (c.want == nil) {
				t.Fatalf("NewWorker = %v, want %q in it", err, c.want)
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("NewWorker = %v, want %q in it", err, part)
				}
			}
		})
	}
}
