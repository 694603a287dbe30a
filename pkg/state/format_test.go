package state_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The error about a header in a newer format does not name the run, because the header need not have its id.
func TestNewerHeader(t *testing.T) {
	t.Parallel()
	s := header()
	s.ID, s.Format = "", state.Format+1
	data, err := state.EncodeState(s)
	if err != nil {
		t.Fatal(err)
	}
	_, err = state.DecodeState(data)
	want := fmt.Sprintf("decode state: the format is %d, this build reads up to %d: %v", state.Format+1, state.Format, state.ErrFormat)
	if !errors.Is(err, state.ErrFormat) || err.Error() != want {
		t.Errorf("DecodeState = %v, want %s", err, want)
	}
}

// The two parts of a header share no field.
func TestHeaderParts(t *testing.T) {
	t.Parallel()
	s := header()
	s.Format, s.Metadata, s.OutputSchema = state.Format, map[string]string{"of": "the submission"}, json.RawMessage(`{"type":"object"}`)
	fixed, changing, err := state.EncodeHeader(&s)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(s.ID), "the submission", `"object"`, s.Agent} {
		if !strings.Contains(string(fixed), text) || strings.Contains(string(changing), text) {
			t.Errorf("%s is not in %s only, but in %s", text, fixed, changing)
		}
	}
	alone, err := state.EncodeChanging(&s)
	if err != nil || string(alone) != string(changing) {
		t.Errorf("EncodeChanging = %s, %v, want %s", alone, err, changing)
	}
}
