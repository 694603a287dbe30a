package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/tool/natstool"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// Tools of services can be found and called from the command line, and doctor names the tools of agents that no
// service offers.
func TestToolsCommand(t *testing.T) {
	data := t.TempDir()
	c, _ := startDev(t, data)
	url := natsURL(t, data)
	c.want(0, "TOOL", "tools", "ls", "--nats-url", url)
	c.want(0, "[]", "-o", "json", "tools", "--nats-url", url)
	c.want(1, "give another URL with --nats-url", "tools", "ls", "--nats-url", "nats://127.0.0.1:1")

	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	type arguments struct {
		City string `json:"city"`
	}
	odd := toolkit.Tool{Name: "odd", Schema: json.RawMessage(`{"type":"array"}`), Handler: func(context.Context, toolkit.Call) (toolkit.Result, error) { return toolkit.Result{}, nil }}
	stop, err := toolkit.Serve(nc, "turnpike", odd, toolkit.Func("weather", "Tells the weather.", func(_ context.Context, _ toolkit.Call, in arguments) (toolkit.Result, error) {
		if in.City == "" {
			return toolkit.Result{}, errors.New("no such city")
		}
		return toolkit.Result{Content: "rain in " + in.City, Images: []toolkit.Image{{URL: "https://example.com/rain.png"}}}, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer stop() //nolint:errcheck // the connection is about to close

	c.want(0, "rain in Oslo\n[image  https://example.com/rain.png", "tools", "call", "weather", "--arguments", `{"city":"Oslo"}`, "--nats-url", url)
	c.want(0, "rain in Rome", "tools", "call", "weather", "-a", "@"+file(t, "rome.json", `{"city":"Rome"}`), "--nats-url", url)
	c.want(1, `"is_error": true`, "-o", "json", "tools", "call", "weather", "--arguments", `{"city":""}`, "--nats-url", url)
	c.want(1, "Invalid arguments", "tools", "call", "weather", "--nats-url", url)
	c.want(80, "not a JSON object", "tools", "call", "weather", "-a", "[]", "--nats-url", url)
	c.want(1, "no service listens", "tools", "call", "nobody", "--timeout", "1s", "--nats-url", url)

	var services []natstool.Service
	eventually(t, "four calls are counted", func() error {
		out := c.want(0, "", "-o", "json", "tools", "ls", "--nats-url", url)
		if err := json.Unmarshal([]byte(out), &services); err != nil {
			return err
		}
		if len(services) != 2 || len(services[1].Instances) != 1 || services[1].Instances[0].Requests != 4 || services[1].Instances[0].Errors != 2 || len(services[1].Schema) == 0 {
			return errors.New(out)
		}
		return nil
	})
	c.soon(0, []string{"weather  1.0.0    1          4      2       Tells the weather."}, "tools", "ls", "--nats-url", url)
	c.soon(0, []string{services[1].Instances[0].ID}, "tools", "show", "weather", "--nats-url", url)
	c.want(1, "no service offers the tool", "tools", "show", "nobody", "--nats-url", url)

	c.want(0, "", "agents", "put", file(t, "a.yaml", "name: a\nmodel: {provider: scripted, responses: [{text: hi}]}\ntools: [{name: weather, kind: nats}, {name: odd, kind: nats}, {name: gone, kind: nats}, {name: other}]\n"))
	c.soon(0, []string{"ok   tool: weather"}, "doctor", "--nats-url", url)
	// Tenants have their own tools.
	c.want(1, "no service offers the tool", "--tenant", "acme", "tools", "show", "weather", "--nats-url", url)
	c.want(0, "", "tenants", "put", "acme")
	c.want(0, "", "--tenant", "acme", "agents", "put", file(t, "b.yaml", "name: b\nmodel: {provider: scripted, responses: [{tool_calls: [{name: weather, arguments: {city: Oslo}}]}, {text: hi}]}\ntools: [{name: weather, kind: nats}]\n"))
	stopAcme, err := toolkit.ServeTenant(nc, "turnpike", "acme", toolkit.Tool{Name: "weather", Handler: func(context.Context, toolkit.Call) (toolkit.Result, error) {
		return toolkit.Result{Content: "snow of acme"}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer stopAcme() //nolint:errcheck // the connection is about to close
	c.want(0, "snow of acme", "--tenant", "acme", "tools", "call", "weather", "--nats-url", url)
	id := strings.TrimSpace(c.want(0, "run_", "--tenant", "acme", "submit", "b", "go"))
	c.want(0, "hi", "--tenant", "acme", "watch", id)
	c.want(0, "snow of acme", "--tenant", "acme", "show", id)
	c.soon(0, []string{
		"ok   tool: weather of tenant acme", "1 found, of version 1.0.0", "warn tool: odd", "is not usable", "warn tool: gone", "agents with this tool: a",
	}, "doctor", "--nats-url", url)
}

// An instance of the example is killed during a call. The tool is idempotent, so another instance executes the
// call, long before the time limit.
func TestToolInstanceIsKilled(t *testing.T) {
	data := t.TempDir()
	c, _ := startDev(t, data)
	url := natsURL(t, data)
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	instances := func(want int) {
		t.Helper()
		eventually(t, "the instances are there", func() error {
			services, err := natstool.Discover(t.Context(), nc, "turnpike", "")
			if err == nil && (len(services) != 1 || len(services[0].Instances) != want) {
				err = fmt.Errorf("services: %+v", services)
			}
			return err
		})
	}
	working := make(chan struct{})
	once := sync.OnceFunc(func() { close(working) })
	if _, err := nc.Subscribe("_INBOX.>", func(m *nats.Msg) {
		if m.Header.Get(toolkit.HeartbeatHeader) != "" {
			once()
		}
	}); err != nil {
		t.Fatal(err)
	}
	env := []string{"TURNPIKE_NATS_URL=" + url}
	dies := spawn(t, "go", append(env, "CONVERT_DELAY_MS=3600000")) // examples/tools/go
	instances(1)
	id := strings.TrimSpace(c.want(0, "run_", "submit", "../../examples/tools/converter.yaml", "How far is 100 km in miles?"))
	select {
	case <-working:
	case <-time.After(time.Minute):
		t.Fatal("no instance works on the call")
	}
	spawn(t, "go", env)
	instances(2)
	dies.kill()
	c.want(0, "62.1 miles", "watch", id)
	c.want(0, "62.13711922", "show", id)
}
