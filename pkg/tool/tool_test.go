package tool_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// The sequence P P S P runs as {P,P} {S} {P} (A14).
func TestBatches(t *testing.T) {
	t.Parallel()
	tests := map[string][][]int{
		"":     nil,
		"P":    {{0}},
		"PPSP": {{0, 1}, {2}, {3}},
		"SSPP": {{0}, {1}, {2, 3}},
	}
	for calls, want := range tests {
		got := tool.Batches(strings.Split(calls, "")[:len(calls)], func(name string) bool { return name == "S" })
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Batches(%s):\n%s", calls, diff)
		}
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	key := tool.IdempotencyKey("run_1", 1, "c1", "pay", json.RawMessage(`{"a":1,"b":2}`))
	if got := tool.IdempotencyKey("run_1", 1, "c1", "pay", json.RawMessage(`{"b":2, "a":1}`)); got != key {
		t.Errorf("key depends on the order of the arguments")
	}
	if got := tool.IdempotencyKey("run_1", 1, "c2", "pay", json.RawMessage(`{"a":1,"b":2}`)); got == key {
		t.Errorf("two calls share a key")
	}
	// Numbers keep all their digits.
	one, two := tool.IdempotencyKey("run_1", 1, "c1", "pay", json.RawMessage(`{"id":9007199254740992}`)), tool.IdempotencyKey("run_1", 1, "c1", "pay", json.RawMessage(`{"id":9007199254740993}`))
	if one == two {
		t.Errorf("two large numbers share a key")
	}
	// Neither concatenated parts nor invalid arguments collide.
	if tool.IdempotencyKey("run_1", 1, "c1", "pay", json.RawMessage(`{`)) == tool.IdempotencyKey("run_1", 1, "c1p", "ay", json.RawMessage(`{`)) {
		t.Errorf("the parts of a key are ambiguous")
	}
}

func TestTruncate(t *testing.T) {
	t.Parallel()
	tests := []struct {
		content string
		limit   int
		want    string
	}{
		{"short", 10, "short"},
		{"exact", 5, "exact"},
		{"aé!", 2, "a\n[output truncated: 1 of 4 bytes]"},
		{"aé!", 3, "aé\n[output truncated: 3 of 4 bytes]"},
		{"😀😀", 7, "😀\n[output truncated: 4 of 8 bytes]"},
		{"abc", 0, "\n[output truncated: 0 of 3 bytes]"},
		{"abc", -1, "\n[output truncated: 0 of 3 bytes]"},
		{strings.Repeat("\x80", 20), 10, strings.Repeat("\x80", 10) + "\n[output truncated: 10 of 20 bytes]"},
	}
	for _, tt := range tests {
		if got := tool.Truncate(tt.content, tt.limit); got != tt.want {
			t.Errorf("Truncate(%q, %d) = %q, want %q", tt.content, tt.limit, got, tt.want)
		}
	}
}

// A remark names the mistake and the limit.
func TestRemarksOfFiles(t *testing.T) {
	t.Parallel()
	for want, name := range map[string]string{
		fmt.Sprintf("the file's name has %d bytes, at most %d are allowed: shorten it", tool.MaxFileName+1, tool.MaxFileName): strings.Repeat("a", tool.MaxFileName+1),
		`the file's name "a\x00b" is not UTF-8 or has control characters: correct it`:                                         "a\x00b",
	} {
		if kept, remark := tool.CheckFiles([]state.Part{tool.File(name, "text/plain", []byte("a"))}); len(kept) > 0 || !strings.Contains(remark, want) {
			t.Errorf("%d files stay, remark %q, want %q", len(kept), remark, want)
		}
	}
}

// Remarks do not count for max_result, and a server decides how many parts its result has.
func TestRemarksAreBounded(t *testing.T) {
	t.Parallel()
	const parts, said = 1000, "\n[968 more left out]"
	kept, remark := tool.CheckImages(slices.Repeat([]state.Image{{MediaType: "image/png", Data: "AAAA"}}, parts))
	if len(kept) != tool.MaxImages || strings.Count(remark, "\n") != 17 || !strings.HasSuffix(remark, said) {
		t.Errorf("%d images stay, remark %q", len(kept), remark)
	}
	files, remark := tool.CheckFiles(slices.Repeat([]state.Part{tool.File("a", "text/plain", []byte("a"))}, parts))
	if len(files) != tool.MaxFiles || strings.Count(remark, "\n") != 17 || !strings.HasSuffix(remark, said) {
		t.Errorf("%d files stay, remark %q", len(files), remark)
	}
}

// The files of a result share MaxFileBytes: one that does not fit is left out, and a later one that does stays.
func TestBytesOfFiles(t *testing.T) {
	t.Parallel()
	file := func(name string, size int) state.Part { return tool.File(name, "text/plain", make([]byte, size)) }
	kept, remark := tool.CheckFiles([]state.Part{
		file("first", tool.MaxFileBytes-10), file("too large", 11), tool.UploadedFile("uploaded"), file("fits", 9), file("exact", 1), file("one more", 1),
	})
	var names []string
	for _, f := range kept {
		names = append(names, f.Name+f.FileID)
	}
	if want := []string{"first", "uploaded", "fits", "exact"}; !slices.Equal(names, want) {
		t.Errorf("the files %q stay, want %q", names, want)
	}
	if want := []string{"[file 2 left out", "[file 6 left out"}; strings.Count(remark, "left out") != 2 || !strings.Contains(remark, want[0]) || !strings.Contains(remark, want[1]) {
		t.Errorf("the remark is %q, want %q", remark, want)
	}
	if kept, remark := tool.CheckFiles([]state.Part{file("alone", tool.MaxFileBytes+1), file("exact", tool.MaxFileBytes)}); len(kept) != 1 || kept[0].Name != "exact" || !strings.Contains(remark, "[file 1 left out") {
		t.Errorf("%d files stay, remark %q", len(kept), remark)
	}
}
