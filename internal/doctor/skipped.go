package doctor

import (
	"fmt"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The checks that doctor cannot make without a connection, by the names of their findings.
var (
	streamChecks = []string{"nats: strict", "nats: turn streams", "nats: stream", "nats: consumer", "nats: streams of tenants", "nats: streams of files", "nats: messages that no process pulls"}
	busChecks    = append([]string{"nats: version", "nats: max_payload", "nats: replicas", "nats: signatures", "nats: jetstream", "nats: writes", "nats: turn messages", "workers", "gateways", "stores", "settings of processes", "bus keys"}, streamChecks...)
	agentChecks  = []string{"agents", "agent", "tools", "tool", "secret", "hook"}
)

// skips are checks that doctor could not make.
type skips struct {
	n    int
	text []string
}

// add adds checks that were not made, for the same reason.
func (s *skips) add(reason string, checks ...string) {
	s.n += len(checks)
	s.text = append(s.text, fmt.Sprintf("%s (%s)", strings.Join(checks, ", "), reason))
}

// findings returns the finding about the skipped checks, if there are any.
func (s *skips) findings() []state.Finding {
	if s.n == 0 {
		return nil
	}
	return []state.Finding{{Name: "skipped", Detail: fmt.Sprintf("%d checks: %s", s.n, strings.Join(s.text, "; ")), Remedy: "repair what is reported as the reason, and run doctor again"}}
}
