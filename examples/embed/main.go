// Embed is a durable worker and a gateway inside a program of one's own: a tool, a hook
// and a loop in Go, against a NATS server, and a Redis server if TURNPIKE_REDIS_URL names one.
//
//	nats-server -js &
//	go run ./examples/embed
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/client"
	"github.com/turnpike-dev/turnpike/pkg/gateway"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/hook/hookspec"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/worker"
)

// work takes turns until ctx ends. Any number of processes may do so; when one dies, the
// others take over its runs.
func work(ctx context.Context, d *turnpike.Deployment) error {
	w, err := d.NewWorker(worker.Config{
		Providers: map[string]model.Provider{"scripted": scripted.New()}, // or anthropic.New(anthropic.Config{})
		Kinds:     toolspec.Kinds(map[string]tool.Tool{"timetable": tool.Func(timetable)}),
		Hooks:     hookspec.Kinds(map[string]hook.Hook{"no_flights": hook.Func(noFlights)}),
		Loops:     loops(),
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// serve answers over HTTP until ctx ends.
func serve(ctx context.Context, d *turnpike.Deployment, listener net.Listener) error {
	g, err := d.NewGateway(gateway.Config{Loops: loops().Names()})
	if err != nil {
		return err
	}
	return g.Serve(ctx, listener)
}

// timetable is a tool. Its result is journaled: no crash has it called again.
func timetable(_ context.Context, c tool.Call) (tool.Result, error) {
	var journey struct{ To, By string }
	if err := json.Unmarshal(c.Arguments, &journey); err != nil {
		return tool.Result{}, err
	}
	return tool.Result{Content: "9:02 to " + journey.To + ", platform 4"}, nil
}

// noFlights is a hook that is asked before each tool call.
func noFlights(_ context.Context, r hook.Request) (hook.Answer, error) {
	var journey struct{ By string }
	if err := json.Unmarshal(r.Call.Arguments, &journey); err != nil {
		return hook.Answer{}, err
	}
	if journey.By == "plane" {
		reason := "we take the train"
		return hook.Answer{Deny: &reason}, nil
	}
	return hook.Answer{}, nil
}

// checks is what the loop below keeps in a run; nobody else can read it.
type checks struct {
	Made bool `json:"made,omitempty"`
}

// loops are the built-in loops and one that asks the model to check its answer once.
func loops() loop.Registry {
	checked := loop.Typed[checks]{OnAnswer: func(t *loop.Turn, own *checks, text string) loop.Decision {
		if own.Made {
			return t.Complete(state.EndCompleted, text)
		}
		own.Made = true
		return t.Next(state.Reflected, "checked", state.UserText("Check your answer against the timetable, then give it again."))
	}}
	all := loop.Builtin()
	all["checked"] = func(a *agent.Agent) loop.Loop { return loop.New(a, checked.Rules()) }
	return all
}

const traveller = `
name: traveller
instructions: You plan journeys.
loop: {type: checked}
tools: [{name: timetable, description: Finds connections.}]
hooks: {pre_tool: [{kind: go, name: no_flights}]}
model:
  provider: scripted
  responses:
    - {tool_calls: [{name: timetable, arguments: {to: Lisbon, by: plane}}]}
    - {tool_calls: [{name: timetable, arguments: {to: Lisbon, by: train}}]}
    - {text: "Take the 9:02."}
    - {text: "Take the 9:02 from platform 4."}
`

// run opens the deployment, works and serves, and follows one run.
func run(ctx context.Context, cfg turnpike.Config, out io.Writer) error {
	d, err := turnpike.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer d.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error { return work(ctx, d) })
	parts.Go(func() error { return serve(ctx, d, listener) })
	parts.Go(func() error {
		defer stop()
		return travel(ctx, client.New("http://"+listener.Addr().String()), out)
	})
	return parts.Wait()
}

// travel defines the agent, submits a run, and prints what is said in it.
func travel(ctx context.Context, c *client.Client, out io.Writer) error {
	if _, err := c.PutAgent(ctx, "traveller", []byte(traveller)); err != nil {
		return err
	}
	started, err := c.Submit(ctx, api.SubmitRequest{Agent: "traveller", Input: json.RawMessage(`"I want to go to Lisbon."`)}, "")
	if err != nil {
		return err
	}
	for e, err := range c.Events(ctx, started.ID, 0) {
		if err != nil {
			return err
		}
		if e.Message == nil {
			continue
		}
		for _, p := range e.Message.Parts {
			switch p.Type {
			case state.PartToolCall:
				fmt.Fprintf(out, "%s %s\n", p.Name, p.Arguments)
			case state.PartToolResult:
				fmt.Fprintf(out, "  %s\n", p.Content)
			default:
				fmt.Fprintln(out, p.Text)
			}
		}
	}
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	// Empty is the default of each. Without Redis, JetStream keeps the checkpoints.
	cfg := turnpike.Config{
		NATSURL: os.Getenv("TURNPIKE_NATS_URL"), RedisURL: os.Getenv("TURNPIKE_REDIS_URL"), Prefix: os.Getenv("TURNPIKE_PREFIX"),
		Logger: zerolog.New(os.Stderr).Level(zerolog.WarnLevel),
	}
	if err := run(ctx, cfg, os.Stdout); err != nil {
		log.Print(err)
	}
}
