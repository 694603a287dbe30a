package gateway

import (
	"log/slog"
	"sync"
	"time"
)

// outageRepeat is the time after which the log has another line about a dependency that is still not
// ready.
const outageRepeat = time.Minute

// outages logs when a dependency is lost and when it is back. Probes come every few seconds, so a line
// for each would hide what else the log has.
type outages struct {
	log *slog.Logger

	mu   sync.Mutex
	lost map[string]*outage // by dependency
}

type outage struct {
	since, logged time.Time
	found         string
}

// note notes what a probe has found: err is nil if the dependency is ready.
func (o *outages) note(dependency, found string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, lost := time.Now(), o.lost[dependency]
	switch {
	case err == nil && lost != nil:
		delete(o.lost, dependency)
		o.log.Info("dependency is ready again", "dependency", dependency, "lost_ms", now.Sub(lost.since).Milliseconds())
		return
	case err == nil:
		return
	case lost == nil:
		lost = &outage{since: now}
		if o.lost == nil {
			o.lost = map[string]*outage{}
		}
		o.lost[dependency] = lost
	}
	if lost.found == found && now.Sub(lost.logged) < outageRepeat {
		return
	}
	lost.found, lost.logged = found, now
	o.log.Error("dependency "+found, "error", err, "dependency", dependency, "lost_ms", now.Sub(lost.since).Milliseconds(), "hint", "run `turnpike doctor`")
}
