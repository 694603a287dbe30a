package effect

import (
	"maps"
	"slices"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A request contains all files of users, each counted once, and the latest files of results that fit in addition.
func TestLoadedFiles(t *testing.T) {
	t.Parallel()
	const mb = 1_000_000
	file := func(id string, bytes int64) state.Part {
		return state.Part{Type: state.PartFile, FileID: id, Bytes: bytes}
	}
	user := func(files ...state.Part) state.Message { return state.Message{Role: state.RoleUser, Parts: files} }
	result := func(files ...state.Part) state.Message {
		m := state.ToolResult("c", "", false)
		m.Parts[0].Files = files
		return m
	}
	for name, tt := range map[string]struct {
		messages []state.Message
		want     []string
	}{
		"none":                           {[]state.Message{state.UserText("hello")}, nil},
		"users' files whatever the size": {[]state.Message{user(file("a", 30*mb), file("b", 30*mb))}, []string{"a", "b"}},
		"as much as fits":                {[]state.Message{user(file("a", 8*mb)), result(file("b", 12*mb))}, []string{"a", "b"}},
		"no byte more":                   {[]state.Message{user(file("a", 8*mb)), result(file("b", 12*mb+1))}, []string{"a"}},
		"the latest":                     {[]state.Message{result(file("a", 8*mb)), result(file("b", 8*mb), file("c", 8*mb))}, []string{"b", "c"}},
		"none before one too large":      {[]state.Message{result(file("a", mb)), result(file("b", 19*mb)), result(file("c", 2*mb))}, []string{"c"}},
		"a user's file named twice":      {[]state.Message{user(file("a", 15*mb)), user(file("a", 15*mb)), result(file("b", 5*mb))}, []string{"a", "b"}},
		"a result's file named twice":    {[]state.Message{result(file("a", 5*mb)), result(file("b", 15*mb)), result(file("b", 15*mb))}, []string{"a", "b"}},
		"a user's file in a result":      {[]state.Message{user(file("a", 15*mb)), result(file("b", 5*mb)), result(file("a", 15*mb))}, []string{"a", "b"}},
		"without an uploaded file":       {[]state.Message{user(state.Part{Type: state.PartFile, URL: "https://example.com/a.pdf"})}, nil},
	} {
		if got := slices.Sorted(maps.Keys(loaded("unknown", tt.messages))); !slices.Equal(got, tt.want) {
			t.Errorf("%s: loaded %v, want %v", name, got, tt.want)
		}
	}
}
