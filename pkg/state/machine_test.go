package state

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite docs/reference/state-machine.md")

const machineDoc = "../../docs/reference/state-machine.md"

// The diagram in the docs matches the table in the code.
func TestStateMachineDoc(t *testing.T) {
	t.Parallel()
	want := renderMachine()
	if *update {
		if err := os.WriteFile(machineDoc, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(machineDoc)
	if err != nil || !bytes.Equal(have, want) {
		t.Fatalf("docs/reference/state-machine.md is stale (%v): run `make generate`", err)
	}
}

func renderMachine() []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, "# State machine\n\nA queued run whose worker commits a wait for an approval goes from `queued` to `waiting`, with the reason\n`waiting_approval`. This page has every move that a run can make; one that is not here cannot be made. It is generated\nfrom the table `edges` in pkg/state/reason.go by `make generate`.")
	fmt.Fprintln(&b, "\nA claim leaves a queued run `running`; a signal or the end of a delay makes a waiting run `queued`. Neither is a\ntransition, so the machine knows the statuses between commits only.")
	fmt.Fprintln(&b, "\n```mermaid\nstateDiagram-v2")
	counts := map[string]int{}
	var order []string
	for _, e := range edges {
		for _, from := range e.from {
			arrow := fmt.Sprintf("    %s --> %s", node(from), node(e.to))
			if counts[arrow] == 0 {
				order = append(order, arrow)
			}
			counts[arrow]++
		}
	}
	for _, arrow := range order {
		fmt.Fprintf(&b, "%s : %d reason(s)\n", arrow, counts[arrow])
	}
	fmt.Fprintln(&b, "```\n\n| reason | from | to |\n|---|---|---|")
	for _, e := range edges {
		from := make([]string, len(e.from))
		for i, f := range e.from {
			from[i] = node(f)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", e.reason, strings.Join(from, ", "), node(e.to))
	}
	return b.Bytes()
}

func node(s Status) string {
	if s == "" {
		return "[*]"
	}
	return string(s)
}
