//go:build clients

package clients

import (
	"encoding/json"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// inPython is for tests that apply to Python programs only.
func inPython() []language { return languages[1:2] }

// A function that calls sys.exit, or raises KeyboardInterrupt, fails its call only. The program serves the
// other calls.
func TestFunctionExits(t *testing.T) {
	t.Parallel()
	each(t, inPython(), func(t *testing.T, l language) {
		b := newBroker(t, plain)
		p := b.serve(t, l)
		held := b.send(t, "hold", toolkit.Call{IdempotencyKey: "k1"})
		for name, exception := range map[string]string{"exits": "SystemExit", "exits_async": "SystemExit", "interrupts": "KeyboardInterrupt"} {
			m, err := b.nc.Request(toolkit.Subject(prefix, name), []byte(`{"arguments":{}}`), testbed.Patience)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var r struct {
				Error string `json:"error"`
			}
			if err := json.Unmarshal(m.Data, &r); err != nil {
				t.Fatalf("%s: %s: %v", name, m.Data, err)
			}
			if want := `Tool "` + name + `" failed: ` + exception + ": no licence. The call may have had an effect: check that before you repeat it; the author of the tool must correct it"; r.Error != want {
				t.Errorf("error = %q, want %q", r.Error, want)
			}
			p.until(t, "tool "+name+" failed") // the reply can arrive before the log line
		}
		p.say(t, "release")
		if r, _ := held.reply(t); string(r.Content) != `"k1"` {
			t.Errorf("the call in flight got %s, want its key", r.Content)
		}
	})
}

// A function that ignores cancellation and its deadline neither keeps the slot of its call nor keeps the
// process alive after SIGTERM.
func TestStuckFunction(t *testing.T) {
	t.Parallel()
	each(t, inPython(), func(t *testing.T, l language) {
		b := newBroker(t, plain)
		p := b.serve(t, l)
		begin := func(deadline time.Duration) *call {
			args := toolkit.Call{Arguments: json.RawMessage(`{"seconds":3600}`)}
			if deadline > 0 {
				args.Deadline = time.Now().Add(deadline).UTC()
			}
			return b.begin(t, "stuck", args)
		}
		begin(5 * time.Second) // the call must have begun by then
		cancelled := begin(0)  // the tool has one slot
		if err := b.nc.Publish(cancelled.inbox+toolkit.CancelSuffix, nil); err != nil {
			t.Fatal(err)
		}
		begin(5 * time.Second)
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		p.succeeds(t)
	})
}

// A second signal ends the program, whatever its calls do.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	each(t, inPython(), func(t *testing.T, l language) {
		b := newBroker(t, plain)
		p := b.serve(t, l)
		b.send(t, "hold", toolkit.Call{})
		testbed.Eventually(t, "the program ends", func() error {
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-p.ended:
				return nil
			default:
				return errors.New("it runs")
			}
		})
	})
}
