package turnpike_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/turnpike-dev/turnpike/internal/devserver"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/client"
	"github.com/turnpike-dev/turnpike/pkg/gateway"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/hook/hookspec"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/worker"
)

// A process that takes turns and answers over HTTP. Most deployments have workers and
// gateways in processes of their own; both call Open with the same settings.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	natsURL, stopNATS := startNATS() // in production: nats-server -js
	defer stopNATS()

	d, err := turnpike.Open(ctx, turnpike.Config{NATSURL: natsURL})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	w, err := d.NewWorker(worker.Config{
		Providers: map[string]model.Provider{"scripted": scripted.New()},
		Kinds:     toolspec.Kinds(map[string]tool.Tool{"timetable": tool.Func(timetable)}),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	g, err := d.NewGateway(gateway.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stop()
	parts.Go(func() { _ = w.Run(ctx) })
	parts.Go(func() { _ = g.Serve(ctx, listener) })

	c := client.New("http://" + listener.Addr().String())
	if _, err := c.PutAgent(ctx, "traveller", []byte(traveller)); err != nil {
		fmt.Println(err)
		return
	}
	run, err := c.Submit(ctx, api.SubmitRequest{Agent: "traveller", Input: json.RawMessage(`"When does a train go to Lisbon?"`)}, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	for e, err := range c.Events(ctx, run.ID, 0) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if e.Message != nil && e.Message.Text() != "" {
			fmt.Printf("%s: %s\n", e.Message.Role, e.Message.Text())
		}
	}
	// Output:
	// assistant: The 9:02 leaves from platform 4.
}

// timetable is a tool in Go.
func timetable(_ context.Context, _ tool.Call) (tool.Result, error) {
	return tool.Result{Content: "9:02, platform 4"}, nil
}

// traveller is an agent; its model plays a script.
const traveller = `
name: traveller
instructions: You look up trains.
tools: [{name: timetable, description: Finds trains.}]
model:
  provider: scripted
  responses:
    - {tool_calls: [{name: timetable, arguments: {to: Lisbon}}]}
    - {text: "The 9:02 leaves from platform 4."}
`

// A worker with a hook in Go that objects to tool calls.
func ExampleDeployment_NewWorker() {
	natsURL, stopNATS := startNATS()
	defer stopNATS()
	d, err := turnpike.Open(context.Background(), turnpike.Config{NATSURL: natsURL})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()
	_, err = d.NewWorker(worker.Config{
		Providers: map[string]model.Provider{"scripted": scripted.New()},
		Kinds:     toolspec.Kinds(map[string]tool.Tool{"timetable": tool.Func(timetable)}),
		Hooks: hookspec.Kinds(map[string]hook.Hook{"office_hours": hook.Func(func(context.Context, hook.Request) (hook.Answer, error) {
			closed := "the timetable is closed"
			return hook.Answer{Deny: &closed}, nil
		})}),
	})
	fmt.Println(err)
	// Output: <nil>
}

// startNATS starts a NATS server with JetStream for an example.
func startNATS() (url string, stop func()) {
	dir, err := os.MkdirTemp("", "turnpike-example-")
	if err != nil {
		panic(err)
	}
	s, err := devserver.Start(devserver.Options{Dir: dir, Listen: "127.0.0.1:0"})
	if err != nil {
		panic(err)
	}
	return s.URL(), func() {
		s.Close()
		_ = os.RemoveAll(dir)
	}
}
