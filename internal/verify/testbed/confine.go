package testbed

import (
	"testing"

	"github.com/turnpike-dev/turnpike/internal/tool/confine"
)

// Confinement returns a confinement of programs for tests of other features: if the system cannot
// confine programs, it starts them unconfined, and logs that.
func Confinement(tb testing.TB, cfg confine.Config) *confine.Confinement {
	tb.Helper()
	c, err := confine.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	if r := c.Report(); r.Err != nil {
		tb.Logf("programs run unconfined: %v", r.Err)
		cfg.Mode = confine.Off
		if c, err = confine.New(cfg); err != nil {
			tb.Fatal(err)
		}
	}
	return c
}

// ConfinementSetting is the setting of a process with the same meaning.
func ConfinementSetting(tb testing.TB) string {
	tb.Helper()
	mode := confine.Auto
	if Confinement(tb, confine.Config{}).Report().Mode == confine.Off {
		mode = confine.Off
	}
	return "TURNPIKE_MCP_CONFINEMENT=" + mode
}
