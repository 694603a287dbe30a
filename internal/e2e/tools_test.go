package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/pkg/tool/natstool"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// What services offer is found and called from the command line, and doctor says
// which tools of the agents nobody serves.
func TestToolsCommand(t *testing.T) {
	data := t.TempDir()
	c, _ := startDev(t, data)
	url := natsURL(t, data)
	c.want(0, "TOOL", "tools", "ls", "--nats-url", url)
	c.want(0, "[]", "-o", "json", "tools", "--nats-url", url)
	c.want(1, "--nats-url names it", "tools", "ls", "--nats-url", "nats://127.0.0.1:1")

	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	type arguments struct {
		City string `json:"city"`
	}
	stop, err := toolkit.Serve(nc, "turnpike", toolkit.Func("weather", "Tells the weather.", func(_ context.Context, _ toolkit.Call, in arguments) (toolkit.Result, error) {
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
	c.want(1, "no JSON object", "tools", "call", "weather", "-a", "[]", "--nats-url", url)
	c.want(1, "no service answers", "tools", "call", "nobody", "--timeout", "1s", "--nats-url", url)

	var services []natstool.Service
	eventually(t, "four calls are counted", func() error {
		out := c.want(0, "", "-o", "json", "tools", "ls", "--nats-url", url)
		if err := json.Unmarshal([]byte(out), &services); err != nil {
			return err
		}
		if len(services) != 1 || len(services[0].Instances) != 1 || services[0].Instances[0].Requests != 4 || services[0].Instances[0].Errors != 2 || len(services[0].Schema) == 0 {
			return errors.New(out)
		}
		return nil
	})
	c.want(0, "weather  1.0.0    1          4      2       Tells the weather.", "tools", "ls", "--nats-url", url)
	c.want(0, services[0].Instances[0].ID, "tools", "show", "weather", "--nats-url", url)
	c.want(1, "is found", "tools", "show", "nobody", "--nats-url", url)

	c.want(0, "", "agents", "put", file(t, "a.yaml", "name: a\nmodel: {provider: scripted, responses: [{text: hi}]}\ntools: [{name: weather, kind: nats}, {name: gone, kind: nats}, {name: other}]\n"))
	out := c.want(0, "ok   tool: weather", "doctor", "--nats-url", url)
	for _, want := range []string{"1 found, of version 1.0.0", "warn tool: gone", "agents with it: a"} {
		if !strings.Contains(out, want) {
			t.Errorf("doctor does not say %q:\n%s", want, out)
		}
	}
}
