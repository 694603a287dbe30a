package turnpiketest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Reply is the answer of a scripted model to one call.
type Reply = model.Scripted

// Says returns a reply with a text.
func Says(text string) Reply { return Reply{Text: text} }

// Calls returns a reply that calls a tool. args must encode as a JSON object; Calls panics if it does not encode as
// JSON.
func Calls(name string, args any) Reply {
	b, err := json.Marshal(args)
	if err != nil {
		panic(fmt.Sprintf("turnpiketest: the arguments of %s cannot be encoded as JSON: pass a value that encoding/json accepts: %v", name, err))
	}
	return Reply{ToolCalls: []model.ScriptedCall{{Name: name, Arguments: b}}}
}

// Fails returns a reply that makes the call fail: with RateLimited, Overloaded, PromptTooLong, InvalidRequest, Auth or
// Transport of package model.
func Fails(c model.Class) Reply { return Reply{Error: c} }

// Context returns a context of a tool call with an idempotency key, for a test that calls the function of a tool
// directly. It fails the test if the key is empty.
func Context(t testing.TB, key string) context.Context {
	t.Helper()
	if key == "" {
		t.Fatal("turnpiketest: the key is empty: pass an idempotency key")
	}
	return tool.WithCall(t.Context(), tool.Call{ID: "call", Name: t.Name(), Tenant: "default", IdempotencyKey: key, Idempotent: true})
}

// update makes Golden rewrite its files.
var update = flag.Bool("turnpike.update", false, "rewrite the golden files of turnpiketest")

// Golden compares the transcript of a run with a file, and fails the test if they differ. The transcript has the status
// of the run, the messages, calls and results, and neither ids nor times. With the flag -turnpike.update Golden writes
// the file instead.
func (k *Kit) Golden(r *turnpike.Run, file string) {
	k.t.Helper()
	i, err := r.Info(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	got := k.transcript(r) + "status: " + i.Status + "\n"
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			k.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			k.t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		k.t.Fatalf("%v: run the test with -turnpike.update to write the file", err)
	}
	if got != string(want) {
		k.t.Errorf("the transcript differs from %s: run the test with -turnpike.update to accept it\n--- got\n%s--- want\n%s", file, got, want)
	}
}
