package api_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// The error codes and their documentation agree in both directions.
func TestCodesAreDocumented(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("problem.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/reference/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	defined, documented := map[string]bool{}, map[string]bool{}
	for _, m := range regexp.MustCompile(`Code\w+ += "(\w+)"`).FindAllSubmatch(source, -1) {
		defined[string(m[1])] = true
	}
	for line := range strings.Lines(string(page)) {
		if cells := strings.Split(line, "|"); len(cells) > 1 {
			for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(cells[1], -1) {
				documented[m[1]] = true
			}
		}
	}
	delete(documented, "code") // the head of the table
	if !maps.Equal(defined, documented) || len(defined) == 0 {
		t.Errorf("codes defined (-) and documented (+):\n%s", cmp.Diff(defined, documented))
	}
}

// The example on the documentation page is what the API returns.
func TestExampleOfAnError(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/errors.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```json\n")
	example, _, _ = strings.Cut(example, "```")
	var p api.Problem
	if err := json.Unmarshal([]byte(example), &p); err != nil {
		t.Fatal(err)
	}
	err = api.Decode([]byte(`{"agent": "hello", "inputt": "hi"}`), &api.SubmitRequest{})
	if err == nil || err.Error() != p.Detail {
		t.Errorf("the page has %q, the API %v", p.Detail, err)
	}
}
