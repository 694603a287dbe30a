package natsbus

import (
	"encoding/json"
	"testing"

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
