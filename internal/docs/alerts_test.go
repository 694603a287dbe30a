package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The alert rules use existing metrics, cover every reason for which a run ends, and are in the docs, each with
// the remedy.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	rules, metrics, page, tests := read("deployments/prometheus/alerts.yaml"), read("docs/reference/metrics.md"), read("docs/how-to/alerts.md"), read("deployments/prometheus/alerts_test.yaml")
	for _, m := range regexp.MustCompile(`turnpike_\w+`).FindAllString(rules, -1) {
		if name := strings.TrimSuffix(m, "_count"); !strings.Contains(metrics, "`"+name) {
			t.Errorf("docs/reference/metrics.md has no metric %s", m)
		}
	}
	names := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(names) == 0 {
		t.Error("there are no alerts")
	}
	for _, m := range names {
		if !strings.Contains(page, "| `"+m[1]+"` | ") {
			t.Errorf("docs/how-to/alerts.md does not say what to do about %s", m[1])
		}
		if !strings.Contains(tests, "{alertname: "+m[1]+",") || !strings.Contains(tests, "- alertname: "+m[1]+"\n") {
			t.Errorf("alerts_test.yaml lacks a case in which %s is silent, or one in which it fires", m[1])
		}
	}
	var failed, ended []string
	for _, r := range state.Reasons() {
		status, _ := r.Status()
		if !r.Terminal() {
			continue
		}
		ended = append(ended, string(r))
		if status == state.Failed {
			failed = append(failed, string(r))
		}
	}
	expanded := strings.ReplaceAll(rules, "aborted_.*", "aborted_queued|aborted_streaming|aborted_tools|aborted_waiting")
	for _, m := range regexp.MustCompile(`turns_total\{reason=~"([^"]+)"`).FindAllStringSubmatch(expanded, -1) {
		got := strings.Split(m[1], "|")
		slices.Sort(got)
		if want := failed; len(got) == len(want) {
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("the reasons of failed runs are %s, want %s", got, want)
			}
			continue
		}
		slices.Sort(ended)
		if !slices.Equal(got, ended) {
			t.Errorf("the reasons of ended runs are %s, want %s", got, ended)
		}
	}
}
