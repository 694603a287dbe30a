package keys_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/keys"
)

type inner struct {
	B int `json:"b,omitempty"`
}

type outer struct {
	A string `json:"a"`
	inner
	Plain  bool
	Hidden int `json:"-"`
}

func TestOf(t *testing.T) { // not parallel: it counts allocations
	if diff := cmp.Diff([]string{"a", "b", "Plain"}, keys.Of(reflect.TypeFor[outer]())); diff != "" {
		t.Error(diff)
	}
	if n := testing.AllocsPerRun(10, func() { keys.Of(reflect.TypeFor[outer]()); keys.Types(reflect.TypeFor[outer]()) }); n > 0 {
		t.Errorf("the keys of a known type take %v allocations", n)
	}
	if got := keys.Types(reflect.TypeFor[outer]()); len(got) != 3 || got["b"] != reflect.TypeFor[int]() {
		t.Errorf("Types = %v", got)
	}
}

func TestRestAndJoin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, rest string }{
		{`{"a": 1}`, ``},
		{`{}`, ``},
		{`null`, ``},
		{`{"z": 12345678901234567890.10, "a": 1, "c": {"y": null, "x": "<"}}`, `{"c":{"x":"\u003c","y":null},"z":12345678901234567890.10}`},
	} {
		rest, err := keys.Rest([]byte(c.in), []string{"a", "b"})
		if err != nil || string(rest) != c.rest {
			t.Errorf("Rest(%s) = %s, %v, want %s", c.in, rest, err, c.rest)
		}
	}
	if _, err := keys.Rest([]byte(`[]`), nil); err == nil {
		t.Error("Rest takes a list")
	}
	for _, c := range []struct{ data, rest, want string }{
		{`{"a":1}`, ``, `{"a":1}`},
		{`{"a":1}`, ` { } `, `{"a":1}`},
		{`{"a":1}`, ` {"b":2}`, `{"a":1,"b":2}`},
		{`{}`, `{"b":2}`, `{"b":2}`},
	} {
		got, err := keys.Join([]byte(c.data), json.RawMessage(c.rest))
		if err != nil || string(got) != c.want {
			t.Errorf("Join(%s, %s) = %s, %v, want %s", c.data, c.rest, got, err, c.want)
		}
	}
	for _, bad := range []string{`[1]`, `{"a"`, `x`} {
		if _, err := keys.Join([]byte(`{}`), json.RawMessage(bad)); err == nil {
			t.Errorf("Join takes %s", bad)
		}
	}
}
