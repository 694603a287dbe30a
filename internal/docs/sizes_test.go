package docs_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/engine/effect"
	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/internal/jsonschema"
	"github.com/turnpike-dev/turnpike/internal/memory"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// The page about sizes has the values in the code.
func TestSizes(t *testing.T) {
	t.Parallel()
	hasRows(t, "sizes.md", map[string]string{
		"a batch": fmt.Sprintf("%s runs", thousands(state.MaxBatch)),
		"`output_schema` of all runs of a batch": fmt.Sprintf("%s values, regular expressions of %s instructions, %s,000 bytes",
			thousands(jsonschema.MaxBatchValues), thousands(jsonschema.MaxAllPatterns), thousands(jsonschema.MaxBatchWeight/1000)),
		"signals that wait for a run's next turn": fmt.Sprintf("%s, with %d MiB together", thousands(state.MaxSignals), state.MaxSignalBytes>>20),
		"values of [variables]":                   fmt.Sprintf("%d KiB of JSON", agent.MaxVariableValues>>10),
		"an uploaded [file]":                      fmt.Sprintf("%d MiB", service.DefaultMaxFile>>20),
		"files of a tenant":                       thousands(file.MaxFiles),
		"a [memory]":                              fmt.Sprintf("%d KiB (`max_bytes`, at most %d KiB)", memory.DefaultBytes>>10, memory.MaxBytes>>10),
		"the text of a result":                    fmt.Sprintf("at most %d MiB unless", tool.MaxResult>>20),
		"images of a result":                      fmt.Sprintf("%d, with %d KiB", tool.MaxImages, tool.MaxImageBytes>>10),
		"[files](../how-to/files.md#files-from-tools) of a result": fmt.Sprintf("%d, with %d MiB", tool.MaxFiles, tool.MaxFileBytes>>20),
		"calls of tools in a response":                             thousands(effect.MaxCalls),
		"a definition":                                             fmt.Sprintf("%d MiB", agent.MaxDefinition>>20),
		"`hooks.max_stop_blocks`":                                  fmt.Sprintf("%d; default %d", agent.MaxMaxStopBlocks, agent.DefaultStopBlocks),
	})
}

// thousands formats a number below a million as the docs do.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// hasRows checks that in a page of the reference the row of a table that begins with each key contains its value.
func hasRows(t *testing.T, page string, rows map[string]string) {
	t.Helper()
	text, err := os.ReadFile(root + "/docs/reference/" + page)
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range rows {
		row := ""
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "| "+what) {
				row = line
			}
		}
		if !strings.Contains(row, want) {
			t.Errorf("%s: the row of %q is %q, want %q in it", page, what, row, want)
		}
	}
}
