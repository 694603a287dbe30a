package state_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The two parts of a header share no field.
func TestHeaderParts(t *testing.T) {
	t.Parallel()
	s := header()
	s.Format, s.Metadata, s.OutputSchema = state.Format, map[string]string{"of": "the submission"}, json.RawMessage(`{"type":"object"}`)
	fixed, changing, err := state.EncodeHeader(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(s.ID), "the submission", `"object"`, s.Agent} {
		if !strings.Contains(string(fixed), text) || strings.Contains(string(changing), text) {
			t.Errorf("%s is not in %s only, but in %s", text, fixed, changing)
		}
	}
	alone, err := state.EncodeChanging(s)
	if err != nil || string(alone) != string(changing) {
		t.Errorf("EncodeChanging = %s, %v, want %s", alone, err, changing)
	}
}
