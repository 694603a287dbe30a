package e2e_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

const plainAgent = "name: plain\ninstructions: You answer.\nmodel: {provider: scripted, responses: [{text: done}]}\n"

// definePlain stores the agent that the tests of operations run.
func (s *deployment) definePlain() {
	s.t.Helper()
	if _, err := s.client.PutAgent(s.t.Context(), "plain", []byte(plainAgent)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *deployment) submitPlain(priority string) string {
	s.t.Helper()
	run, err := s.client.Submit(s.t.Context(), api.SubmitRequest{Agent: "plain", Input: json.RawMessage(`"x"`), Priority: priority}, rand.Text())
	if err != nil {
		s.t.Fatal(err)
	}
	return run.ID
}

// get returns the status and body of a response.
func get(t *testing.T, url string) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// saysReady waits until /readyz answers as expected.
func (s *deployment) saysReady(code int, status, bus, store string) {
	s.t.Helper()
	saysReady(s.t, s.url, code, status, bus, store)
}

func saysReady(t *testing.T, url string, code int, status, bus, store string) {
	t.Helper()
	eventually(t, "readyz of "+url, func() error {
		have, body, err := get(t, url+"/readyz")
		if err != nil {
			return err
		}
		var ready struct{ Status, Bus, Store string }
		if err := json.Unmarshal([]byte(body), &ready); err != nil {
			return err
		}
		if have != code || ready.Status != status || ready.Bus != bus || ready.Store != store {
			return fmt.Errorf("got %d %s, want %d %s, bus %s, store %s", have, body, code, status, bus, store)
		}
		return nil
	})
}

// proxied starts a NATS server and a proxy for it that can be silenced.
func proxied(t *testing.T) *rig.Proxy {
	t.Helper()
	p, err := rig.NewProxy(strings.TrimPrefix(testbed.NATSServer(t).URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { p.Run(ctx); close(ended) }()
	t.Cleanup(func() { stop(); <-ended })
	return p
}

const silent = "does not answer"

// With Redis as the store, a gateway without NATS is degraded: it accepts runs, and they complete when NATS is
// back. Its readiness names each unreachable system.
func TestReadinessNamesWhatIsSilent(t *testing.T) {
	t.Parallel()
	toNATS, redis, operators := proxied(t), testbed.RedisProcess(t, "--appendonly", "yes", "--maxmemory-policy", "noeviction"), freeAddr(t)
	s := newDeployment(t, 0, "TURNPIKE_NATS_URL=nats://"+toNATS.Addr(), "TURNPIKE_REDIS_URL="+redis.URL, "TURNPIKE_ADMIN_ADDR="+operators)
	s.definePlain()
	s.saysReady(http.StatusOK, "ok", "ok", "ok")
	toNATS.Hold()
	s.saysReady(http.StatusOK, "degraded", silent, "ok")
	run := s.submitPlain("")
	toNATS.Cut()
	s.saysReady(http.StatusOK, "degraded", silent, "ok")
	saysReady(t, "http://"+operators, http.StatusOK, "degraded", silent, "ok")
	toNATS.Heal()
	s.saysReady(http.StatusOK, "ok", "ok", "ok")
	spawn(t, "worker", s.env)
	if done, err := s.client.Wait(t.Context(), run); err != nil || done.Status != "completed" {
		t.Errorf("the run that was submitted without NATS: %+v, %v", done, err)
	}
	redis.Kill()
	s.saysReady(http.StatusServiceUnavailable, "unavailable", "ok", silent)
	saysReady(t, "http://"+operators, http.StatusServiceUnavailable, "unavailable", "ok", silent)
}

// outages returns the number of outages in a gateway's log in which a stream rejected writes, and the number of
// those that have ended. Each must have one line at its start and one at its end. On a busy machine, a bus that
// does not answer in time interrupts an outage, or is a separate outage that does not count.
func outages(log string) (began, ended int, err error) {
	full, silenced := false, false // a stream was full since the bus was ready; the bus was silent after that
	for line := range strings.Lines(log) {
		switch {
		case !strings.Contains(line, `"dependency":"bus"`):
		case strings.Contains(line, `"message":"dependency does not answer"`):
			silenced = true
		case strings.Contains(line, `"message":"dependency takes no writes"`):
			if full && !silenced {
				err = errors.Join(err, fmt.Errorf("an outage has an extra line: %s", line))
			}
			if !full {
				began++
			}
			full, silenced = true, false
		case strings.Contains(line, `"message":"dependency is ready again"`):
			if !full && !silenced {
				err = errors.Join(err, fmt.Errorf("an outage ends twice: %s", line))
			}
			if full {
				ended++
			}
			full, silenced = false, false
		}
	}
	return began, ended, err
}

// A gateway is degraded while any stream for turns or submissions rejects writes, although the others accept
// them. Its log has one line at the start and one at the end, however often it is probed.
func TestReadinessLooksAtEachStream(t *testing.T) {
	t.Parallel()
	s := newDeployment(t, 0, "TURNPIKE_TURN_STREAMS=3")
	js, err := jetstream.New(s.nats)
	if err != nil {
		t.Fatal(err)
	}
	limit := func(stream string, bytes int64) (before int64) {
		t.Helper()
		info, err := js.Stream(t.Context(), strings.ToUpper(s.prefix())+"_"+stream)
		if err != nil {
			t.Fatal(err)
		}
		cfg := info.CachedInfo().Config
		before, cfg.MaxBytes = cfg.MaxBytes, bytes
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		return before
	}
	for i, stream := range []string{"TURNS_3", "SUBMIT"} {
		before := limit(stream, 1)
		s.saysReady(http.StatusOK, "degraded", "takes no writes", "ok")
		for range 10 {
			s.saysReady(http.StatusOK, "degraded", "takes no writes", "ok")
		}
		limit(stream, before)
		s.saysReady(http.StatusOK, "ok", "ok", "ok")
		eventually(t, "the log", func() error {
			log := s.gateway.log()
			began, ended, err := outages(log)
			if err != nil {
				t.Fatal(err)
			}
			if began != i+1 || ended != i+1 || !strings.Contains(log, "_"+stream+":") {
				return fmt.Errorf("of %s it has %d outages, of which %d have ended, want %d", stream, began, ended, i+1)
			}
			return nil
		})
	}
}

// With JetStream as the store, a gateway without NATS is not ready.
func TestReadinessOnJetStreamAlone(t *testing.T) {
	t.Parallel()
	toNATS := proxied(t)
	s := newDeployment(t, 0, "TURNPIKE_NATS_URL=nats://"+toNATS.Addr(), "TURNPIKE_REDIS_URL=")
	toNATS.Hold()
	s.saysReady(http.StatusServiceUnavailable, "unavailable", silent, silent)
}

// After SIGTERM a gateway reports that it is not ready while it still serves. Then streams and waiting requests
// end properly, and the process exits with 0.
func TestGatewayDrains(t *testing.T) {
	t.Parallel()
	operators := freeAddr(t)
	s := newDeployment(t, 0, "TURNPIKE_DRAIN=6s", "TURNPIKE_ADMIN_ADDR="+operators)
	s.definePlain()
	run := s.submitPlain("")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/runs/"+run+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	events, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Body.Close()
	stream := bufio.NewReader(events.Body)
	if _, err := stream.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 1)
	go func() {
		resp, err := http.Post(s.url+"/v1/runs?wait=5m", "application/json", strings.NewReader(`{"agent":"plain","input":"x"}`))
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			if err = errors.Join(err, resp.Body.Close()); err == nil && resp.StatusCode != http.StatusAccepted {
				err = errors.New(resp.Status)
			}
		}
		waited <- err
	}()
	eventually(t, "the request that waits is there", func() error {
		page, err := s.client.List(t.Context(), nil)
		if err == nil && len(page.Items) < 2 {
			err = fmt.Errorf("there are %d runs", len(page.Items))
		}
		return err
	})
	if err := s.gateway.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.saysReady(http.StatusServiceUnavailable, "draining", "ok", "ok")
	saysReady(t, "http://"+operators, http.StatusServiceUnavailable, "draining", "ok", "ok")
	if code, _, err := get(t, "http://"+operators+"/metrics"); err != nil || code != http.StatusOK {
		t.Errorf("/metrics during the drain: %d, %v", code, err)
	}
	s.submitPlain("") // clients that have not noticed yet are served
	select {
	case err := <-waited:
		t.Errorf("the waiting request ended before the drain did: %v", err)
	default:
	}
	if _, err := io.Copy(io.Discard, stream); err != nil {
		t.Errorf("the event stream broke off: %v", err)
	}
	if err := <-waited; err != nil {
		t.Errorf("the waiting request: %v", err)
	}
	<-s.gateway.done
	if code := s.gateway.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the gateway exited with %d", code)
	}
}
