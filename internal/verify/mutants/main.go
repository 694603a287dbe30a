// Command mutants plants mistakes in production code, one at a time, and fails if the
// explorer does not find one. The tree is not touched: the compiler is told to read other
// files in place of those that are wrong.
//
//	go run ./internal/verify/mutants             # all
//	go run ./internal/verify/mutants -only fence # those whose names say so
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mutant is one mistake: in file, each first text becomes the one that follows it.
type mutant struct {
	name string
	file string
	text []string
	run  string // the tests that are to find it; with slashes as in -test.run
}

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
	for _, m := range all {
		if !wanted.MatchString(m.name) {
			continue
		}
		planted++
		began := time.Now()
		how, err := m.find(dir)
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
	fmt.Fprintf(w, "%d mistakes planted, %d found\n", planted, planted-len(missed))
	if len(missed) > 0 || planted == 0 {
		return fmt.Errorf("%d were planted, and these were not found: %s", planted, strings.Join(missed, ", "))
	}
	return nil
}

var errMissed = errors.New("not found")

// find builds the explorer with the mistake in it, and returns how it was found.
func (m mutant) find(dir string) (string, error) {
	overlay, err := m.overlay(dir)
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "explore.test")
	build := exec.Command("go", "test", "-c", "-overlay", overlay, "-o", bin, "./internal/verify/explore") //nolint:gosec // paths of our own
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	for _, form := range []string{"-prove=false", "-prove"} { // what is found in seconds is looked for first
		test := exec.Command(bin, "-test.run", m.run, "-test.failfast", "-test.parallel", "1", "-test.timeout", "20m", form) //nolint:gosec // as above
		test.Dir = filepath.Join("internal", "verify", "explore")
		out, err := test.CombinedOutput()
		if err == nil {
			continue
		}
		if !violation.Match(out) {
			return "", fmt.Errorf("the tests fail, but not by a violation: %w\n%s", err, out)
		}
		return string(out), nil
	}
	return "", errMissed
}

// violation is what the explorer says when an invariant is broken.
var violation = regexp.MustCompile(`\bI\d+: .*`)

// failed is what the tests say of the scenario.
var failed = regexp.MustCompile(`--- FAIL: Test(?:Explore/)?(\S+) `)

// head says in one line which test found a mistake, and how.
func head(how string) string {
	name := ""
	for _, m := range failed.FindAllStringSubmatch(how, -1) {
		name = m[1] // the innermost comes last
	}
	return name + ": " + violation.FindString(how)
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

// overlay writes the wrong file and what tells the compiler of it.
func (m mutant) overlay(dir string) (string, error) {
	src, err := m.apply(".")
	if err != nil {
		return "", err
	}
	wrong := filepath.Join(dir, "wrong.go")
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
