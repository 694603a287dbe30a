package e2e_test

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// exposed returns the names of the metrics that a process exports.
func exposed(body string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(body) {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, _, _ := strings.Cut(rest, " ")
			names[name] = true
		}
	}
	return names
}

// The metrics reference lists every metric of a gateway and of a worker, and they export what it lists.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	s := newDeployment(t, 0)
	addr := freeAddr(t)
	spawn(t, "worker", append(s.env, "TURNPIKE_METRICS_ADDR="+addr))
	s.definePlain()
	s.submitPlain("normal")

	both := []string{
		"go_goroutines", "go_memstats_heap_alloc_bytes", "process_resident_memory_bytes", "process_cpu_seconds_total", "turnpike_build_info",
		`turnpike_store_duration_seconds_count{operation=`, `turnpike_connected{dependency="nats"} 1`, `turnpike_connected{dependency="store"} 1`,
	}
	for url, own := range map[string][]string{
		s.url + "/metrics": {
			`turnpike_http_request_duration_seconds_count{route="POST /v1/runs"} 1`, `turnpike_http_requests_total{code="202",route="POST /v1/runs"} 1`,
			`turnpike_runs{status="completed"} 1`, `turnpike_runs{status="queued"} 0`, "turnpike_deletion_backlog 0", "turnpike_runs_deleted_total 0",
		},
		"http://" + addr + "/metrics": {`turnpike_store_duration_seconds_count{operation="commit"} 1`, `turnpike_turns_total{reason="completed"} 1`},
	} {
		var body string
		eventually(t, "metrics at "+url, func() error {
			var err error
			_, body, err = get(t, url)
			for _, line := range append(own, both...) {
				if !strings.Contains(body, "\n"+line) {
					err = errors.Join(err, fmt.Errorf("%s is missing", line))
				}
			}
			return err
		})
		for name := range exposed(body) {
			if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
				continue
			}
			known := regexp.MustCompile("`"+name+"[`{]").Match(page) || strings.HasPrefix(name, "turnpike_rate_limit_") && strings.Contains(string(page), "`turnpike_rate_limit_…`")
			if !known {
				t.Errorf("docs/reference/metrics.md lacks %s of %s", name, url)
			}
		}
	}
}
