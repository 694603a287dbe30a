package state_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The part of a header that turns change has nothing of the other in it, and is short.
func TestHeaderParts(t *testing.T) {
	t.Parallel()
	s := header()
	s.Format, s.Metadata, s.OutputSchema = state.Format, map[string]string{"of": "the submission"}, json.RawMessage(`{"type":"object"}`)
	fixed, changing, err := state.EncodeHeader(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{string(s.ID), "the submission", `"object"`, `"max_turns"`} {
		if !strings.Contains(string(fixed), text) || strings.Contains(string(changing), text) {
			t.Errorf("%s is not in %s only, but in %s", text, fixed, changing)
		}
	}
	alone, err := state.EncodeChanging(s)
	if err != nil || string(alone) != string(changing) {
		t.Errorf("EncodeChanging = %s, %v, want %s", alone, err, changing)
	}
	if len(changing) > 250 {
		t.Errorf("each commit writes %d bytes of header, want 250 at most: %s", len(changing), changing)
	}
}

// A later build of the same format may write fields that this one does not know.
func TestHeaderWithMore(t *testing.T) {
	t.Parallel()
	s := header()
	s.Format = state.Format
	fixed, changing, err := state.EncodeHeader(s)
	if err != nil {
		t.Fatal(err)
	}
	more := func(b []byte) string { return strings.TrimSuffix(string(b), "}") + `,"more":{"than":1}}` }
	got, err := state.DecodeHeader(more(fixed), more(changing))
	if err != nil {
		t.Fatal(err)
	}
	if diff := equal(s, got); diff != "" {
		t.Errorf("read differently:\n%s", diff)
	}
	newer := strings.Replace(string(changing), fmt.Sprintf(`"format":%d`, state.Format), fmt.Sprintf(`"format":%d`, state.Format+1), 1)
	for _, text := range []string{newer, fmt.Sprintf(`{"format":%d,"status":[1]}`, state.Format+1), fmt.Sprintf(`{"format":%d,"id":"run_1","status":[1]}`, state.Format+1)} {
		if _, err := state.DecodeHeader(string(fixed), text); !errors.Is(err, state.ErrFormat) {
			t.Errorf("DecodeHeader of %s = %v, want ErrFormat", text, err)
		}
	}
}
