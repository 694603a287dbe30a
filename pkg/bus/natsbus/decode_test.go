package natsbus

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

func FuzzDecodeTurn(f *testing.F) {
	for _, seed := range []string{`{"run_id":"run_01JD3X9K3W8Q4V5N6M7P8R9S0T","version":1}`, `{"version":-1}`, `{"run_id":"run_01JD3X9K3W8Q4V5N6M7P8R9S0T","version":01}`, `{"run_id":"run_01JD3X9K3W8Q4V5N6M7P8R9S0T","version":1,"version":2}`, `[]`, ``, `{"run_id":"run_*"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		turn, err := decodeTurn(data)
		var slow bus.Turn
		if wrong := json.Unmarshal(data, &slow); wrong != nil && err == nil || err == nil && turn != slow {
			t.Errorf("decodeTurn(%q) = %+v, want %+v, %v", data, turn, slow, wrong)
		}
		if err != nil {
			return
		}
		if _, err := state.ParseRunID(string(turn.Run)); err != nil || turn.Version < 0 || turn.Priority != "" || turn.Noisy {
			t.Errorf("decodeTurn(%q) = %+v", data, turn)
		}
	})
}

// Any message in the stream of dead letters can be listed.
func FuzzDeadLetter(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"turn","lane":"normal","run_id":"run_01JD3X9K3W8Q4V5N6M7P8R9S0T","cause":"poisoned","at":"2026-11-20T12:00:00Z","data":"{}","version":3,"attempts":5}`,
		`{"kind":"submission","agent":"a","data":"\u0000\ud800","at":"0001-01-01T00:00:00Z"}`, `{"at":"9999-12-31T23:59:60Z"}`, `{"seq":-1}`, `{"version":1e3}`, `[]`, ``, "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := decodeLetter("turnpike.dead.normal", data, time.Unix(0, 0))
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatalf("%q is read as %+v, which cannot be written: %v", data, d, err)
		}
		var again bus.DeadLetter
		if err := json.Unmarshal(text, &again); err != nil {
			t.Errorf("%q is written as %q, which cannot be read: %v", data, text, err)
		}
	})
}

// A message that is no dead letter is listed with all that is known of it.
func TestForeignDeadLetter(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_700_000_000_000)
	want := bus.DeadLetter{Lane: state.High, Cause: "this dead letter cannot be decoded", At: state.At(at), Data: "not one"}
	if got := decodeLetter("turnpike.t.acme.dead.high", []byte("not one"), at); got != want {
		t.Errorf("the letter is %+v, want %+v", got, want)
	}
}

// Any message on the subject of a run's live events decodes to a growing range, or to nothing.
func FuzzNotice(f *testing.F) {
	for _, seed := range []string{"0 1", "1 1", "2 1", "-1 1", "0 9223372036854775807", "0 9223372036854775808", " ", "0  1", `{"seq":null}`, "+0 1"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if n, ok := parseGrown(data); ok && (n.From < 0 || n.To <= n.From) {
			t.Errorf("%q is read as %+v", data, n)
		}
	})
}

func TestCheckVersion(t *testing.T) {
	t.Parallel()
	tests := []struct {
		version   string
		ok, fatal bool
	}{
		{"2.15.2", true, false},
		{"2.16.0-dev", true, false},
		{"3.0.0", true, false},
		{"v2.15.0", true, false},
		{"2.14.4", false, false},
		{"2.12.0", false, false},
		{"2.11.9", false, true},
		{"1.4.1", false, true},
		{"", false, true},
		{"x.y.z", false, true},
	}
	for _, test := range tests {
		f := checkVersion(test.version)
		if f.OK != test.ok || f.Fatal != test.fatal || f.OK != (f.Remedy == "") {
			t.Errorf("checkVersion(%q) = %+v", test.version, f)
		}
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"": "_", "w1": "w1", "a.b": "a_b", "a *>\n": "a____"} {
		if got := token(name); got != want {
			t.Errorf("token(%q) = %q, want %q", name, got, want)
		}
	}
}
