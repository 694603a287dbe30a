package schedule_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/turnpike-dev/turnpike/internal/schedule"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	v, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Schedules behave at clock changes as docs/how-to/schedules.md says.
func TestNext(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cron, zone, after string
		want              []string
	}{
		"weekdays": {"0 9 * * MON-FRI", "", "2026-01-02T10:00:00Z", []string{"2026-01-05T09:00:00Z", "2026-01-06T09:00:00Z"}},
		"in a zone": {"0 9 * * *", "America/New_York", "2026-03-07T00:00:00Z", []string{ // the change is on the 8th
			"2026-03-07T14:00:00Z", "2026-03-08T13:00:00Z",
		}},
		"a time that is skipped": {"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{ // 02:00 becomes 03:00
			"2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z",
		}},
		"two times that are skipped": {"0,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", []string{
			"2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z", "2026-03-30T00:30:00Z",
		}},
		"a time that comes twice": {"30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", []string{ // 03:00 becomes 02:00
			"2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z",
		}},
		"between the two": {"30 2 * * *", "Europe/Berlin", "2026-10-25T01:00:00Z", []string{"2026-10-26T01:30:00Z"}},
		"every hour, skipped": {"15 * * * *", "Europe/Berlin", "2026-03-29T00:00:00Z", []string{
			"2026-03-29T00:15:00Z", "2026-03-29T01:15:00Z", "2026-03-29T02:15:00Z",
		}},
		"every hour, twice": {"15 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", []string{
			"2026-10-25T00:15:00Z", "2026-10-25T01:15:00Z", "2026-10-25T02:15:00Z",
		}},
		"every two hours, skipped": {"0 */2 * * *", "Europe/Berlin", "2026-03-28T23:30:00Z", []string{"2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"}},
		"every two hours, twice":   {"0 */2 * * *", "Europe/Berlin", "2026-10-24T23:30:00Z", []string{"2026-10-25T00:00:00Z", "2026-10-25T03:00:00Z"}},
		"a change of half an hour": {"15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00Z", []string{ // 02:00 becomes 02:30
			"2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z",
		}},
		"7 is Sunday":              {"0 9 * * 7", "", "2026-01-02T10:00:00Z", []string{"2026-01-04T09:00:00Z", "2026-01-11T09:00:00Z"}},
		"a range to 7":             {"0 9 * * 5-7", "", "2026-01-02T10:00:00Z", []string{"2026-01-03T09:00:00Z", "2026-01-04T09:00:00Z", "2026-01-09T09:00:00Z"}},
		"a range of names to SUN":  {"0 9 * * FRI-sun", "", "2026-01-02T10:00:00Z", []string{"2026-01-03T09:00:00Z", "2026-01-04T09:00:00Z", "2026-01-09T09:00:00Z"}},
		"a range to 7 with a step": {"0 9 * * 1-7/3", "", "2026-01-02T10:00:00Z", []string{"2026-01-04T09:00:00Z", "2026-01-05T09:00:00Z", "2026-01-08T09:00:00Z"}},
		"all days and a list":      {"0 9 * * 0-7,2", "", "2026-01-02T10:00:00Z", []string{"2026-01-03T09:00:00Z", "2026-01-04T09:00:00Z"}},
		"SUN to SUN is one day":    {"0 9 * * SUN-SUN", "", "2026-01-02T10:00:00Z", []string{"2026-01-04T09:00:00Z", "2026-01-11T09:00:00Z"}},
		"hourly, twice": {"@hourly", "Europe/Berlin", "2026-10-24T23:30:00Z", []string{
			"2026-10-25T00:00:00Z", "2026-10-25T01:00:00Z", "2026-10-25T02:00:00Z",
		}},
		"daily": {"@daily", "Asia/Tokyo", "2026-01-01T00:00:00Z", []string{"2026-01-01T15:00:00Z"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			times, err := schedule.New(test.cron, test.zone, "s", 0)
			if err != nil {
				t.Fatal(err)
			}
			after := at(t, test.after)
			for _, want := range test.want {
				if after = times.Next(after); !after.Equal(at(t, want)) {
					t.Fatalf("next is %v, want %s", after, want)
				}
			}
		})
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ cron, zone, want string }{
		{"", "", "cron"},
		{"* * * *", "", "five fields"},
		{"61 * * * *", "", "five fields"},
		{"0 9 * * MOO", "", "five fields"},
		{"0 9 * * 8", "", "five fields"},
		{"0 9 * * 5-8", "", "five fields"},
		{"0 9 * * 7-2", "", "five fields"},
		{"0 9 * * 5-7/0", "", "five fields"},
		{"0 0 30 2 *", "", "matches no date"},
		{"@every 10m", "", "*/10"},
		{"@reboot", "", "five fields"},
		{"CRON_TZ=UTC 0 9 * * *", "", "move it to the field timezone"},
		{"0 9 * * *", "Europe/Nowhere", "Europe/Berlin"},
		{"0 9 * * *", "Local", "IANA"},
		{"0 9 * * *", "../../etc/passwd", "IANA"},
		{strings.Repeat("0,", 200) + "0 * * * *", "", "bytes"},
	} {
		if _, err := schedule.New(test.cron, test.zone, "s", 0); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("New(%q, %q): %v, want an error with %q", test.cron, test.zone, err, test.want)
		}
	}
}

// Instants are in order and unique, a firing with jitter comes before the next instant, and the latest due
// instant is one of them.
func TestProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cron := rapid.SampledFrom([]string{"*/10 * * * *", "30 2 * * *", "0,15,45 1-3 * * *", "0 0 1 * *", "5 */2 * * SUN", "@hourly"}).Draw(t, "cron")
		zone := rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/St_Johns", "Asia/Kathmandu"}).Draw(t, "zone")
		jitter := time.Duration(rapid.IntRange(0, 7200).Draw(t, "jitter")) * time.Second
		times, err := schedule.New(cron, zone, "s", jitter)
		if err != nil {
			t.Fatal(err)
		}
		// The days are near the clock changes of 2026 in both hemispheres.
		day := rapid.SampledFrom([]string{"2026-03-07", "2026-03-28", "2026-04-04", "2026-10-03", "2026-10-24", "2026-10-31"}).Draw(t, "day")
		from, err := time.Parse("2006-01-02", day)
		if err != nil {
			t.Fatal(err)
		}
		from = from.Add(time.Duration(rapid.IntRange(0, 48*3600).Draw(t, "second")) * time.Second)
		first := times.Next(from)
		second := times.Next(first)
		if !first.After(from) || !second.After(first) {
			t.Fatalf("after %v come %v and %v", from, first, second)
		}
		if between := times.Next(first.Add(-time.Second)); between != first {
			t.Fatalf("a second before %v the next one is %v", first, between)
		}
		due := times.At(first)
		if due.Before(first) || !due.Before(second) || due.Sub(first) > jitter {
			t.Fatalf("the firing of %v is due at %v, and the next instant is %v", first, due, second)
		}
		if got, ok := times.Latest(from, due); !ok || got != first {
			t.Fatalf("the latest at %v is %v, %v", due, got, ok)
		}
		if got, ok := times.Latest(from, due.Add(-time.Millisecond)); ok {
			t.Fatalf("the latest before %v is %v", due, got)
		}
	})
}

func FuzzNew(f *testing.F) {
	f.Add("0 9 * * MON-FRI", "Europe/Berlin")
	f.Add("*/0 * * * *", "")
	f.Add("0-59/999999999 * * * *", "UTC")
	f.Fuzz(func(t *testing.T, cron, zone string) {
		times, err := schedule.New(cron, zone, "s", time.Minute)
		if err != nil {
			return
		}
		from := time.Date(2026, 3, 29, 0, 0, 0, 0, time.UTC)
		for range 5 {
			next := times.Next(from)
			if !next.After(from) {
				t.Fatalf("after %v comes %v", from, next)
			}
			from = next
		}
	})
}

// A firing is due before the next instant, however large the jitter is: none overtakes another.
func TestJitterEndsWithTheInterval(t *testing.T) {
	t.Parallel()
	times, err := schedule.New("* * * * *", "", "s", 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	late := false
	for instant := at(t, "2026-01-02T10:00:00Z"); instant.Before(at(t, "2026-01-02T12:00:00Z")); instant = times.Next(instant) {
		due := times.At(instant)
		if due.Before(instant) || !due.Before(times.Next(instant)) {
			t.Fatalf("the firing of %v is due at %v", instant, due)
		}
		late = late || due.After(instant)
	}
	if !late {
		t.Error("no firing has a jitter")
	}
}
