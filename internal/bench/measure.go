package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Row is one figure of a measurement.
type Row struct {
	Measure string  `json:"measure"`
	What    string  `json:"what"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Target  string  `json:"target,omitempty"`
	Floor   float64 `json:"floor,omitempty"` // what bare operations took in the same run
	Note    string  `json:"note,omitempty"`
}

// measure is a part of the benchmark that has a deployment of its own.
type measure struct {
	name string
	run  func(ctx context.Context, cfg Config, add func(Row)) error
}

func measures() []measure {
	return []measure{
		{"history", history},
		{"parked", parked},
		{"abort", abort},
		{"submit", submit},
		{"readers", readers},
		{"scale", scale},
		{"fair", fair},
		{"start", start},
		{"size", size},
		{"stream", stream},
		{"steady", steady},
	}
}

// names of all parts, the turns first.
func names() []string {
	all := []string{"turns"}
	for _, m := range measures() {
		all = append(all, m.name)
	}
	return all
}

// Check refuses to measure what there is not.
func (c Config) Check() error {
	_, err := c.chosen()
	return err
}

// chosen returns the parts that are asked for.
func (c Config) chosen() (map[string]bool, error) {
	want := map[string]bool{}
	for _, name := range c.Only {
		switch {
		case name == "all":
			for _, n := range names() {
				want[n] = true
			}
		case slices.Contains(names(), name):
			want[name] = true
		default:
			return nil, fmt.Errorf("bench measures no %q, but all, %s", name, strings.Join(names(), ", "))
		}
	}
	return want, nil
}

// table returns rows for people, a table for each measurement.
func table(rows []Row) string {
	var b strings.Builder
	last := ""
	for _, r := range rows {
		if r.Measure != last {
			fmt.Fprintf(&b, "\n%-64s %12s %-8s %10s %10s %8s\n", r.Measure, "measured", "", "to reach", "floor", "ratio")
			last = r.Measure
		}
		floor, ratio := "", ""
		if r.Floor != 0 {
			floor, ratio = number(r.Floor), fmt.Sprintf("%.2f", r.Value/r.Floor)
		}
		line := fmt.Sprintf("  %-62s %12s %-8s %10s %10s %8s  %s", r.What, number(r.Value), r.Unit, r.Target, floor, ratio, r.Note)
		fmt.Fprintln(&b, strings.TrimRight(line, " "))
	}
	return strings.Trim(b.String(), "\n")
}

// number has three digits that count, or all before the point.
func number(v float64) string {
	switch {
	case v >= 100 || v == float64(int64(v)):
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// measureAll runs the chosen measurements, one after the other. progress hears how
// long each took.
func measureAll(ctx context.Context, cfg Config, want map[string]bool, progress io.Writer) (rows []Row, err error) {
	for _, m := range measures() {
		if !want[m.name] {
			continue
		}
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, 5*patience)
		err := m.run(limited, cfg, func(r Row) {
			r.Measure = m.name
			rows = append(rows, r)
		})
		cancel()
		if err != nil {
			return rows, fmt.Errorf("%s: %w", m.name, err)
		}
		fmt.Fprintf(progress, "%s: %s\n", m.name, time.Since(began).Round(100*time.Millisecond))
	}
	return rows, nil
}
