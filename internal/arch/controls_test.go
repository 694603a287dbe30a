package arch

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	control   = regexp.MustCompile(`^\| (\d+) \|`)
	namedFile = regexp.MustCompile("`([^`]+)`")
	namedTest = regexp.MustCompile(`\bTest\w+`)
)

// The table of controls names files and tests that there are, and tells of each control where
// it is or what is missing.
func TestControlsAreWhereTheTableSays(t *testing.T) {
	t.Parallel()
	const page = "docs/concepts/security.md"
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		if !control.MatchString(line) || !strings.Contains(string(text), "## Controls") || strings.Count(line, "|") != 7 {
			continue
		}
		rows++
		cells := strings.Split(line, "|")
		name, state, where, shown, missing := strings.TrimSpace(cells[1]), strings.TrimSpace(cells[3]), cells[4], cells[5], strings.TrimSpace(cells[6])
		if name != fmt.Sprint(rows) {
			t.Errorf("%s: control %s stands where %d should", page, name, rows)
		}
		files := namedFile.FindAllStringSubmatch(where, -1)
		switch {
		case (state == "whole" || state == "part") && (len(files) == 0 || strings.TrimSpace(shown) == ""):
			t.Errorf("%s: control %s is %s, and has no place or nothing that shows it", page, name, state)
		case state == "whole" && missing != "", (state == "part" || state == "later") && missing == "":
			t.Errorf("%s: control %s is %s, and %q is missing", page, name, state, missing)
		}
		for _, f := range files {
			if _, err := os.Stat("../../" + f[1]); err != nil {
				t.Errorf("%s: control %s is said to be in %s: %v", page, name, f[1], err)
			}
		}
		for part := range strings.SplitSeq(shown, ",") {
			f := namedFile.FindStringSubmatch(part)
			if f == nil {
				continue
			}
			code, err := os.ReadFile("../../" + f[1])
			if err != nil {
				t.Errorf("%s: control %s: %v", page, name, err)
				continue
			}
			tests := namedTest.FindAllString(part[strings.LastIndexByte(part, '`'):], -1)
			if strings.HasSuffix(f[1], "_test.go") && len(tests) == 0 {
				t.Errorf("%s: control %s names no test of %s", page, name, f[1])
			}
			for _, test := range tests {
				if !strings.Contains(string(code), "\nfunc "+test+"(") {
					t.Errorf("%s: control %s: %s has no %s", page, name, f[1], test)
				}
			}
		}
	}
	if rows != 30 {
		t.Errorf("%s has %d controls, want 30", page, rows)
	}
}
