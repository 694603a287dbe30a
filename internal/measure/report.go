package measure

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Report is the result of a measurement.
type Report struct {
	Store   string   `json:"store"`
	Profile string   `json:"profile"`
	Results []Result `json:"results"`

	Dir string `json:"-"` // with logs, if something failed
}

// Result is the result of one scenario.
type Result struct {
	Scenario string  `json:"scenario"`
	What     string  `json:"what"`
	Count    int     `json:"count"` // of the measured unit
	Seconds  float64 `json:"seconds"`

	Figures   []Figure  `json:"figures"`
	Processes []Process `json:"processes"`

	Failed   int      `json:"failed"`             // broken promises
	Failures []string `json:"failures,omitempty"` // the first few
}

// Process is the resource usage of one process of the deployment, from /proc.
type Process struct {
	Name       string  `json:"name"`
	CPUSeconds float64 `json:"cpu_seconds"`
	PeakMiB    float64 `json:"peak_mib"` // resident; includes the program's file, which processes share
}

// Figure is one measured figure.
type Figure struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
	Most  float64 `json:"most,omitempty"`  // target: at most; 0: none
	Least float64 `json:"least,omitempty"` // target: at least; 0: none
	Note  string  `json:"note,omitempty"`
	Floor *Floor  `json:"floor,omitempty"`
}

// Floor is the time that bare operations took on the same servers in the same minutes.
type Floor struct {
	Value float64 `json:"value"` // the median of its repetitions

	// Spread is the noise of the machine: the difference of the largest and the smallest repetition, over the
	// median.
	Spread float64 `json:"spread"`

	// Ratio is the figure over the floor. It is nil if the spread exceeds MaxSpread or there is a single
	// repetition: the machine was then too noisy.
	Ratio *float64 `json:"ratio,omitempty"`
}

// MaxSpread is the largest spread of a floor that figures are compared with.
const MaxSpread = 0.10

// compare creates a figure from repetitions and those of its floor, which may have none.
func compare(name, unit string, own, floor []float64) Figure {
	f := Figure{Name: name, Unit: unit, Value: quantile(own, 0.5)}
	if len(floor) == 0 {
		return f
	}
	middle := quantile(floor, 0.5)
	f.Floor = &Floor{Value: middle, Spread: 1}
	if middle > 0 { // otherwise the clock is too coarse
		f.Floor.Spread = (slices.Max(floor) - slices.Min(floor)) / middle
	}
	if ratio := f.Value / middle; len(floor) > 1 && f.Floor.Spread <= MaxSpread {
		f.Floor.Ratio = &ratio
	}
	return f
}

// missed reports whether the figure misses its target.
func (f Figure) missed() bool {
	return f.Most > 0 && f.Value > f.Most || f.Least > 0 && f.Value < f.Least
}

// String returns the figure as one line of text.
func (f Figure) String() string {
	cells := []string{fmt.Sprintf("%-64s %8s %-4s", f.Name, number(f.Value), f.Unit)}
	if f.Most > 0 {
		cells = append(cells, "want ≤ "+number(f.Most))
	}
	if f.Least > 0 {
		cells = append(cells, "want ≥ "+number(f.Least))
	}
	if f.missed() {
		cells = append(cells, "MISSED")
	}
	if f.Floor != nil {
		ratio := "no ratio: the machine is too noisy"
		if f.Floor.Ratio != nil {
			ratio = fmt.Sprintf("ratio %.2f", *f.Floor.Ratio)
		}
		cells = append(cells, fmt.Sprintf("floor %s, spread %.0f %%, %s", number(f.Floor.Value), 100*f.Floor.Spread, ratio))
	}
	if f.Note != "" {
		cells = append(cells, f.Note)
	}
	return strings.TrimRight(strings.Join(cells, "  "), " ")
}

// Failed reports whether a promise was broken.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Results, func(one Result) bool { return one.Failed > 0 })
}

// String returns the report as text.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "checkpoints in %s, profile %s\n", r.Store, r.Profile)
	for _, one := range r.Results {
		fmt.Fprintf(&b, "\n%s: %d %s; %.1f s, %d failures\n", one.Scenario, one.Count, one.What, one.Seconds, one.Failed)
		for _, f := range one.Figures {
			fmt.Fprintf(&b, "  %s\n", f)
		}
		for _, p := range one.Processes {
			fmt.Fprintf(&b, "  %-64s %8s s     at most %s MiB\n", p.Name+", processor time", number(p.CPUSeconds), number(p.PeakMiB))
		}
		for _, text := range one.Failures {
			fmt.Fprintf(&b, "  FAILED %s\n", text)
		}
	}
	if r.Failed() {
		fmt.Fprintf(&b, "\nlogs are in %s\n", r.Dir)
	}
	return strings.TrimRight(b.String(), "\n")
}

// number has three significant digits, or all before the point.
func number(v float64) string {
	switch {
	case v >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// quantile returns the value below which that share of all lies; NaN without any.
func quantile(all []float64, share float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

func mean(all []float64) (sum float64) {
	for _, v := range all {
		sum += v / float64(len(all))
	}
	return sum
}

// ms returns a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
