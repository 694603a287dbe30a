package agent

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Retention bounds how long ended runs are kept. Zero keeps them indefinitely. If several apply, the shortest
// applies.
type Retention struct {
	// Completed is for runs that ended as completed, incomplete or cancelled, and Failed for
	// those that failed.
	Completed Period `json:"completed,omitempty"`
	Failed    Period `json:"failed,omitempty"`

	// Events is for the stored event feed. Only a deployment can set it. Zero means the bus's own limit: see
	// natsbus.Limits.EventsAge.
	Events Period `json:"events,omitempty"`
}

// ShortestPeriod is the minimum period: messages of a turn may arrive again for some time after its run has ended.
const ShortestPeriod = time.Minute

// ParseRetention parses a text such as "completed: 30d, failed: 90d, events: 72h", with or without braces. Periods that
// are missing are zero.
func ParseRetention(text string) (Retention, error) {
	var r Retention
	text = strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(text), "{"), "}")
	for pair := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, ":")
		name = strings.TrimSpace(name)
		field := map[string]*Period{"completed": &r.Completed, "failed": &r.Failed, "events": &r.Events}[name]
		if !ok || field == nil {
			return Retention{}, fmt.Errorf("retention %q is not a duration for completed, failed or events: write one such as completed: 30d, failed: 90d, events: 72h", strings.TrimSpace(pair))
		}
		if *field != 0 {
			return Retention{}, fmt.Errorf("retention of %s is given twice: remove one", name)
		}
		period, err := ParsePeriod(strings.TrimSpace(value))
		if err != nil {
			return Retention{}, fmt.Errorf("retention of %s: %w", name, err)
		}
		*field = period
	}
	return r, nil
}

// RetentionOf returns the retention of a stored definition.
func RetentionOf(definition json.RawMessage) (Retention, error) {
	var d struct {
		Retention Retention `json:"retention"`
	}
	err := json.Unmarshal(definition, &d)
	return d.Retention, err
}

// Tighter returns the shorter of each pair of periods. Zero counts as indefinite.
func (r Retention) Tighter(s Retention) Retention {
	return Retention{Completed: r.Completed.shorter(s.Completed), Failed: r.Failed.shorter(s.Failed), Events: r.Events.shorter(s.Events)}
}

// Period is a retention time; zero means indefinitely. As JSON it is a text for ParsePeriod.
type Period time.Duration

// ParsePeriod is ParseDuration, and refuses less than ShortestPeriod.
func ParsePeriod(text string) (Period, error) {
	d, err := ParseDuration(text)
	switch {
	case err != nil:
		return 0, err
	case d < ShortestPeriod:
		return 0, fmt.Errorf("%q is too short: write %s or more", text, ShortestPeriod)
	default:
		return Period(d), nil
	}
}

// ParseDuration parses a duration such as "90m" or "72h", or days such as "30d", up to 36,500.
func ParseDuration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n float64
		if n, err = strconv.ParseFloat(days, 64); err == nil && !(n >= 0 && n <= 36_500) {
			err = strconv.ErrRange
		}
		d = time.Duration(n * float64(24*time.Hour))
	}
	if err != nil {
		return 0, fmt.Errorf("%.80q is not a duration from 0d to 36500d: write one such as 30d, 72h or 90m", text)
	}
	return d, nil
}

func (p Period) shorter(q Period) Period {
	if p == 0 || q > 0 && q < p {
		return q
	}
	return p
}

// String returns p in the form that ParsePeriod reads.
func (p Period) String() string {
	if d := time.Duration(p); d%(24*time.Hour) == 0 {
		return strconv.FormatInt(int64(d/(24*time.Hour)), 10) + "d"
	}
	return time.Duration(p).String()
}

// MarshalJSON encodes p as a string.
func (p Period) MarshalJSON() ([]byte, error) { return json.Marshal(p.String()) }

// UnmarshalJSON decodes a string for ParsePeriod.
func (p *Period) UnmarshalJSON(b []byte) error {
	var text string
	err := json.Unmarshal(b, &text)
	if err != nil {
		return fmt.Errorf("%.80s is not a duration: write one such as \"30d\", \"72h\" or \"90m\"", b)
	}
	*p, err = ParsePeriod(text)
	return err
}
