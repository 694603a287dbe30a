package measure

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// The receiver of events reports each broken guarantee, and nothing else.
func TestEventReceiver(t *testing.T) {
	t.Parallel()
	type sent struct {
		id       string
		sequence int
		output   string
	}
	first, second := sent{"a", 1, ""}, sent{"b", 2, ""}
	for name, tt := range map[string]struct {
		sent []sent
		key  string
		want string // empty: no failure
	}{
		"in order":        {[]sent{first, first, second, first}, eventsKey, ""},
		"out of order":    {[]sent{second, first, second}, eventsKey, "event 2 of run r came after 0 events"},
		"two ids":         {[]sent{first, {"c", 1, ""}, second}, eventsKey, "event 1 of run r has the ids a and c"},
		"two bodies":      {[]sent{first, {"a", 1, "other"}, second}, eventsKey, "event a was sent as"},
		"one is missing":  {[]sent{first}, eventsKey, "got 1 events of 1 runs, want 2 of 1"},
		"signed by other": {[]sent{first, second}, "whsec_" + strings.Repeat("QUFB", 8), "event \"a\" is refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := receiveEvents(t.Context(), eventsPerRun, 0)
			if err != nil {
				t.Fatal(err)
			}
			hook, err := standardwebhooks.NewWebhook(tt.key)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range tt.sent {
				body := fmt.Appendf(nil, `{"timestamp": "2026-11-27T08:00:00Z", "data": {"run_id": "r", "sequence": %d, "output": %q}}`, s.sequence, s.output)
				for range failsInARow + 1 { // until it is delivered
					now, h := time.Now(), http.Header{}
					signature, err := hook.Sign(s.id, now, body)
					if err != nil {
						t.Fatal(err)
					}
					h.Set(standardwebhooks.HeaderWebhookID, s.id)
					h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
					h.Set(standardwebhooks.HeaderWebhookSignature, signature)
					if status, _ := r.take(h, body); status == http.StatusOK {
						break
					}
				}
			}
			var failures []string
			r.tally(func(format string, args ...any) { failures = append(failures, fmt.Sprintf(format, args...)) })
			if got := strings.Join(failures, "; "); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("reported %q, want %q", got, tt.want)
			}
		})
	}
}
