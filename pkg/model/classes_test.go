package model

import (
	"bytes"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

var docs sync.Mutex

var update = flag.Bool("update", false, "rewrite docs/reference/models.md")

// The docs list every word and status by which failures are classified.
func TestWordsDoc(t *testing.T) {
	t.Parallel()
	var order []Class
	words, statuses := map[Class][]string{}, map[Class][]string{}
	for _, r := range rules {
		if !slices.Contains(order, r.class) {
			order = append(order, r.class)
		}
		for _, w := range r.words {
			w = "`" + w + "`"
			if r.detail != nil {
				w += " (by its details)"
			}
			if !slices.Contains(words[r.class], w) {
				words[r.class] = append(words[r.class], w)
			}
		}
		if r.status != 0 && r.status != http.StatusOK {
			statuses[r.class] = append(statuses[r.class], fmt.Sprint(r.status))
		}
	}
	statuses[Overloaded] = append(statuses[Overloaded], "other 5xx")
	statuses[InvalidRequest] = append(statuses[InvalidRequest], "other 4xx")
	statuses[Transport] = append(statuses[Transport], "3xx")
	for status, class := range map[int]Class{599: Overloaded, 418: InvalidRequest, 302: Transport} {
		if got := Classify(Failure{Status: status}).Class; got != class {
			t.Errorf("status %d is %s, the table says %s", status, got, class)
		}
	}
	var table strings.Builder
	table.WriteString("| class | `type`, `code` or `status` of the error | HTTP status |\n|---|---|---|\n")
	for _, c := range append(order, Transport) {
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", c, strings.Join(words[c], " "), strings.Join(statuses[c], ", "))
	}
	section(t, "words", table.String())
}

// section checks a generated part of docs/reference/models.md.
func section(t *testing.T, name, want string) {
	t.Helper()
	docs.Lock()
	defer docs.Unlock()
	const path = "../../docs/reference/models.md"
	doc, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := bytes.Cut(doc, []byte("<!-- "+name+": make generate -->\n"))
	have, after, closed := bytes.Cut(rest, []byte("<!-- end -->"))
	switch {
	case !found || !closed:
		t.Fatal("docs/reference/models.md has no section " + name)
	case string(have) == want:
	case !*update:
		t.Fatalf("docs/reference/models.md is stale: run `make generate`. Want\n%s", want)
	default:
		text := string(before) + "<!-- " + name + ": make generate -->\n" + want + "<!-- end -->" + string(after)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
