package toolkit_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"go.uber.org/goleak"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const prefix = "tp"

func serve(t *testing.T, nc *nats.Conn, tools ...toolkit.Tool) (stop func() error) {
	t.Helper()
	stop, err := toolkit.Serve(nc, prefix, tools...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

func nothing(context.Context, toolkit.Call) (toolkit.Result, error) { return toolkit.Result{}, nil }

// ask sends one request and returns the reply as text, with the code of an error.
func ask(t *testing.T, nc *nats.Conn, name, body string) string {
	t.Helper()
	m, err := nc.RequestWithContext(t.Context(), toolkit.Subject(prefix, name), []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return m.Header.Get(micro.ErrorCodeHeader) + string(m.Data)
}

type query struct {
	City  string   `json:"city" jsonschema:"where"`
	Days  int      `json:"days,omitempty"`
	Units []string `json:"units,omitzero"`
}

func TestFunc(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	type answer struct {
		Text string `json:"text"`
		Key  string `json:"key"`
	}
	serve(t, nc,
		toolkit.Func("weather", "Tells the weather.", func(_ context.Context, c toolkit.Call, in query) (answer, error) {
			return answer{in.City + strings.Repeat("!", in.Days), c.IdempotencyKey}, nil
		}),
		toolkit.Func("text", "", func(context.Context, toolkit.Call, struct{}) (string, error) { return "a \"text\"", nil }),
		toolkit.Func("fails", "", func(context.Context, toolkit.Call, map[string]any) (int, error) { return 0, errors.New("no") }),
		toolkit.Func("later", "", func(context.Context, toolkit.Call, struct{}) (toolkit.Result, error) {
			return toolkit.Result{Pending: true, Images: []toolkit.Image{{URL: "https://example.com/a.png"}}}, nil
		}),
		toolkit.Func("odd", "", func(context.Context, toolkit.Call, struct{}) (any, error) { return make(chan int), nil }),
	)
	for _, tt := range [][3]string{
		{"weather", `{"arguments":{"city":"Oslo","days":2},"idempotency_key":"k"}`, `{"content":{"text":"Oslo!!","key":"k"}}`},
		{"weather", `{"arguments":{"days":2}}`, "400"},
		{"weather", `{"arguments":{"city":"Oslo","when":"now"}}`, "400"},
		{"weather", `{"arguments":{"city":7}}`, "400"},
		{"weather", `{"arguments":null}`, "400"},
		{"weather", `{}`, "400"},
		{"weather", `nonsense`, "400"},
		{"text", `{"arguments":{}}`, `{"content":"a \"text\""}`},
		{"fails", `{"arguments":{"x":1}}`, `500{"error":"no"}`},
		{"later", `{"arguments":{}}`, `{"content":"","images":[{"url":"https://example.com/a.png"}],"pending":true}`},
		{"odd", `{"arguments":{}}`, `500`},
	} {
		if got := ask(t, nc, tt[0], tt[1]); !strings.HasPrefix(got, tt[2]) {
			t.Errorf("%s %s = %s, want %s", tt[0], tt[1], got, tt[2])
		}
	}
}

// A client of NATS micro services finds a tool, its schema and its statistics.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	stop := serve(t, nc, toolkit.Func("weather", "Tells the weather.", func(_ context.Context, _ toolkit.Call, in query) (string, error) {
		if in.City == "" {
			return "", errors.New("no such city\nlook it up")
		}
		return in.City, nil
	}))
	for _, city := range []string{"Oslo", "Rome", ""} {
		ask(t, nc, "weather", `{"arguments":{"city":"`+city+`"}}`)
	}
	var ping micro.Ping
	var info micro.Info
	var stats micro.Stats
	get := func(subject string, into any) {
		t.Helper()
		m, err := nc.RequestWithContext(t.Context(), subject, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(m.Data, into); err != nil {
			t.Fatal(err)
		}
	}
	get("$SRV.PING", &ping)
	get("$SRV.INFO.weather", &info)
	if ping.Type != micro.PingResponseType || info.Type != micro.InfoResponseType || info.Version != "1.0.0" || info.ID != ping.ID || info.Description != "Tells the weather." {
		t.Errorf("ping = %+v, info = %+v", ping, info)
	}
	const schema = `{"type":"object","required":["city"],"properties":{"city":{"type":"string","description":"where"},"days":{"type":"integer"},"units":{"type":["null","array"],"items":{"type":"string"}}},"additionalProperties":false}`
	var got, want any
	if json.Unmarshal([]byte(info.Endpoints[0].Metadata[toolkit.MetaSchema]), &got) != nil || json.Unmarshal([]byte(schema), &want) != nil {
		t.Fatalf("info = %+v", info)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("schema:\n%s", diff)
	}
	// The third call is counted after its reply was sent.
	for stats.Endpoints == nil || stats.Endpoints[0].NumRequests < 3 {
		get("$SRV.STATS.weather."+ping.ID, &stats)
	}
	if e := stats.Endpoints[0]; e.NumErrors != 1 || e.LastError != "no such city" || e.AverageProcessingTime <= 0 || e.Subject != "tp.tool.weather" || stats.Started.IsZero() {
		t.Errorf("stats = %+v", e)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := nc.RequestWithContext(t.Context(), "$SRV.PING.weather", nil); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("after stop: %v, want no responders", err)
	}
}

func TestServeRefuses(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	bad := map[string]toolkit.Tool{
		"the name":                        {Name: "a.b", Handler: nothing},
		"no handler":                      {Name: "t"},
		"its schema":                      {Name: "t", Handler: nothing, Schema: json.RawMessage("{")},
		"not a JSON object":               {Name: "t", Handler: nothing, Schema: json.RawMessage("true")},
		"its version":                     {Name: "t", Handler: nothing, Version: "one"},
		"have the type int: use a struct": toolkit.Func("t", "", func(context.Context, toolkit.Call, int) (int, error) { return 0, nil }),
		"type interface {}: use a struct": toolkit.Func("t", "", func(context.Context, toolkit.Call, any) (int, error) { return 0, nil }),
		"make tool t":                     toolkit.Func("t", "", func(context.Context, toolkit.Call, struct{ C chan int }) (int, error) { return 0, nil }),
	}
	for want, tool := range bad {
		// If a tool is invalid, the tools served before it are stopped.
		if _, err := toolkit.Serve(nc, prefix, toolkit.Tool{Name: "good", Handler: nothing}, tool); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Serve = %v, want %q", err, want)
		}
	}
	if _, err := nc.RequestWithContext(t.Context(), toolkit.Subject(prefix, "good"), nil); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("a tool next to an invalid one is served: %v", err)
	}
}

// A service sends the first requested heartbeat at once, even while the call waits for its turn, and none after
// the reply.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	started, release := make(chan struct{}, 2), make(chan struct{})
	serve(t, nc, toolkit.Tool{Name: "slow", Concurrency: 1, Handler: func(context.Context, toolkit.Call) (toolkit.Result, error) {
		started <- struct{}{}
		<-release
		return toolkit.Result{Content: "done"}, nil
	}})
	call := func() *nats.Subscription {
		sub, err := nc.SubscribeSync(nc.NewInbox())
		if err != nil {
			t.Fatal(err)
		}
		m := &nats.Msg{Subject: toolkit.Subject(prefix, "slow"), Reply: sub.Subject, Data: []byte(`{}`), Header: nats.Header{toolkit.HeartbeatHeader: {"60"}}}
		if err := nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
		return sub
	}
	first := call()
	<-started
	second := call()
	for _, sub := range []*nats.Subscription{first, second, first, second} {
		m, err := sub.NextMsgWithContext(t.Context())
		if err != nil || m.Header.Get(toolkit.HeartbeatHeader) != "60" || len(m.Data) > 0 {
			t.Fatalf("want a heartbeat, got %+v, %v", m, err)
		}
	}
	close(release)
	for {
		m, err := first.NextMsgWithContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Data) > 0 {
			break
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if n, _, err := first.Pending(); n != 0 || err != nil {
		t.Errorf("%d messages after the reply, %v", n, err)
	}
}

// A call that its caller cancels while it waits for a slot ends without a slot, so the handler is not called for it.
func TestCancelOfAWaitingCall(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	started, release := make(chan struct{}, 2), make(chan struct{})
	serve(t, nc, toolkit.Tool{Name: "slow", Concurrency: 1, Handler: func(context.Context, toolkit.Call) (toolkit.Result, error) {
		started <- struct{}{}
		<-release
		return toolkit.Result{}, nil
	}})
	defer close(release)
	if err := nc.PublishRequest(toolkit.Subject(prefix, "slow"), nc.NewInbox(), []byte(`{}`)); err != nil {
		t.Fatal(err)
	}
	<-started
	waiting, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	m := &nats.Msg{Subject: toolkit.Subject(prefix, "slow"), Reply: waiting.Subject, Data: []byte(`{}`), Header: nats.Header{toolkit.HeartbeatHeader: {"60"}}}
	if err := nc.PublishMsg(m); err != nil {
		t.Fatal(err)
	}
	if _, err := waiting.NextMsgWithContext(t.Context()); err != nil { // a heartbeat
		t.Fatal(err)
	}
	if err := nc.Publish(waiting.Subject+toolkit.CancelSuffix, nil); err != nil {
		t.Fatal(err)
	}
	testbed.Eventually(t, "the cancelled call ends while the first has the slot", func() error {
		m, err := nc.RequestWithContext(t.Context(), "$SRV.STATS.slow", nil)
		if err != nil {
			return err
		}
		var stats micro.Stats
		if err := json.Unmarshal(m.Data, &stats); err != nil {
			return err
		}
		if n := stats.Endpoints[0].NumRequests; n != 1 {
			return fmt.Errorf("%d calls have ended, want 1", n)
		}
		return nil
	})
}

// Stop does not wait for messages that can no longer arrive.
func TestStopAfterTheConnection(t *testing.T) {
	t.Parallel()
	nc, err := testbed.NATSServer(t).Conn("service")
	if err != nil {
		t.Fatal(err)
	}
	stop, err := toolkit.Serve(nc, prefix, toolkit.Tool{Name: "t", Handler: nothing})
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Run logs in with the credentials in the environment, if FromEnv has read them.
func TestRunLogsIn(t *testing.T) {
	url := testbed.NATSWith(t, func(o *natsserver.Options) { o.Users = []*natsserver.User{{Username: "tool", Password: "of-the-tool"}} }).ClientURL()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("of-the-tool\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tool := toolkit.Tool{Name: "t", Handler: nothing}
	fromEnv := func() toolkit.Config {
		cfg := toolkit.Config{URL: url}
		toolkit.FromEnv(&cfg)
		return cfg
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	t.Setenv("TURNPIKE_NATS_USER", "tool")
	t.Setenv("TURNPIKE_NATS_PASSWORD", "wrong")
	if err := toolkit.Run(ended, fromEnv(), tool); err == nil || !strings.Contains(err.Error(), "Authorization Violation") {
		t.Errorf("with a wrong password: %v", err)
	}
	t.Setenv("TURNPIKE_NATS_PASSWORD", "")
	t.Setenv("TURNPIKE_NATS_PASSWORD_FILE", path)
	if err := toolkit.Run(ended, fromEnv(), tool); err != nil {
		t.Errorf("with the password in a file: %v", err)
	}
	if err := toolkit.Run(ended, toolkit.Config{URL: url}, tool); err == nil {
		t.Error("Run uses the credentials in the environment without FromEnv")
	}
}

// Run serves until its context ends, and first answers the calls it has accepted.
func TestRun(t *testing.T) {
	t.Parallel()
	server := testbed.NATSServer(t)
	nc, err := server.Conn("caller")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	ctx, cancel := context.WithCancel(t.Context())
	started, ended := make(chan struct{}), make(chan error, 1)
	tool := toolkit.Tool{Name: "t", Handler: func(ctx context.Context, _ toolkit.Call) (toolkit.Result, error) {
		close(started)
		<-ended // the early result of Run
		return toolkit.Result{}, nil
	}}
	if err := toolkit.Run(ctx, toolkit.Config{URL: server.URL()}); err == nil {
		t.Error("Run without tools succeeds")
	}
	if err := toolkit.Run(ctx, toolkit.Config{URL: "nats://127.0.0.1:1"}, tool); err == nil || !strings.Contains(err.Error(), "TURNPIKE_NATS_URL") {
		t.Errorf("Run without a server: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- toolkit.Run(ctx, toolkit.Config{URL: server.URL(), Prefix: prefix}, tool) }()
	reply := make(chan error, 1)
	go func() {
		for {
			_, err := nc.RequestWithContext(t.Context(), toolkit.Subject(prefix, "t"), []byte(`{}`))
			if !errors.Is(err, nats.ErrNoResponders) {
				reply <- err
				return
			}
		}
	}()
	<-started
	cancel()
	select {
	case err := <-done:
		t.Errorf("Run ends before its call: %v", err)
	case ended <- nil:
	}
	if err := errors.Join(<-reply, <-done); err != nil {
		t.Error(err)
	}
}
