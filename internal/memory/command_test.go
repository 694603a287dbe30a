package memory_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/memory"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// do runs a command in a directory and returns what the model reads. Keys differ unless given.
func do(d *memory.Directory, key, arguments string) string {
	c, err := memory.ParseCommand(json.RawMessage(arguments))
	if err != nil {
		return err.Error()
	}
	if c.Views() {
		text, err := c.View(d)
		if err != nil {
			return err.Error()
		}
		return text
	}
	ch := memory.NewChange(c, memory.Writer{Run: "run_1", Key: key, Limit: 400})
	if err := ch.Apply(d); err != nil {
		return err.Error()
	}
	return ch.Result()
}

// The results are those that Claude's memory tool documents, with versions and remedies added.
func TestCommands(t *testing.T) {
	t.Parallel()
	d := &memory.Directory{Files: map[string]memory.File{}}
	for i, c := range []struct{ arguments, want string }{
		{`{"command":"view","path":"/memories"}`, "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items and node_modules:\n0.0K\t/memories"},
		{`{"command":"view","path":"/memories/a.md"}`, "The path /memories/a.md does not exist. Please provide a valid path."},
		{`{"command":"create","path":"/memories/a.md","file_text":"one\ntwo\n"}`, "File created successfully at: /memories/a.md (version 1)"},
		{`{"command":"create","path":"/memories/a.md","file_text":"x"}`, "Error: File /memories/a.md already exists: change it with str_replace or insert, or send another path"},
		{`{"command":"create","path":"/memories/a.md/b.md","file_text":"x"}`, "Error: /memories/a.md is a file, not a directory: use a path that is not below it, or delete the file first"},
		{`{"command":"view","path":"/memories/a.md"}`, "Here's the content of /memories/a.md with line numbers (version 1):\n     1\tone\n     2\ttwo"},
		{`{"command":"view","path":"/memories/a.md","view_range":[2,-1]}`, "Here's the content of /memories/a.md with line numbers (version 1):\n     2\ttwo"},
		{`{"command":"view","path":"/memories/a.md","view_range":[2,1]}`, "Error: Invalid `view_range` parameter: [2 1]. The file has 2 lines: send the first and the last line to show, or -1 as the last for the end"},
		{`{"command":"view","path":"/memories/a.md","view_range":[3,4]}`, "Error: Invalid `view_range` parameter: [3 4]. The file has 2 lines: send the first and the last line to show, or -1 as the last for the end"},
		{`{"command":"view","path":"/memories/a.md","view_range":[1.0,1e0]}`, "Here's the content of /memories/a.md with line numbers (version 1):\n     1\tone"},
		{`{"command":"view","path":"/memories/a.md","view_range":[1.5,2]}`, "Error: 1.5 is not a whole number from -9007199254740992 to 9007199254740992: send one"},
		{`{"command":"view","path":7}`, "Error: path has the type number: send the type that the schema of the tool requires"},
		{`["view"]`, "Error: the arguments are not a JSON object: send one"},
		{`{"command":"view"}`, "Error: the command view needs path: send it"},
		{`{"command":"str_replace","path":"/memories/a.md","old_str":"two","new_str":"2"}`, "The memory file has been edited. (version 2)\n     1\tone\n     2\t2"},
		{`{"command":"str_replace","path":"/memories/a.md","old_str":"two","new_str":"2"}`, "No replacement was performed, old_str `two` did not appear verbatim in /memories/a.md. View the file, and send text that occurs in it once"},
		{`{"command":"str_replace","path":"/memories/b.md","old_str":"two"}`, "Error: The path /memories/b.md does not exist: view /memories, and send a path that exists"},
		{`{"command":"insert","path":"/memories/a.md","insert_line":2,"insert_text":"one\n"}`, "The file /memories/a.md has been edited. (version 3)"},
		{`{"command":"str_replace","path":"/memories/a.md","old_str":"one","new_str":"1"}`, "No replacement was performed. Multiple occurrences of old_str `one` in lines: 1, 3. Please ensure it is unique"},
		{`{"command":"insert","path":"/memories/a.md","insert_line":4,"insert_text":"x"}`, "Error: Invalid `insert_line` parameter: 4. It should be within the range of lines of the file: [0, 3]"},
		{`{"command":"insert","path":"/memories/b.md","insert_line":0,"insert_text":"x"}`, "Error: The path /memories/b.md does not exist: view /memories, and send a path that exists"},
		{`{"command":"insert","path":"/memories/a.md","insert_line":0,"insert_text":"x","version":2}`, "Error: /memories/a.md has version 3, not 2 as you expect: view it, then decide again"},
		{`{"command":"create","path":"/memories/dir/sub/c.md","file_text":"12345"}`, "File created successfully at: /memories/dir/sub/c.md (version 4)"},
		{`{"command":"create","path":"/memories/dir/.hidden","file_text":"1"}`, "File created successfully at: /memories/dir/.hidden (version 5)"},
		{`{"command":"view","path":"/memories/"}`, "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items and node_modules:\n0.0K\t/memories\n0.0K\t/memories/a.md\n0.0K\t/memories/dir\n0.0K\t/memories/dir/sub"},
		{`{"command":"create","path":"/memories/dir","file_text":"x"}`, "Error: /memories/dir is a directory: name a file in it, such as /memories/dir/notes.md, or another path"},
		{`{"command":"str_replace","path":"/memories/dir","old_str":"x"}`, "Error: /memories/dir is a directory: view it, and send the path of a file in it"},
		{`{"command":"insert","path":"/memories/dir","insert_line":0,"insert_text":"x"}`, "Error: /memories/dir is a directory: view it, and send the path of a file in it"},
		{`{"command":"rename","old_path":"/memories/dir","new_path":"/memories/a.md"}`, "Error: The destination /memories/a.md already exists: send another new_path"},
		{`{"command":"rename","old_path":"/memories/dir","new_path":"/memories/dir/x"}`, "Error: /memories/dir cannot be moved into itself: send another new_path"},
		{`{"command":"rename","old_path":"/memories/none","new_path":"/memories/x"}`, "Error: The path /memories/none does not exist: view /memories, and send a path that exists"},
		{`{"command":"rename","old_path":"/memories/dir/","new_path":"/memories/moved/"}`, "Successfully renamed /memories/dir to /memories/moved (version 6)"},
		{`{"command":"view","path":"/memories/moved/sub/c.md"}`, "Here's the content of /memories/moved/sub/c.md with line numbers (version 6):\n     1\t12345"},
		{`{"command":"delete","path":"/memories/moved","version":5}`, "Error: /memories/moved has version 6, not 5 as you expect: view it, then decide again"},
		{`{"command":"delete","path":"/memories/moved"}`, "Successfully deleted /memories/moved"},
		{`{"command":"delete","path":"/memories/moved","version":6}`, "Error: The path /memories/moved does not exist, so it does not have version 6: view /memories, then decide again"},
		{`{"command":"delete","path":"/memories/moved"}`, "Error: The path /memories/moved does not exist: view /memories, and send a path that exists"},
		{`{"command":"delete","path":"/memories"}`, "Error: the directory /memories itself cannot be deleted: delete what is in it"},
		{`{"command":"create","path":"/memories/big","file_text":"` + strings.Repeat("x", 400) + `"}`, "Error: the memory would have 437 bytes, at most 400 are allowed: delete or shorten files"},
		{`{"command":"create","path":"/etc/passwd","file_text":"x"}`, "Error: the path /etc/passwd is not in /memories: begin it with that directory"},
		{`{"command":"create","path":"/memories/../x","file_text":"x"}`, `Error: the path "/memories/../x" has a part that is empty, is . or .., has white space at an end, or has control characters: use another path`},
		{`{"command":"create","path":"/memoriesx","file_text":"x"}`, "Error: the path /memoriesx is not in /memories: begin it with that directory"},
		{`{"command":"create","path":"/memories/x","file_text":"a\u0000"}`, "Error: the text for /memories/x has control characters or is not UTF-8: remove them"},
		{`{"command":"create","path":"/memories/x"}`, "Error: the command create needs file_text: send it"},
		{`{"command":"insert","path":"/memories/x","insert_text":"x"}`, "Error: the command insert needs insert_line: send it"},
		{`{"command":"str_replace","path":"/memories/x","new_str":"x"}`, "Error: the command str_replace needs old_str: send it"},
		{`{"command":"move"}`, `Error: command is "move": use view, create, str_replace, insert, delete or rename`},
	} {
		if got := do(d, fmt.Sprint("key ", i), c.arguments); got != c.want {
			t.Errorf("%s\nreturned %s\nwant     %s", c.arguments, got, c.want)
		}
	}
	if f := d.Files["/memories/a.md"]; f.Content != "one\n2\none\n" || f.Run != "run_1" {
		t.Errorf("the file is %+v", f)
	}
}

// A change is made once per key, however often the call is repeated and whatever happened in between.
func TestRepeatedCall(t *testing.T) {
	t.Parallel()
	d := &memory.Directory{Files: map[string]memory.File{}}
	do(d, "1", `{"command":"create","path":"/memories/a","file_text":"x"}`)
	insert := `{"command":"insert","path":"/memories/a","insert_line":0,"insert_text":"y"}`
	first := do(d, "2", insert)
	do(d, "3", `{"command":"delete","path":"/memories/a"}`)
	version := d.Version
	if again := do(d, "2", insert); again != first || d.Version != version || len(d.Files) != 0 {
		t.Errorf("repeated: %s; version %d, files %v", again, d.Version, d.Files)
	}
	if do(d, "1", `{"command":"create","path":"/memories/a","file_text":"x"}`); len(d.Files) != 0 {
		t.Error("a repeated call re-created a deleted file")
	}
}

// A version keeps the least trusted origin of its content, also if a later run has read nothing untrusted.
func TestOriginStays(t *testing.T) {
	t.Parallel()
	d := &memory.Directory{Files: map[string]memory.File{}}
	write := func(key string, from state.Origin, arguments string) {
		t.Helper()
		c, err := memory.ParseCommand(json.RawMessage(arguments))
		if err != nil {
			t.Fatal(err)
		}
		if err := memory.NewChange(c, memory.Writer{Run: "run_1", Key: key, Origin: from, Limit: 1000}).Apply(d); err != nil {
			t.Fatal(err)
		}
	}
	write("1", "", `{"command":"create","path":"/memories/a","file_text":"x"}`)
	if f := d.Files["/memories/a"]; f.Origin != "" {
		t.Errorf("a file of a run that read nothing untrusted has origin %q", f.Origin)
	}
	write("2", state.OriginWeb, `{"command":"insert","path":"/memories/a","insert_line":0,"insert_text":"y"}`)
	write("3", "", `{"command":"str_replace","path":"/memories/a","old_str":"x","new_str":"z"}`)
	write("4", state.OriginTool, `{"command":"rename","old_path":"/memories/a","new_path":"/memories/b"}`)
	if f := d.Files["/memories/b"]; f.Origin != state.OriginWeb {
		t.Errorf("a text from the web has origin %q after later edits", f.Origin)
	}

	// A later run that reads the file has read text from the web.
	view := `{"command":"view","path":"/memories/b"}`
	if _, from := memory.Seen(history([2]string{view, do(d, "", view)}), "memory"); from != state.OriginWeb {
		t.Errorf("the reader of the file has read texts of origin %q", from)
	}
}

// Runs that write a memory concurrently lose no change.
func TestWritersAtOnce(t *testing.T) {
	t.Parallel()
	memories := memory.New(memstore.New(memstore.Config{}))
	scope := memory.Scope{Tenant: "default", Name: "tenant"}
	const writers, each = 8, 10
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				c, err := memory.ParseCommand(json.RawMessage(fmt.Sprintf(`{"command":"create","path":"/memories/%d/%d","file_text":"x"}`, w, i)))
				if err == nil {
					err = memories.Change(t.Context(), scope, memory.NewChange(c, memory.Writer{Key: fmt.Sprint(w, "-", i), Limit: 10_000}).Apply)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	d, err := memories.Read(t.Context(), scope)
	if err != nil || len(d.Files) != writers*each || d.Version != writers*each {
		t.Errorf("%d files in version %d, %v; want %d", len(d.Files), d.Version, err, writers*each)
	}

}

// history returns the log of a run with calls of the tool memory: the arguments, and the results.
func history(calls ...[2]string) []state.Entry {
	var log []state.Entry
	for i, c := range calls {
		id := fmt.Sprint("c", i)
		log = append(log,
			state.Entry{Message: &state.Message{Role: state.RoleAssistant, Parts: []state.Part{{Type: state.PartToolCall, ID: id, Name: "memory", Arguments: c[0]}}}},
			state.Entry{Messages: []state.Message{{Role: state.RoleTool, Parts: []state.Part{{Type: state.PartToolResult, CallID: id, Name: "memory", Content: c[1]}}}}},
		)
	}
	return log
}

// A change fails if another run has changed the file since this run read it, whatever the model wants. A run
// that has not read the file, or wrote the last version itself, can change it.
func TestConflict(t *testing.T) {
	t.Parallel()
	d := &memory.Directory{Files: map[string]memory.File{}}
	do(d, "1", `{"command":"create","path":"/memories/a","file_text":"x\n"}`)
	view := `{"command":"view","path":"/memories/a"}`
	saw := do(d, "", view)
	do(d, "2", `{"command":"insert","path":"/memories/a","insert_line":1,"insert_text":"y"}`) // run_1
	const insert = `{"command":"insert","path":"/memories/a","insert_line":0,"insert_text":"z"}`
	change := func(key string, run state.RunID, log []state.Entry) error {
		c, err := memory.ParseCommand(json.RawMessage(insert))
		if err != nil {
			t.Fatal(err)
		}
		seen, _ := memory.Seen(log, "memory")
		return memory.NewChange(c, memory.Writer{Run: run, Key: key, Limit: 1000, Seen: seen}).Apply(d)
	}
	if err := change("3", "run_2", history([2]string{view, saw})); err == nil || !strings.Contains(err.Error(), "has version 2, not 1") {
		t.Errorf("a file that another run has changed since it was read: %v", err)
	}
	if err := change("4", "run_2", history([2]string{view, saw}, [2]string{view, do(d, "", view)})); err != nil {
		t.Errorf("seen again: %v", err)
	}
	if err := change("5", "run_2", history([2]string{view, saw})); err != nil {
		t.Errorf("the run itself changed the file: %v", err)
	}
	if err := change("6", "run_3", nil); err != nil {
		t.Errorf("a run that has not read the file: %v", err)
	}

	// A run that renames a file knows it under its new path.
	d = &memory.Directory{Files: map[string]memory.File{}}
	do(d, "1", `{"command":"create","path":"/memories/b","file_text":"x\n"}`)
	rename := `{"command":"rename","old_path":"/memories/b","new_path":"/memories/a"}`
	renamed := do(d, "2", rename)
	do(d, "3", `{"command":"insert","path":"/memories/a","insert_line":1,"insert_text":"y"}`) // run_1
	if err := change("4", "run_2", history([2]string{rename, renamed})); err == nil || !strings.Contains(err.Error(), "has version 3, not 2") {
		t.Errorf("a file that another run has changed since it was renamed: %v", err)
	}

	// A command for a directory is about all files in it.
	d = &memory.Directory{Files: map[string]memory.File{}}
	do(d, "1", `{"command":"create","path":"/memories/a/b","file_text":"x\n"}`)
	do(d, "2", `{"command":"create","path":"/memories/a/c","file_text":"x\n"}`)
	inA := `{"command":"view","path":"/memories/a/b"}`
	sawIn := do(d, "", inA)
	do(d, "3", `{"command":"insert","path":"/memories/a/b","insert_line":1,"insert_text":"y"}`)
	for _, command := range []string{`{"command":"delete","path":"/memories/a"}`, `{"command":"rename","old_path":"/memories/a","new_path":"/memories/z"}`} {
		c, err := memory.ParseCommand(json.RawMessage(command))
		if err != nil {
			t.Fatal(err)
		}
		seen, _ := memory.Seen(history([2]string{inA, sawIn}), "memory")
		err = memory.NewChange(c, memory.Writer{Run: "run_2", Key: "4", Limit: 1000, Seen: seen}).Apply(d)
		if err == nil || !strings.Contains(err.Error(), "/memories/a/b has version 3, not 1") {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// Models may use the id of a call again in a later response. A result belongs to the latest call with its id, so the
// results of other tools say nothing about files.
func TestSeenOfRepeatedIDs(t *testing.T) {
	t.Parallel()
	log := history([2]string{`{"command":"view","path":"/memories/a"}`, "Here's the content of /memories/a with line numbers (version 1):\n     1\tx"})
	other := history([2]string{`{"command":"view","path":"/memories/a"}`, "Here's the content of /memories/a with line numbers (version 7, origin web):\n     1\tx"})
	other[0].Message.Parts[0].Name = "fetch"
	seen, from := memory.Seen(append(log, other...), "memory")
	if len(seen) != 1 || seen["/memories/a"] != 1 || from != "" {
		t.Errorf("the run has seen %v of origin %q, want version 1 of /memories/a without an origin", seen, from)
	}
}

// Each scope and tenant has its own memory, and erasing it leaves nothing.
func TestScopes(t *testing.T) {
	t.Parallel()
	memories := memory.New(memstore.New(memstore.Config{}))
	metadata := map[string]string{"user": "ann:1", "empty": "", "long": strings.Repeat("x", 257)}
	for _, c := range []struct{ scope, want, wrong string }{
		{"tenant", "tenant", ""},
		{"agent", "agent:clerk", ""},
		{"metadata.user", "metadata.user:ann:1", ""},
		{"metadata.order", "", `without the metadata "order"`},
		{"metadata.empty", "", `without the metadata "empty"`},
		{"metadata.long", "", "at most 256"},
		{"user", "", ": use tenant, agent or metadata.KEY"},
	} {
		s, err := memory.ScopeOf(c.scope, "acme", "clerk", metadata)
		if (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) || s.Name != c.want {
			t.Errorf("ScopeOf(%q) = %+v, %v", c.scope, s, err)
		}
		if c.want == "" {
			continue
		}
		if parsed, err := memory.ParseScope("acme", c.want); err != nil || parsed != s {
			t.Errorf("ParseScope(%q) = %+v, %v", c.want, parsed, err)
		}
		for _, tenant := range []string{"acme", "other"} {
			err := memories.Change(t.Context(), memory.Scope{Tenant: tenant, Name: s.Name}, func(d *memory.Directory) error {
				return d.Put("/memories/a", memory.File{Content: tenant}, 100)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if found, err := memories.Erase(t.Context(), s); !found || err != nil {
			t.Errorf("Erase: %v, %v", found, err)
		}
		if d, err := memories.Read(t.Context(), s); err != nil || len(d.Files) != 0 {
			t.Errorf("an erased memory has %v, %v", d, err)
		}
		if d, err := memories.Read(t.Context(), memory.Scope{Tenant: "other", Name: s.Name}); err != nil || d.Files["/memories/a"].Content != "other" {
			t.Errorf("the memory of another tenant has %v, %v", d, err)
		}
	}
	if names, err := memories.Scopes(t.Context(), "acme"); err != nil || len(names) != 0 {
		t.Errorf("Scopes: %v, %v", names, err)
	}
	const form = "use tenant, agent:NAME or metadata.KEY:VALUE"
	for name, want := range map[string]string{
		"": form, "agent": form, "agent:": form, "tenant:x": form, "metadata.": form, "metadata.user": form, "metadata.user:": form, "run:x": form,
		"agent:../x":  "the agent name",
		"metadata.:x": "the metadata key",
		"metadata." + strings.Repeat("k", 129) + ":x":     "1 to 128 characters",
		"metadata.k:" + strings.Repeat("x", 257):          "a metadata value of 257 bytes",
		"metadata.k:\xff":                                 "not UTF-8",
		"agent:" + strings.Repeat("x", memory.MaxValue+1): "the agent name",
	} {
		if s, err := memory.ParseScope("acme", name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseScope(%.40q) = %+v, %v; want %q", name, s, err, want)
		}
	}
}

// A memory above its limit, which was lowered since, takes changes that do not make it larger: so the model can shorten
// its files.
func TestShrinkAboveTheLimit(t *testing.T) {
	t.Parallel()
	d := &memory.Directory{Files: map[string]memory.File{"/memories/a": {Content: strings.Repeat("x", 500) + "end", Version: 1}}, Version: 1}
	const tooLarge = "Error: the memory would have %d bytes, at most 400 are allowed: delete or shorten files"
	for i, c := range []struct{ arguments, want string }{
		{`{"command":"str_replace","path":"/memories/a","old_str":"end","new_str":"ends"}`, fmt.Sprintf(tooLarge, 515)},
		{`{"command":"create","path":"/memories/b","file_text":""}`, fmt.Sprintf(tooLarge, 525)},
		{`{"command":"str_replace","path":"/memories/a","old_str":"end","new_str":"dne"}`, "has been edited. (version 2)"},
		{`{"command":"str_replace","path":"/memories/a","old_str":"dne"}`, "has been edited. (version 3)"},
		{`{"command":"str_replace","path":"/memories/a","old_str":"` + strings.Repeat("x", 500) + `","new_str":"` + strings.Repeat("x", 387) + `"}`, "has been edited. (version 4)"},
		{`{"command":"insert","path":"/memories/a","insert_line":0,"insert_text":"x"}`, "has been edited. (version 5)"},
		{`{"command":"insert","path":"/memories/a","insert_line":0,"insert_text":"x"}`, fmt.Sprintf(tooLarge, 402)},
	} {
		if got := do(d, fmt.Sprint("key ", i), c.arguments); !strings.Contains(got, c.want) {
			t.Errorf("%.90s: %q, want %q", c.arguments, got, c.want)
		}
	}
	if d.Size() != 400 || d.Version != 5 {
		t.Errorf("%d bytes in version %d, want 400 in version 5", d.Size(), d.Version)
	}
}

// For any arguments, a command returns, paths stay valid, and a memory above its limit does not grow.
func FuzzCommand(f *testing.F) {
	f.Add(`{"command":"create","path":"/memories/a","file_text":"x"}`, `{"command":"rename","old_path":"/memories/a","new_path":"/memories/b/c"}`)
	f.Add(`{"command":"insert","path":"/memories/seed","insert_line":1e300,"insert_text":"x"}`, `{"command":"view","path":"/memories/seed","view_range":[1,9223372036854775807]}`)
	f.Add(`{"command":"str_replace","path":"/memories/seed","old_str":"\n","new_str":""}`, `{"command":"delete","path":"/memories/seed"}`)
	f.Fuzz(func(t *testing.T, first, second string) {
		d := &memory.Directory{Files: map[string]memory.File{"/memories/seed": {Content: "a\nb", Version: 1}}, Version: 1}
		for i, arguments := range []string{first, second, first} {
			before, was, version := d.Size(), maps.Clone(d.Files), d.Version
			key := fmt.Sprint("key ", i)
			got := do(d, key, arguments)
			if got == "" {
				t.Errorf("%s returned nothing", arguments)
			}
			if d.Size() > max(before, 400) {
				t.Errorf("%s: %d bytes, the limit is 400", arguments, d.Size())
			}
			if _, made := d.Changed(key); made != (d.Version == version+1) {
				t.Errorf("%s: version %d after %d, noted: %v", arguments, d.Version, version, made)
			} else if !made && !maps.Equal(was, d.Files) && !strings.HasPrefix(got, "Error:") {
				t.Errorf("%s changed files without a version: %s", arguments, got)
			}
			for p, file := range d.Files {
				if memory.CheckPath(p) != nil || p == memory.Root || file.Version > d.Version {
					t.Errorf("%s left %q in version %d of %d", arguments, p, file.Version, d.Version)
				}
			}
		}
	})
}
