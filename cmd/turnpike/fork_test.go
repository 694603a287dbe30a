package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The flags of fork correspond to the API's fields, and all errors in them are reported at once.
func TestForkRequest(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "instructions.txt")
	if err := os.WriteFile(file, []byte("Be kind."), 0o600); err != nil {
		t.Fatal(err)
	}
	turn := 2
	given := forkCmd{
		Turn: &turn, Message: "Go on.", AgentVersion: 3, Instructions: file, Edit: []string{"msg_1_1=a=b"},
		Result: []string{`call_1={"a": 1}`, "call_2@2=sunny, 3=3"},
	}
	req, err := given.request(nil)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(req)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"turn":2,"input":"Go on.","agent_version":3,"instructions":"Be kind.","messages":[{"id":"msg_1_1","parts":[{"text":"a=b","type":"text"}]}],` +
		`"tool_results":[{"call_id":"call_1","content":{"a":1}},{"call_id":"call_2","turn":2,"content":"sunny, 3=3"}]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	wrong := forkCmd{Input: "a", Message: "b", Instructions: "/none", Edit: []string{"x"}, Result: []string{"=1", "c@x=1"}}
	_, err = wrong.request(nil)
	for _, want := range []string{"--turn is required", "INPUT and --message are both given", "--instructions: ", "ID=TEXT", "--result =1", "the turn after @ is not a number"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if req, err := (&forkCmd{At: &turn, Instructions: "-"}).request(strings.NewReader("x")); err != nil || *req.Turn != 2 || *req.Instructions != "x" || req.Input != nil {
		t.Errorf("%+v, %v", req, err)
	}
}
