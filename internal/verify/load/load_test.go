package load

import (
	"testing"
)

// small is the short form of each load.
var small = Sizes{Runs: 200, Turns: 100, Waiting: 200, Long: 60, History: 1_000_000, Readers: 20}

// No run fails under load, and no process needs more memory than there is reason for
// (I1, I2). The short form has the loads that end soon, on Redis.
func TestLoad(t *testing.T) {
	t.Parallel()
	programs, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	stores, only := []string{"redis", "jetstream"}, []string(nil)
	if testing.Short() {
		stores, only = stores[:1], []string{"runs", "readers"}
	}
	for _, store := range stores {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			report, err := Run(t.Context(), Config{Store: store, Only: only, Sizes: small, Dir: t.TempDir(), Bin: programs}, t.Output())
			if err != nil {
				t.Fatal(err)
			}
			t.Log("\n" + report.String())
			if report.Failed() {
				t.Error("something has failed")
			}
			for _, row := range report.Rows {
				for _, process := range []string{"gateway", "worker1"} {
					if peak := row.Peak(process); peak > residentLimit {
						t.Errorf("%s: %s needed %d MiB", row.Name, process, peak>>20)
					}
				}
			}
		})
	}
}
