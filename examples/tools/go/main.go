// Convert is a tool in Go for agents of any deployment: it converts quantities.
//
//	go run ./examples/tools/go
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// query is what the model must say. The JSON Schema is made of it.
type query struct {
	Value float64 `json:"value"`
	From  string  `json:"from" jsonschema:"unit of the value: m, km, ft, mi, g, kg, lb, C, F or K"`
	To    string  `json:"to" jsonschema:"unit to convert to"`
}

type answer struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

// unit converts a unit to the base unit of its kind, by a factor and an offset.
type unit struct {
	kind           string
	factor, offset float64
}

var units = map[string]unit{
	"m": {"length", 1, 0}, "km": {"length", 1000, 0}, "ft": {"length", 0.3048, 0}, "mi": {"length", 1609.344, 0},
	"g": {"mass", 1, 0}, "kg": {"mass", 1000, 0}, "lb": {"mass", 453.59237, 0},
	"C": {"temperature", 1, 273.15}, "F": {"temperature", 5.0 / 9, 459.67 * 5 / 9}, "K": {"temperature", 1, 0},
}

// convert depends on nothing but its arguments, so it may be called twice for one
// call. A tool that changes the world keeps call.IdempotencyKey with the change.
func convert(ctx context.Context, _ toolkit.Call, q query) (answer, error) {
	from, ok := units[q.From]
	to, known := units[q.To]
	switch {
	case !ok || !known:
		return answer{}, fmt.Errorf("unknown unit: from %q to %q: use m, km, ft, mi, g, kg, lb, C, F or K", q.From, q.To)
	case from.kind != to.kind:
		return answer{}, fmt.Errorf("a %s is not a %s: use two units of one kind", from.kind, to.kind)
	}
	// ctx ends at the call's deadline, and when the caller does not listen any more.
	select {
	case <-time.After(delay()):
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
	value := (q.Value*from.factor + from.offset - to.offset) / to.factor
	value, err := strconv.ParseFloat(strconv.FormatFloat(value, 'g', 10, 64), 64)
	return answer{value, q.To}, err
}

// delay makes calls slow, to see what happens when an instance dies.
func delay() time.Duration {
	ms, err := strconv.Atoi(os.Getenv("CONVERT_DELAY_MS"))
	if err != nil {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	tool := toolkit.Func("convert", "Converts a length, a mass or a temperature to another unit.", convert)
	var cfg toolkit.Config
	toolkit.FromEnv(&cfg)
	if err := toolkit.Run(ctx, cfg, tool); err != nil {
		log.Fatal(err) //nolint:gocritic // nothing is left to stop
	}
}
