// Demo shows a run that survives the death of its worker. It needs no key, no server and
// no network, and links no provider of models, so that it is built soon.
//
//	go run ./examples/demo
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/turnpike-dev/turnpike/internal/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := demo.Main(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}
