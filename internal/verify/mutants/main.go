// Command mutants plants mistakes in production code, one at a time, and fails if the tests
// that each mistake names do not find it. The tree stays as it is: the compiler reads the
// wrong file through an overlay, Lua scripts included.
//
//	go run ./internal/verify/mutants             # all
//	go run ./internal/verify/mutants -only fence # the mistakes with a matching name
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// mutant is one mistake: in file, each first text becomes the one that follows it.
type mutant struct {
	name string
	file string
	text []string
	run  string // the tests that must find it, as in -test.run
}

// group is the mistakes that the tests of one package must find.
type group struct {
	pkg      string
	mistakes []mutant
}

// explorer is the package of tests that explores the protocol.
const explorer = "internal/verify/explore"

// groups are all mistakes.
var groups = slices.Concat([]group{{explorer, all}}, packages)

func main() {
	only := flag.String("only", "", "plant those only whose names match this expression")
	verbose := flag.Bool("v", false, "say how each was found")
	flag.Parse()
	if err := plant(os.Stdout, *only, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func plant(w io.Writer, only string, verbose bool) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	planted, missed := 0, []string{}
	for _, g := range groups {
		for _, m := range g.mistakes {
			if !wanted.MatchString(m.name) {
				continue
			}
			planted++
			began := time.Now()
			how, err := m.find(dir, g.pkg)
			switch {
			case errors.Is(err, errMissed):
				missed = append(missed, m.name)
				fmt.Fprintf(w, "MISSED  %s (%s)\n", m.name, time.Since(began).Round(time.Second))
				continue
			case err != nil:
				return fmt.Errorf("%s: %w", m.name, err)
			}
			fmt.Fprintf(w, "found   %s (%s): %s\n", m.name, time.Since(began).Round(time.Second), head(how))
			if verbose {
				fmt.Fprintln(w, how)
			}
		}
	}
	fmt.Fprintf(w, "%d mistakes planted, %d found\n", planted, planted-len(missed))
	if len(missed) > 0 || planted == 0 {
		return fmt.Errorf("%d were planted, and these were not found: %s", planted, strings.Join(missed, ", "))
	}
	return nil
}

var errMissed = errors.New("not found")

// find builds the tests with the mistake in the code, and returns their output if they fail.
func (m mutant) find(dir, pkg string) (string, error) {
	overlay, err := m.overlay(dir)
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "mutant.test")
	build := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", bin, "./"+pkg) //nolint:gosec // paths of our own
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	args, found := []string{"-test.run", m.run, "-test.failfast", "-test.timeout", "20m"}, failed
	forms := [][]string{{"-test.short", "-test.timeout", "2m"}}
	if pkg == explorer {
		args, found = append(args, "-test.parallel", "1"), violation
		forms = [][]string{{"-prove=false"}, {"-prove"}} // try the quick forms first
	}
	for _, form := range forms {
		test := exec.Command(bin, append(slices.Clone(args), form...)...) //nolint:gosec // as above
		test.Dir = filepath.FromSlash(pkg)
		out, err := test.CombinedOutput()
		if bytes.Contains(out, []byte("no tests to run")) {
			return "", fmt.Errorf("%s has no test %s", pkg, m.run)
		}
		if err == nil {
			continue
		}
		if !found.Match(out) {
			return "", fmt.Errorf("the tests fail, but not as they should: %w\n%s", err, out)
		}
		return string(out), nil
	}
	return "", errMissed
}

// violation matches the explorer's report of a violated invariant.
var violation = regexp.MustCompile(`\bI\d+: .*`)

// failed is the line of a test that fails. A mistake may also make a test hang.
var failed = regexp.MustCompile(`--- FAIL: Test(?:Explore/)?(\S+) |panic: test timed out`)

// head returns one line that names the test that found a mistake, and how.
func head(how string) string {
	name := ""
	for _, m := range failed.FindAllStringSubmatch(how, -1) {
		name = cmp.Or(m[1], "timeout") // the innermost comes last
	}
	return strings.TrimSuffix(name+": "+violation.FindString(how), ": ")
}

// apply returns the file with the mistake in it.
func (m mutant) apply(root string) ([]byte, error) {
	src, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return nil, err
	}
	for i := 0; i < len(m.text); i += 2 {
		if n := bytes.Count(src, []byte(m.text[i])); n != 1 {
			return nil, fmt.Errorf("%s has %d places like %q, want 1: the code has changed, and the mutant must follow", m.file, n, m.text[i])
		}
		src = bytes.Replace(src, []byte(m.text[i]), []byte(m.text[i+1]), 1)
	}
	return src, nil
}

// overlay writes the wrong file and the overlay description for the compiler.
func (m mutant) overlay(dir string) (string, error) {
	src, err := m.apply(".")
	if err != nil {
		return "", err
	}
	wrong := filepath.Join(dir, "wrong"+filepath.Ext(m.file))
	if err := os.WriteFile(wrong, src, 0o600); err != nil {
		return "", err
	}
	path, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(map[string]map[string]string{"Replace": {path: wrong}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}
