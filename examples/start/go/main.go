// A tool: agents call it by its name while this program runs.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

type query struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit" jsonschema:"of the value: m, km, ft or mi"`
	To    string  `json:"to" jsonschema:"unit to convert to"`
}

type length struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

var meters = map[string]float64{"m": 1, "km": 1000, "ft": 0.3048, "mi": 1609.344}

func convert(_ context.Context, _ toolkit.Call, in query) (length, error) {
	for _, unit := range []string{in.Unit, in.To} {
		if meters[unit] == 0 {
			return length{}, fmt.Errorf("unknown unit %q: use m, km, ft or mi", unit)
		}
	}
	const digits = 10
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(in.Value*meters[in.Unit]/meters[in.To], 'g', digits, 64), 64)
	return length{rounded, in.To}, err
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var cfg toolkit.Config
	toolkit.FromEnv(&cfg)
	if err := toolkit.Run(ctx, cfg, toolkit.Func("convert", "Converts a length to another unit.", convert)); err != nil {
		log.Fatal(err)
	}
}
