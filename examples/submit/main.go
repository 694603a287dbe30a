// Submit is a client in another service: it submits a run over HTTP and decodes its output.
//
//	TOKEN=... go run ./examples/submit
package main

import (
	"context"
	"log"
	"os"

	"github.com/turnpike-dev/turnpike"
)

// Answer is the output of the agent.
type Answer struct{ Refunded bool }

// ask asks the clerk about a ticket. Asking again returns the answer of the first run.
func ask(ctx context.Context, c *turnpike.Client, ticket, text string) (Answer, error) {
	return turnpike.Do[Answer](ctx, c, turnpike.Submission{Agent: "clerk", Input: text, Key: ticket})
}

func main() {
	c, err := turnpike.Dial("https://tp.example.com", turnpike.DialOptions{Token: os.Getenv("TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	log.Print(ask(context.Background(), c, "ticket-7", "Order 7 broke."))
}
