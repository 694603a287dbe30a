package gateway_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

const nightly = `{"cron": "0 9 * * MON-FRI", "timezone": "Europe/Berlin", "run": {"agent": "a", "input": "go"}, "overlap": "skip", "jitter": "30s", "catch_up": "10m"}`

// A schedule can be stored, read, paused, run and deleted over HTTP.
func TestSchedules(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	author := s.client("acme", access.Author, access.Submitter, access.Viewer)
	if _, err := author.PutAgent(t.Context(), "a", []byte(talker)); err != nil {
		t.Fatal(err)
	}
	var settings api.ScheduleSettings
	if err := api.Decode([]byte(nightly), &settings); err != nil {
		t.Fatal(err)
	}
	made, err := author.PutSchedule(t.Context(), "nightly", settings)
	if err != nil || made.Name != "nightly" || made.Timezone != "Europe/Berlin" || len(made.Next) != 5 || made.UpdatedBy == "" {
		t.Fatalf("PutSchedule: %+v, %v", made, err)
	}
	if h := made.Next[0].UTC().Hour(); h != 7 && h != 8 {
		t.Errorf("it fires next at %v, want 9 o'clock in Berlin", made.Next[0])
	}
	page, err := author.Schedules(t.Context(), "", 0)
	if err != nil || len(page.Items) != 1 || page.Items[0].Name != "nightly" {
		t.Errorf("Schedules: %+v, %v", page, err)
	}
	if paused, err := author.PauseSchedule(t.Context(), "nightly"); err != nil || !paused.Paused || len(paused.Next) != 0 {
		t.Errorf("PauseSchedule: %+v, %v", paused, err)
	}
	run, err := author.RunSchedule(t.Context(), "nightly", "k")
	again, err2 := author.RunSchedule(t.Context(), "nightly", "k")
	if err != nil || err2 != nil || run.ID != again.ID || run.Metadata["schedule"] != "nightly" || run.Metadata["scheduled_at"] == "" {
		t.Errorf("RunSchedule: %+v, %v; again: %+v, %v", run, err, again, err2)
	}
	if resumed, err := author.ResumeSchedule(t.Context(), "nightly"); err != nil || resumed.Paused || len(resumed.Next) != 5 {
		t.Errorf("ResumeSchedule: %+v, %v", resumed, err)
	}
	if err := author.DeleteSchedule(t.Context(), "nightly"); err != nil {
		t.Error(err)
	}
	if _, err := author.Schedule(t.Context(), "nightly"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("a deleted schedule: %v", err)
	}
}

// Invalid settings are refused with the location and the remedy.
func TestScheduleRefusals(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	author := s.client("acme", access.Author)
	if _, err := author.PutAgent(t.Context(), "a", []byte(talker)); err != nil {
		t.Fatal(err)
	}
	token := s.key("acme", access.Author)
	for from, to := range map[[2]string]string{
		{`"0 9 * * MON-FRI"`, `"9 o'clock"`}:                                   "five fields",
		{`"Europe/Berlin"`, `"Berlin"`}:                                        "timezone",
		{`"agent": "a"`, `"agent": "nobody"`}:                                  "run: ",
		{`"input": "go"`, `"input": 7`}:                                        "run: ",
		{`"input": "go"`, `"input": "go", "priority": "soon"`}:                 "run: ",
		{`"input": "go"`, `"input": "go", "start_at": "2030-01-01T00:00:00Z"`}: "run.start_at",
		{`"input": "go"`, `"input": "go", "metadata": {"schedule": "x"}`}:      "run.metadata.schedule",
		{`"skip"`, `"never"`}:                                                  "overlap",
		{`"30s"`, `"25h"`}:                                                     "jitter",
		{`"30s"`, `"500us"`}:                                                   "jitter",
		{`"30s"`, `"-1s"`}:                                                     "jitter",
		{`"10m"`, `"10s"`}:                                                     "catch_up",
		{`"10m"`, `"0s"`}:                                                      "catch_up is 0s",
		{`"cron"`, `"crom"`}:                                                   "crom",
		{`"go"`, `"` + strings.Repeat("x", 70_000) + `"`}:                      "run has",
	} {
		status, p := s.doJSON(http.MethodPut, "/v1/schedules/x", token, strings.Replace(nightly, from[0], from[1], 1))
		if status != http.StatusBadRequest || !strings.Contains(p.Detail, to) {
			t.Errorf("%.80s: %d %.300s, want %q", from[1], status, p.Detail, to)
		}
	}
	var settings api.ScheduleSettings
	if err := api.Decode([]byte(nightly), &settings); err != nil {
		t.Fatal(err)
	}
	run, err := json.Marshal(settings.Run)
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]int{64 << 10: http.StatusCreated, 64<<10 + 1: http.StatusBadRequest} {
		long := strings.Replace(nightly, `"go"`, `"go`+strings.Repeat("x", size-len(run))+`"`, 1)
		if status, p := s.doJSON(http.MethodPut, "/v1/schedules/long", token, long); status != want {
			t.Errorf("a run of %d bytes: %d %s, want %d", size, status, p.Detail, want)
		}
	}
	if status, p := s.doJSON(http.MethodPut, "/v1/schedules/A_b", token, nightly); status != http.StatusBadRequest {
		t.Errorf("a bad name: %d %s", status, p.Detail)
	}
}
