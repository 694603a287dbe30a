// Planner is an example of a custom loop: it plans, executes the steps of the plan one
// by one, and reflects on the result before it answers. The plan is the loop's own
// state, which only the loop reads. It imports only public packages of Turnpike and
// changes nothing in them.
//
//	go run ./examples/planner
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
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

// run is a whole deployment in memory: three workers, and one run.
func run(ctx context.Context, out io.Writer) error {
	d, err := turnpike.Open(ctx, turnpike.Options{
		Store: memstore.New(memstore.Config{}), Bus: membus.New(),
		Tools:  []turnpike.Tool{turnpike.NewTool("timetable", "Finds trains.", timetable)},
		Models: turnpike.Models{"scripted": turnpike.Scripted()},
		Loops:  loop.Registry{"planner": Planner},
	})
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // the process ends
	ctx, stop := context.WithCancel(ctx)
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop()
	for i := range 3 {
		w, err := d.NewWorker(turnpike.WorkerOptions{ID: fmt.Sprintf("worker-%d", i+1)})
		if err != nil {
			return err
		}
		workers.Go(func() { _ = w.Run(ctx) })
	}
	if _, err := d.PutYAML(ctx, []byte(definition)); err != nil {
		return err
	}
	started, err := d.Submit(ctx, turnpike.Submission{Agent: "traveller", Input: "I want to go to Lisbon."})
	if err != nil {
		return err
	}
	for e, err := range started.Events(ctx, 0) {
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

// journey is what the model asks the timetable for.
type journey struct {
	To string `json:"to"`
}

func timetable(_ context.Context, j journey) (string, error) {
	return "9:02 to " + j.To + ", platform 4", nil
}
