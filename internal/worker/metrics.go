package worker

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/engine/admission"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/internal/timelimit"
)

// metrics of a worker besides those of its turns and their effects.
type metrics struct {
	swept prometheus.Counter
}

func newMetrics(r *prometheus.Registry, calls *timelimit.Calls, answers, views *admission.Answers, waiting *restore.Watch) (*metrics, error) {
	m := &metrics{
		swept: prometheus.NewCounter(prometheus.CounterOpts{Name: "turnpike_sweeper_publishes_total", Help: "Turns published by the sweeper: lost messages and lost workers."}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{
		m.swept,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "turnpike_abandoned_calls", Help: "Calls of tools, hooks and models that ignore that their time is over, and still run."},
			func() float64 { return float64(calls.Abandoned()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "turnpike_answer_bytes", Help: "Memory reserved for the answers of tools."},
			func() float64 { return float64(answers.Bytes()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "turnpike_view_bytes", Help: "Memory reserved for the histories of runs above 256 KiB."},
			func() float64 { return float64(views.Bytes()) }),
	} {
		errs = append(errs, r.Register(c))
	}
	// The gateway of the same process may have it.
	err := r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "turnpike_" + restore.Name, Help: restore.MetricText}, func() float64 {
		if waiting.Waiting() {
			return 1
		}
		return 0
	}))
	if _, twice := errors.AsType[prometheus.AlreadyRegisteredError](err); !twice {
		errs = append(errs, err)
	}
	return m, errors.Join(errs...)
}
