// Hello is a first agent in Go: it defines an agent, executes its runs, and waits for one. It needs
// nats-server -js.
//
//	go run ./examples/hello
package main

import (
	"context"
	"log"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// hello returns what the agent says.
func hello(ctx context.Context, o turnpike.Options) (string, error) {
	d, err := turnpike.Open(ctx, o)
	if err != nil {
		return "", err
	}
	defer d.Close()
	w, err := d.NewWorker(turnpike.WorkerOptions{})
	if err != nil {
		return "", err
	}
	go func() { _ = w.Run(ctx) }()
	defer func() { _ = w.Stop(context.Background()) }()
	a := turnpike.Agent{
		Name:         "hello",
		Instructions: "You are brief.",
		Model:        turnpike.Model{Provider: "scripted", Responses: []model.Scripted{{Text: "Hello."}}},
	}
	if _, err := d.PutAgent(ctx, a); err != nil {
		return "", err
	}
	return turnpike.Do[string](ctx, d.Client, turnpike.Submission{Agent: "hello", Input: "Say hello."})
}

func main() {
	o := turnpike.Options{Models: turnpike.Models{"scripted": turnpike.Scripted()}}
	turnpike.FromEnv(&o)
	text, err := hello(context.Background(), o)
	if err != nil {
		log.Fatal(err)
	}
	log.Print(text)
}
