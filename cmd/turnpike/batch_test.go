package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
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

// The reader of lines reuses its memory, but each run keeps its own input.
func TestReadRunsKeepsEachInput(t *testing.T) {
	t.Parallel()
	var want []string
	for i := range state.MaxBatch / 2 { // more bytes than one read has
		want = append(want, fmt.Sprintf(`["input %d"]`, i), fmt.Sprintf(`"input %d"`, i))
	}
	runs, err := readRuns(strings.NewReader(strings.Join(want, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range runs {
		got = append(got, string(r.Input))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("inputs:\n%s", diff)
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

// batch --wait prints each run as it ends, and exits with the code of the worst; a run that was deleted since counts.
func TestBatchWaits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		ends    string
		deleted string // the status of a run that was deleted
		code    exitError
		counts  string
	}{
		{"completed completed", "", 0, "2 completed"},
		{"completed cancelled", "", exitCancelled, "1 completed, 1 cancelled"},
		{"cancelled incomplete", "", exitIncomplete, "1 incomplete, 1 cancelled"},
		{"failed incomplete cancelled completed", "", exitFailed, "1 completed, 1 incomplete, 1 failed, 1 cancelled"},
		{"completed", "cancelled", exitCancelled, "1 completed, 1 cancelled"},
		{"cancelled", "failed", exitFailed, "1 failed, 1 cancelled"},
	} {
		b := api.Batch{ID: "batch_1", MaxParallel: 2, Counts: map[string]int{}, Done: true}
		ends := strings.Fields(test.ends)
		for i, status := range ends {
			b.Items = append(b.Items, api.BatchRun{Index: i, ID: fmt.Sprint("run_", i), Status: status})
			b.Counts[status]++
		}
		if b.Total = len(ends); test.deleted != "" {
			b.Counts[test.deleted]++
			b.Total, b.Deleted = b.Total+1, 1
		}
		mux := http.NewServeMux()
		give := func(path string, value func(*http.Request) any) {
			mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
				if err := json.NewEncoder(w).Encode(value(r)); err != nil {
					t.Error(err)
				}
			})
		}
		give("POST /v1/runs:batch", func(*http.Request) any { return api.BatchAccepted{BatchID: "batch_1", RunIDs: make([]string, b.Total)} })
		give("GET /v1/batches/batch_1", func(*http.Request) any { return b })
		give("GET /v1/runs/{id}", func(r *http.Request) any {
			i, _ := strconv.Atoi(strings.TrimPrefix(r.PathValue("id"), "run_"))
			return api.Run{ID: r.PathValue("id"), Status: ends[i], Output: new("out\nmore")}
		})
		s := httptest.NewServer(mux)
		for _, asJSON := range []bool{false, true} {
			var out bytes.Buffer
			args := []string{"batch", "a", "-", "--wait"}
			if asJSON {
				args = append(args, "-o", "json")
			}
			err := execute(t, api.New(s.URL), strings.NewReader("one\ntwo\n"), &out, args...)
			code, _ := errors.AsType[exitError](err)
			if code != test.code || code == 0 && err != nil {
				t.Errorf("%+v: %v, want exit code %d", test, err, test.code)
			}
			var want []string
			for i, end := range ends {
				if want = append(want, fmt.Sprintf("%d/%d  run_%d  %s  out…", i+1, b.Total, i, end)); asJSON {
					want[i] = fmt.Sprint("run_", i, " ", end)
				}
			}
			got := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
			if asJSON {
				for i, line := range got {
					var run api.Run
					if err := json.Unmarshal([]byte(line), &run); err != nil {
						t.Error(err)
					}
					got[i] = run.ID + " " + run.Status
				}
			} else {
				want = append(append([]string{"batch batch_1"}, want...), fmt.Sprintf("%d runs, at most 2 at once: %s", b.Total, test.counts))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%+v, JSON: %v (-want +got):\n%s", test, asJSON, diff)
			}
		}
		s.Close()
	}
}

// The commands that follow one run exit with the code of its end, and with another one if it waits.
func TestExitCodeOfARun(t *testing.T) {
	t.Parallel()
	for status, want := range map[state.Status]exitError{
		state.Completed: 0, state.Incomplete: 3, state.Failed: 4, state.Cancelled: 5, state.Waiting: 6, state.Queued: 6,
	} {
		err := exitOf(api.Run{Status: string(status)})
		if code, _ := errors.AsType[exitError](err); code != want || code == 0 && err != nil {
			t.Errorf("%s: %v, want exit code %d", status, err, want)
		}
	}
}
