// Clerk is a worker with a tool that pays money back. The agent clerk is in clerk.yaml. It needs
// nats-server -js and ANTHROPIC_API_KEY.
//
//	go run ./examples/clerk
package main

import (
	"context"
	_ "embed"
	"log"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
)

//go:embed clerk.yaml
var clerk []byte

// Refund has the arguments of the tool.
type Refund struct {
	Order string `jsonschema:"its number"`
	Cents int
}

// pay passes the idempotency key to the bank, which pays once for each key.
func pay(ctx context.Context, r Refund) (string, error) {
	return "paid for order " + r.Order + " under " + turnpike.IdempotencyKey(ctx), nil
}

func main() {
	ctx := context.Background()
	t := turnpike.NewTool("pay", "Pays back.", pay, turnpike.Idempotent(), turnpike.Approval("args.Cents > 900"))
	o := turnpike.Options{Tools: []turnpike.Tool{t}, Models: turnpike.Models{"anthropic": anthropic.New(anthropic.Config{})}}
	turnpike.FromEnv(&o)
	d, err := turnpike.Open(ctx, o)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := d.PutYAML(ctx, clerk); err != nil {
		log.Fatal(err)
	}
	log.Fatal(d.Work(ctx, turnpike.WorkerOptions{}))
}
