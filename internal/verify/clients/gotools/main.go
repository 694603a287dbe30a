// The command gotools serves the tools of clients/cases/tools.json with pkg/toolkit.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

type greetArgs struct {
	Name  string `json:"name" jsonschema:"who is greeted"`
	Times int    `json:"times,omitempty"`
	Loud  bool   `json:"loud,omitempty"`
}

type greeting struct {
	Text string `json:"text"`
}

type addArgs struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

type failArgs struct {
	Text string `json:"text"`
}

type largeArgs struct {
	Bytes int `json:"bytes"`
}

type stepArgs struct {
	N int `json:"n"`
}

type nothing struct{}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var cfg toolkit.Config
	toolkit.FromEnv(&cfg)
	if err := toolkit.Run(ctx, cfg, tools()...); err != nil {
		log.Fatal(err) //nolint:gocritic // the process ends
	}
}

func tools() []toolkit.Tool {
	released := make(chan struct{})
	go func() { // ends with the first line of the input
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		close(released)
	}()
	var mu sync.Mutex
	cancelled := []string{}
	endless := func(ctx context.Context, c toolkit.Call, _ nothing) (string, error) {
		toolkit.Progress(ctx, "begun")
		<-ctx.Done()
		mu.Lock()
		defer mu.Unlock()
		cancelled = append(cancelled, c.IdempotencyKey)
		return "", ctx.Err()
	}
	return []toolkit.Tool{
		toolkit.Func("greet", "Greets a person.", func(_ context.Context, _ toolkit.Call, in greetArgs) (greeting, error) {
			text := strings.Repeat("Hello "+in.Name+"!", max(in.Times, 1))
			if in.Loud {
				text = strings.ToUpper(text)
			}
			return greeting{text}, nil
		}),
		toolkit.Func("add", "Adds two numbers.", func(_ context.Context, _ toolkit.Call, in addArgs) (float64, error) { return in.A + in.B, nil }),
		toolkit.Func("whoami", "", func(_ context.Context, c toolkit.Call, _ nothing) (map[string]string, error) {
			return map[string]string{"call": c.CallID, "run": c.RunID, "key": c.IdempotencyKey}, nil
		}),
		toolkit.Func("fails", "", func(_ context.Context, _ toolkit.Call, in failArgs) (string, error) { return "", errors.New(in.Text) }),
		toolkit.Func("breaks", "", func(context.Context, toolkit.Call, nothing) (string, error) { panic("out of order") }),
		toolkit.Func("odd", "", func(context.Context, toolkit.Call, nothing) (any, error) { return make(chan int), nil }),
		toolkit.Func("nothing", "", func(context.Context, toolkit.Call, nothing) (any, error) { return nil, nil }),
		toolkit.Func("later", "", func(context.Context, toolkit.Call, nothing) (toolkit.Result, error) {
			return toolkit.Result{Pending: true}, nil
		}),
		toolkit.Func("draw", "", func(context.Context, toolkit.Call, nothing) (toolkit.Result, error) {
			return toolkit.Result{Content: "a picture", Images: []toolkit.Image{{MediaType: "image/png", Data: "aGk="}}, Files: []toolkit.File{{Name: "a.pdf", MediaType: "application/pdf", Data: "JVBERg=="}}}, nil
		}),
		toolkit.Func("large", "", func(_ context.Context, _ toolkit.Call, in largeArgs) (string, error) {
			return strings.Repeat("x", in.Bytes), nil
		}),
		toolkit.Func("steps", "", func(ctx context.Context, _ toolkit.Call, in stepArgs) (string, error) {
			for i := range in.N {
				toolkit.Progress(ctx, fmt.Sprintf("step %d of %d:\nkön", i+1, in.N))
			}
			return "done", nil
		}),
		toolkit.Func("hold", "Waits until the program reads a line.", func(_ context.Context, c toolkit.Call, _ nothing) (string, error) {
			<-released
			return c.IdempotencyKey, nil
		}),
		toolkit.Func("endless", "Waits until it is cancelled.", endless),
		toolkit.Func("endless_thread", "The same: other languages have two kinds of functions.", endless),
		toolkit.Func("ended", "Returns the keys of the calls that were cancelled.", func(context.Context, toolkit.Call, nothing) ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			return append([]string{}, cancelled...), nil
		}),
	}
}
