// Planner is a loop of a third party's: it plans, executes one step of the plan
// after the other, and reflects on the whole before it answers. The plan is state of
// its own, which nobody else can read. It imports only public packages of Turnpike and
// changes nothing in them.
//
//	go run ./examples/planner
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/client"
	"github.com/turnpike-dev/turnpike/pkg/gateway"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/worker"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

const definition = `
name: traveller
instructions: You plan journeys.
loop: {type: planner}
tools: [{name: timetable, description: Finds trains.}]
model:
  provider: scripted
  responses:
    - {text: "1. Find a train.\n2. Name its platform."}
    - {tool_calls: [{name: timetable, arguments: {to: Lisbon}}]}
    - {text: "There is the 9:02."}
    - {text: "It leaves from platform 4."}
    - {text: "Both steps are done: take the 9:02 from platform 4."}
`

// run is a whole deployment in memory: a gateway, three workers, and one run.
func run(ctx context.Context, out io.Writer) error {
	loops := loop.Builtin()
	loops["planner"] = Planner

	store, bus := memstore.New(memstore.Config{}), membus.New()
	ctx, stop := context.WithCancel(ctx)
	var deployment sync.WaitGroup
	defer deployment.Wait()
	defer stop()
	for i := range 3 {
		w, err := worker.New(store, bus, worker.Config{
			ID: fmt.Sprintf("worker-%d", i+1), Loops: loops, Logger: zerolog.Nop(),
			Providers: map[string]model.Provider{"scripted": scripted.New()},
			Kinds: toolspec.Kinds(map[string]tool.Tool{"timetable": tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
				return tool.Result{Content: "9:02 to Lisbon, platform 4"}, nil
			})}),
		})
		if err != nil {
			return err
		}
		deployment.Go(func() { _ = w.Run(ctx) })
	}
	g, err := gateway.New(store, bus, gateway.Config{Loops: loops.Names()})
	if err != nil {
		return err
	}
	deployment.Go(func() { _ = g.Run(ctx) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: g.Handler(), ReadHeaderTimeout: time.Second}
	deployment.Go(func() { _ = server.Serve(listener) })
	defer server.Close()

	c := client.New("http://" + listener.Addr().String())
	if _, err := c.PutAgent(ctx, "traveller", []byte(definition)); err != nil {
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
		switch e.Type {
		case state.EntryModel:
			fmt.Fprintf(out, "%-14s %-10s %s\n", e.Type, "", e.Message.Text())
		case state.EntryTransition, state.EntryFinished:
			fmt.Fprintf(out, "%-14s %-10s %s\n", e.Type, e.Reason, e.Detail)
		case state.EntryProgress:
			fmt.Fprintf(out, "%-14s %-10s %d: %s\n", e.Type, e.Action, e.Step, e.Target)
		default:
		}
	}
	return nil
}
