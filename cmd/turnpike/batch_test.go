package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A line of a batch is a text, an input or a whole submission (L8).
func TestReadRuns(t *testing.T) {
	t.Parallel()
	runs, err := readRuns(strings.NewReader("plain text\n\n  42 \n\"[urgent] \\u00e9\"\n[{\"role\":\"user\",\"content\":\"x\"}]\r\n{\"agent\":\"other\",\"input\":\"y\",\"priority\":\"low\"}"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range runs {
		got = append(got, r.Agent+" "+string(r.Input)+" "+r.Priority)
	}
	want := []string{` "plain text" `, ` "42" `, ` "[urgent] \u00e9" `, ` [{"role":"user","content":"x"}] `, `other "y" low`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs:\n%s", diff)
	}
	for in, says := range map[string]string{
		"":                             "no input",
		" \n\n":                        "no input",
		"ok\n[urgent] do it":           "line 2: the input begins with [",
		"\n{\"imput\":\"x\"}":          `line 2: unknown field "imput"`,
		"{\"input\":":                  "line 1: the JSON is incomplete",
		strings.Repeat("x", maxLine+1): "line 1 is longer than 1048576 bytes",
		strings.Repeat("x\n", 1001):    "1001 inputs",
	} {
		if _, err := readRuns(strings.NewReader(in)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("readRuns(%.20q) = %v, want %q", in, err, says)
		}
	}
}

// The longest line may have a line feed or end the input.
func TestReadRunsWithTheLongestLine(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"", "\n", "\ny"} {
		if _, err := readRuns(strings.NewReader(strings.Repeat("x", maxLine) + end)); err != nil {
			t.Errorf("with %q at the end: %v", end, err)
		}
	}
}

func TestFirstLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", " a\nb": "a…", "a\n": "a", strings.Repeat("é", 81): strings.Repeat("é", 80) + "…",
	} {
		if got := firstLine(in); got != want {
			t.Errorf("firstLine(%q) = %q, want %q", in, got, want)
		}
	}
}
