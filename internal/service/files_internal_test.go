package service

import (
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/file"
)

// A refused deletion names what the caller can delete: a batch itself cannot be deleted.
func TestFileInUse(t *testing.T) {
	t.Parallel()
	for want, used := range map[string]file.InUseError{
		"is used by run run_1: delete the run first":                                                                              {By: "run run_1"},
		"is used by schedule daily: delete the schedule first":                                                                    {By: "schedule daily"},
		"is used by batch batch_1, whose run run_2 exists: delete all runs of the batch first, which GET /v1/runs?batch=batch_1 ": {By: "batch batch_1", Run: "run_2"},
	} {
		if got := ProblemOf(fileError("file_1", &used)).Detail; !strings.HasPrefix(got, "file  "+want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
