package schedule

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"
	_ "time/tzdata" // images and minimal systems have no zones

	"github.com/robfig/cron/v3"
)

// maxExpression is the maximum length of an expression, in bytes.
const maxExpression = 256

// Times are the instants of a schedule. It is safe for concurrent use.
type Times struct {
	spec    *cron.SpecSchedule
	zone    *time.Location
	elapsed bool // the hour is *, so it counts elapsed time
	name    string
	jitter  time.Duration
}

// New compiles a schedule. expression has five fields (minute, hour, day of the month, month, and day of the week,
// where 0 and 7 are Sunday), or is a word such as @hourly or @daily. zone is a name in the IANA database;
// empty means UTC. jitter is the maximum delay of a firing after its instant, see At; schedules with different names
// usually have different delays. The error says what is wrong with the expression, for example that it never matches a
// date or has more than 256 bytes, or that the zone is unknown.
func New(expression, zone, name string, jitter time.Duration) (*Times, error) {
	if len(expression) > maxExpression {
		return nil, fmt.Errorf("cron has %d bytes, at most %d are allowed: shorten it", len(expression), maxExpression)
	}
	if strings.Contains(expression, "TZ=") {
		return nil, errors.New("cron contains a time zone (TZ=): move it to the field timezone")
	}
	if strings.HasPrefix(strings.TrimSpace(expression), "@every") {
		return nil, errors.New(`cron: @every is not supported, since it has no fixed times: write "*/10 * * * *" for every ten minutes`)
	}
	loc, err := time.LoadLocation(zone)
	if err != nil || strings.EqualFold(zone, "local") {
		return nil, fmt.Errorf("timezone %.60q is not in the IANA database: write one such as Europe/Berlin", zone)
	}
	parsed, err := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.Descriptor).Parse(sundays(expression))
	if err != nil {
		return nil, fmt.Errorf(`cron %.60q: %w: correct it; five fields are required, as in "0 9 * * MON-FRI"`, expression, err)
	}
	spec, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("cron %.60q does not have five fields: write one such as \"0 9 * * MON-FRI\"", expression)
	}
	fields := strings.Fields(expression)
	t := &Times{spec: spec, zone: loc, elapsed: fields[0] == "@hourly" || len(fields) > 1 && fields[1] == "*", name: name, jitter: jitter}
	if t.Next(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, fmt.Errorf("cron %.60q matches no date: check the day and the month", expression)
	}
	return t, nil
}

// sundays rewrites an expression of five fields for the parser, which knows Sunday as 0 only: it replaces 7 by 0, and a
// range that ends with Sunday by a list of its days. It leaves mistakes unchanged, for the parser to report.
func sundays(expression string) string {
	fields := strings.Fields(expression)
	if len(fields) != 5 {
		return expression
	}
	days := strings.Split(fields[4], ",")
	for i, part := range days {
		span, text, stepped := strings.Cut(part, "/")
		first, last, ranged := strings.Cut(span, "-")
		step, err := strconv.Atoi(text)
		from := day(first)
		switch {
		case stepped && (err != nil || step < 1):
			continue // the parser says what is wrong
		case !stepped:
			step = 1
		}
		switch {
		case !ranged && from == 7:
			days[i] = "0"
		case ranged && from >= 0 && (last == "7" || from > 0 && day(last) == 0):
			var list []string
			for d := from; d <= 7; d += step {
				list = append(list, strconv.Itoa(d%7))
			}
			days[i] = strings.Join(list, ",")
		}
	}
	fields[4] = strings.Join(days, ",")
	return strings.Join(fields, " ")
}

// day returns the number of a day of the week, 0 to 7, from its number or name; -1 if text is neither.
func day(text string) int {
	if i := slices.Index([]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, strings.ToLower(text)); i >= 0 {
		return i
	}
	if len(text) == 1 && text[0] >= '0' && text[0] <= '7' {
		return int(text[0] - '0')
	}
	return -1
}

// Next returns the first instant after a time, in UTC; zero if there is none within five years. It has no
// jitter.
func (t *Times) Next(after time.Time) time.Time {
	if t.elapsed {
		s := *t.spec
		s.Location = t.zone
		return utc(s.Next(after.In(t.zone)))
	}
	// The expression is evaluated over local times, as if the zone had no changes. A clock that is set
	// back shows times again that had their instant, so the search begins before those.
	s := *t.spec
	s.Location = time.UTC
	for local := wall(after.In(t.zone)).Add(-longestChange); ; {
		if local = s.Next(local); local.IsZero() {
			return time.Time{}
		}
		if at := instant(local, t.zone); at.After(after) {
			return utc(at)
		}
	}
}

// longestChange is longer than any single backward change of a zone's clocks.
const longestChange = 3 * time.Hour

// utc returns t in UTC; zero remains zero.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}

// At returns the time at which the firing of an instant is due: up to the jitter later, and before the next
// instant. It is the same each time.
func (t *Times) At(instant time.Time) time.Time {
	most := t.jitter
	if next := t.Next(instant); most > 0 && !next.IsZero() {
		most = min(most, next.Sub(instant))
	}
	if most < time.Millisecond {
		return instant
	}
	sum := fnv.New64a()
	_, _ = fmt.Fprintf(sum, "%s %d", t.name, instant.Unix())                                      // never fails
	return instant.Add(time.Duration(sum.Sum64()%uint64(most.Milliseconds())) * time.Millisecond) //nolint:gosec // positive
}

// Latest returns the latest instant in the interval (after, now] whose firing is due at now or before (At), and false
// if there is none. Its cost grows with the number of instants in the interval.
func (t *Times) Latest(after, now time.Time) (latest time.Time, ok bool) {
	for next := t.Next(after); !next.IsZero() && !t.At(next).After(now); next = t.Next(next) {
		latest, ok = next, true
	}
	return latest, ok
}

// wall returns the local time of t as if it were one of UTC.
func wall(t time.Time) time.Time {
	y, m, d := t.Date()
	return time.Date(y, m, d, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
}

// instant returns the first instant at which the clocks of a zone show a local time; if they skip it, the
// instant of the change.
func instant(local time.Time, zone *time.Location) time.Time {
	offset := func(at time.Time) time.Duration {
		_, s := at.In(zone).Zone()
		return time.Duration(s) * time.Second
	}
	before, after := offset(local.Add(-24*time.Hour)), offset(local.Add(24*time.Hour))
	early, late := local.Add(-max(before, after)), local.Add(-min(before, after))
	for _, at := range []time.Time{early, late} {
		if wall(at.In(zone)).Equal(local) {
			return at
		}
	}
	// Skipped: the change is in the interval (early, late].
	for late.Sub(early) > time.Second {
		middle := early.Add(late.Sub(early) / 2).Truncate(time.Second)
		if offset(middle) == after {
			late = middle
		} else {
			early = middle
		}
	}
	return late
}
