package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Kind is the kind of the timers of events, test events included.
const Kind state.TimerKind = "webhook"

// Wanted reports whether the webhook of a run receives an entry of its log: it is false without a webhook, and
// for waits for a schedule or a child run.
func Wanted(w *state.Webhook, e *state.Entry) bool {
	if w == nil {
		return false
	}
	if e.Type == state.EntryWaiting && (e.Reason == state.WaitingSchedule || e.Reason == state.WaitingChild) {
		return false // no receiver has to act
	}
	return w.Wants(e.Type)
}

// HasEarlier reports whether a run with a webhook may have had an event before its latest one: it has continued after an
// end, or its webhook receives waits. A run that ended in its first turn, or that was replayed, has no TurnBase.
func HasEarlier(s state.State) bool {
	return s.TurnBase > 0 || s.IdleMS > 0 || s.Webhook.Wants(state.EntryWaiting)
}

// Timer returns the timer of an event, which is the entry number seq of a run's log.
func Timer(s state.State, seq int64) state.TimerID {
	return state.TimerID{Tenant: s.Tenant, Kind: Kind, Name: string(s.ID) + " " + strconv.FormatInt(seq, 10)}
}

// again returns the timer for a new series of attempts, which begins at a time, to deliver the event seq of a
// run. The event keeps its id.
func again(tenant string, run state.RunID, seq int64, at time.Time) state.TimerID {
	return state.TimerID{Tenant: tenant, Kind: Kind, Name: fmt.Sprintf("%s %d %d", run, seq, at.UnixMilli())}
}

// parse decodes the name of a timer of a run's event. since is zero for the first series of attempts.
func parse(name string) (run state.RunID, seq int64, since time.Time, err error) {
	id, rest, _ := strings.Cut(name, " ")
	number, began, again := strings.Cut(rest, " ")
	if run, err = state.ParseRunID(id); err == nil {
		seq, err = strconv.ParseInt(number, 10, 64)
	}
	if err == nil && again {
		var ms int64
		if ms, err = strconv.ParseInt(began, 10, 64); err == nil {
			since = time.UnixMilli(ms)
		}
	}
	return run, seq, since, err
}

// event is an entry of a run's log as its webhook receives it.
type event struct {
	id       string // the same whenever the event is delivered
	run      state.RunID
	kind     state.EntryType
	at       state.Time
	body     []byte
	earlier  []int64 // entries of earlier events
	endpoint state.Webhook
}

// Body is the JSON body of a delivery.
type Body struct {
	Type      state.EntryType `json:"type"`
	Timestamp state.Time      `json:"timestamp"`
	Data      Data            `json:"data"`
}

// Data is what an event says of its run. It has no field that a later change of the run would change, so
// that the body of an event is always the same.
type Data struct {
	RunID            state.RunID       `json:"run_id"`
	Tenant           string            `json:"tenant"`
	Agent            string            `json:"agent"`
	AgentVersion     int               `json:"agent_version"`
	Metadata         map[string]string `json:"metadata"`
	Sequence         int               `json:"sequence"` // of the run's events: 1, 2, …
	Status           state.Status      `json:"status"`
	Reason           state.Reason      `json:"reason"`
	Waiting          *state.Wait       `json:"waiting,omitempty"`
	Output           *string           `json:"output,omitempty"`
	StructuredOutput json.RawMessage   `json:"structured_output,omitempty"`
	Error            *state.Error      `json:"error,omitempty"`
}

// errGone reports an event whose run, or whose entry, does not exist.
var errGone = errors.New("the event does not exist")

// logPage and logPageBytes bound one read of a log, which holds at most that and one entry.
const (
	logPage      = 256
	logPageBytes = 2 << 20
)

// read returns an event, or errGone. If the run can have had no event before, read loads only the last part of its log.
func read(ctx context.Context, store Store, tenant string, run state.RunID, seq int64) (event, error) {
	s, err := store.Load(ctx, run)
	if errors.Is(err, state.ErrNotFound) || err == nil && (s.Tenant != tenant || s.Webhook == nil) {
		return event{}, errGone
	}
	if err != nil {
		return event{}, err
	}
	from := max(0, seq-logPage)
	if HasEarlier(s) {
		from = 0
	}
	var earlier []int64
	for {
		page, err := store.LogPage(ctx, run, from, logPage, logPageBytes)
		if errors.Is(err, state.ErrNotFound) || err == nil && len(page.Entries) == 0 {
			return event{}, errGone
		}
		if err != nil {
			return event{}, err
		}
		for i := range page.Entries {
			e := &page.Entries[i]
			if !Wanted(s.Webhook, e) {
				continue
			}
			if e.Seq == seq {
				return eventOf(s, e, earlier)
			}
			if e.Seq < seq {
				earlier = append(earlier, e.Seq)
			}
		}
		from += int64(len(page.Entries))
	}
}

func eventOf(s state.State, e *state.Entry, earlier []int64) (event, error) {
	status := e.Status
	if status == "" {
		status, _ = e.Reason.Status()
	}
	metadata := s.Metadata
	if metadata == nil {
		metadata = map[string]string{}
	}
	body, err := json.Marshal(Body{e.Type, e.At, Data{
		RunID: s.ID, Tenant: s.Tenant, Agent: s.Agent, AgentVersion: s.AgentVersion, Metadata: metadata, Sequence: len(earlier) + 1,
		Status: status, Reason: e.Reason, Waiting: e.Waiting, Output: e.Output, StructuredOutput: e.StructuredOutput, Error: e.Error,
	}})
	if err != nil {
		return event{}, fmt.Errorf("encode event: %w", err)
	}
	return event{id: eventID(s.ID, e.Seq), run: s.ID, kind: e.Type, at: e.At, body: body, earlier: earlier, endpoint: *s.Webhook}, nil
}

// eventID returns the id of an event: it is the same whenever the event is delivered.
func eventID(run state.RunID, seq int64) string {
	return "evt_" + strings.TrimPrefix(string(run), state.RunPrefix) + "_" + strconv.FormatInt(seq, 10)
}
