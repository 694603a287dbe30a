package app

import (
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-dev/turnpike/internal/deploy"
)

// maxMebibytes is the largest size that a setting may have, in MiB: a petabyte.
const maxMebibytes = 1 << 30

// Check returns an error if one of some settings is out of range, or if heartbeat, the interval of the workers'
// heartbeats, is too short, or too long for the lease. Call it before Open, which may change streams and consumers of
// the deployment.
func (c Config) Check(heartbeat time.Duration) error {
	errs := []error{
		positive("NATS_REPLICAS", c.Replicas), positive("LEASE", c.Lease), positive("MAX_RESULT", c.Results.MaxResult), positive("HEARTBEAT", heartbeat),
	}
	for _, s := range []struct {
		name string
		mib  int64
	}{
		{"SUBMIT_MIB", c.Streams.SubmitMiB}, {"CONTROL_MIB", c.Streams.ControlMiB}, {"DEAD_MIB", c.Streams.DeadMiB}, {"EVENTS_MIB", c.Streams.EventsMiB}, {"FILES_MIB", c.Streams.FilesMiB},
	} {
		if err := mebibytes(s.name, s.mib); err != nil && s.mib != -1 {
			errs = append(errs, fmt.Errorf("%w, or set -1 for no limit", err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return deploy.CheckLease(c.Lease, heartbeat)
}

// positive refuses a number below 1, which would silently be the default or mean something else.
func positive[N int | int64 | time.Duration](name string, n N) error {
	if n > 0 {
		return nil
	}
	return fmt.Errorf("TURNPIKE_%s is %v: set more than 0, or unset it for the default", name, n)
}

// mebibytes refuses a size in MiB that is not positive, or that does not fit into a number of bytes.
func mebibytes(name string, n int64) error {
	if n > maxMebibytes {
		return fmt.Errorf("TURNPIKE_%s is %d MiB: set at most %d", name, n, maxMebibytes)
	}
	return positive(name, n)
}

// within refuses a part that is larger than the whole: it would have no effect. A part that has its default is lowered
// to the whole.
func within[N int | int64](name string, part *N, byDefault N, whole string, most N) error {
	if *part > most && *part != byDefault {
		return fmt.Errorf("TURNPIKE_%s is %d, more than TURNPIKE_%s, which is %d: lower the first or raise the second", name, *part, whole, most)
	}
	*part = min(*part, most)
	return nil
}
