package memory_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/memory"
)

// directory returns a memory of as many bytes with three files in /memories/d.
func directory(bytes int) *memory.Directory {
	d := &memory.Directory{Files: map[string]memory.File{}, Version: 3}
	for i := range 3 {
		d.Files[fmt.Sprint("/memories/d/", i)] = memory.File{Content: "x", Version: 3}
	}
	f := d.Files["/memories/d/0"]
	f.Content += strings.Repeat("x", bytes-d.Size())
	d.Files["/memories/d/0"] = f
	return d
}

// The new path of a directory lengthens the path of each file in it, and the limits hold for the result. A memory that
// is above its limit because that was lowered can still be renamed to shorter paths.
func TestRenameWithinLimits(t *testing.T) {
	t.Parallel()
	const tooLarge = "Error: the memory would have %d bytes, at most 400 are allowed: delete or shorten files"
	for _, c := range []struct {
		bytes    int
		old, new string
		want     string // the error; without one the command succeeds
	}{
		{391, "/memories/d", "/memories/dddd", ""},
		{392, "/memories/d", "/memories/dddd", fmt.Sprintf(tooLarge, 401)},
		{399, "/memories/d/1", "/memories/d/12", ""},
		{400, "/memories/d/1", "/memories/d/12", fmt.Sprintf(tooLarge, 401)},
		{500, "/memories/d", "/memories/e", ""},
		{500, "/memories/d/1", "/memories/1", ""},
		{500, "/memories/d", "/memories/dd", fmt.Sprintf(tooLarge, 503)},
		{100, "/memories/d/1", "/memories/" + strings.Repeat("n", 246), ""},
		{100, "/memories/d/1", "/memories/" + strings.Repeat("n", 247), "Error: the path has 257 bytes, at most 256 are allowed: use a shorter one"},
		{100, "/memories/d", "/memories/" + strings.Repeat("n", 245), "Error: the path has 257 bytes, at most 256 are allowed: use a shorter one"},
		{100, "/memories/d/1", "/memories/d/2/a", "Error: /memories/d/2 is a file, not a directory: use a path that is not below it, or delete the file first"},
		{100, "/memories", "/memories/e", "Error: the directory /memories itself cannot be renamed: rename what is in it"},
		{100, "/memories/d", "/memories", "Error: The destination /memories already exists: send another new_path"},
	} {
		d := directory(c.bytes)
		want := c.want
		if want == "" {
			want = fmt.Sprintf("Successfully renamed %s to %s (version 4)", c.old, c.new)
		}
		if got := do(d, "key", fmt.Sprintf(`{"command":"rename","old_path":%q,"new_path":%q}`, c.old, c.new)); got != want {
			t.Errorf("%.40s to %.40s in a memory of %d bytes\nreturned %s\nwant     %s", c.old, c.new, c.bytes, got, want)
		}
		for p, f := range d.Files { // a change has one version, whatever the number of its files
			if moved := strings.HasPrefix(p, c.new); c.want == "" && (f.Version == 4) != moved || d.Version > 4 {
				t.Errorf("%.40s is in version %d of %d after a change of %s", p, f.Version, d.Version, c.old)
			}
		}
	}

	// A memory without room for another file can be renamed, and a file that is written again needs no room.
	d := directory(100)
	for i := range memory.MaxFiles - 3 {
		d.Files[fmt.Sprint("/memories/", i)] = memory.File{}
	}
	for _, c := range []struct{ arguments, want string }{
		{`{"command":"create","path":"/memories/more","file_text":""}`, "Error: the memory has 1000 files, at most 1000 are allowed: delete or merge some"},
		{`{"command":"rename","old_path":"/memories/d","new_path":"/memories/e"}`, "Successfully renamed /memories/d to /memories/e (version 4)"},
		{`{"command":"insert","path":"/memories/e/1","insert_line":0,"insert_text":"y"}`, "The file /memories/e/1 has been edited. (version 5)"},
	} {
		command, err := memory.ParseCommand(json.RawMessage(c.arguments))
		if err != nil {
			t.Fatal(err)
		}
		ch := memory.NewChange(command, memory.Writer{Key: c.arguments, Limit: memory.MaxBytes})
		got := ""
		if err := ch.Apply(d); err != nil {
			got = err.Error()
		}
		if got += ch.Result(); got != c.want {
			t.Errorf("%s in a memory of %d files\nreturned %s\nwant     %s", c.arguments, len(d.Files), got, c.want)
		}
	}
}
