// Embed is a durable worker in a program: a tool, a hook and a loop in Go. It needs nats-server -js.
//
//	go run ./examples/embed
package main

import (
	"context"
	_ "embed"
	"io"
	"log"
	"os"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/loop"
)

//go:embed traveller.yaml
var traveller []byte

// run opens the deployment, works, and follows one run.
func run(ctx context.Context, o turnpike.Options, out io.Writer) error {
	o.Tools = []turnpike.Tool{turnpike.NewTool("timetable", "Finds connections.", timetable)}
	o.Models = turnpike.Models{"scripted": turnpike.Scripted()} // or "anthropic": anthropic.New(anthropic.Config{})
	o.Hooks = map[string]hook.Hook{"no_flights": hook.Func(noFlights)}
	o.Loops = loop.Registry{"checked": checked.Loop}
	d, err := turnpike.Open(ctx, o)
	if err != nil {
		return err
	}
	defer d.Close()
	w, err := d.NewWorker(turnpike.WorkerOptions{})
	if err != nil {
		return err
	}
	go func() { _ = w.Run(ctx) }()
	defer func() { _ = w.Stop(context.Background()) }()
	if _, err := d.PutYAML(ctx, traveller); err != nil {
		return err
	}
	r, err := d.Submit(ctx, turnpike.Submission{Agent: "traveller", Input: "I want to go to Lisbon."})
	if err != nil {
		return err
	}
	for e, err := range r.Events(ctx, 0) {
		if err != nil {
			return err
		}
		show(out, e)
	}
	return nil
}

func main() {
	var o turnpike.Options
	turnpike.FromEnv(&o)
	log.Print(run(context.Background(), o, os.Stdout))
}
