package loop_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

var stubID = regexp.MustCompile(`\{"result": "(msg_\d+_\d+)"\}`)

// reader is an agent whose old results are cut when its window is full.
func reader(more ...agent.Tool) agent.Definition {
	all := append(tools(plain), agent.Tool{Name: "read_result", Kind: toolspec.Results})
	return agent.Definition{Tools: append(all, more...), Compaction: &agent.Compaction{At: 0.5, Window: 1000, Keep: 1}, Loop: agent.Loop{Type: "react", MaxTurns: 100}}
}

// fill executes n turns, each with its own result, and a last one whose usage fills the window.
func (r *run) fill(n, size int) {
	r.t.Helper()
	for i := range n {
		r.begin(loop.TurnBegan{})
		resp := calls(fmt.Sprintf(`t {"n":%d}`, i))
		if i == n-1 {
			resp.Usage.InputTokens = 900
		}
		r.respond(resp)
		r.finishTools(ok("c1", fmt.Sprintf("result %d %s end", i, strings.Repeat("é", size/2))))
		r.wantReason(state.NextTurn)
	}
}

func resultsOf(view []state.Message) (texts []string) {
	for _, m := range view {
		if m.Role == state.RoleTool {
			texts = append(texts, m.Parts[0].Content)
		}
	}
	return texts
}

// In a full window, stubs replace old results in place and nothing else. The model can read the results again
// piece by piece, byte for byte.
func TestOldResultsAreCutAndReadAgain(t *testing.T) {
	t.Parallel()
	r := start(t, reader(), state.Limits{MaxTurns: 100})
	r.fill(4, 20_000)
	before := state.View(r.s.Log)
	whole := resultsOf(before)
	r.begin(loop.TurnBegan{})
	after := wantEffect[loop.CallModel](r).Messages
	if len(after) != len(before) {
		t.Fatalf("the model reads %d messages, before there were %d: %s", len(after), len(before), dump(after))
	}
	cut := resultsOf(after)
	if cut[3] != whole[3] {
		t.Fatalf("the latest result is %.80q: it must stay", cut[3])
	}
	var ids []string
	for i, text := range cut[:3] {
		found := stubID.FindStringSubmatch(text)
		if found == nil || !strings.Contains(text, "read_result") || !strings.Contains(text, fmt.Sprintf("%d bytes", len(whole[i]))) {
			t.Fatalf("result %d is %.200q, want a stub that says how to read the result again", i, text)
		}
		ids = append(ids, found[1])
	}
	r.wantPaired()

	for i, id := range ids {
		var got strings.Builder
		for offset := 0; offset < len(whole[i]); {
			r.respond(calls(fmt.Sprintf(`read_result {"result":"%s","offset":%d}`, id, offset)))
			r.wantReason(state.NextTurn) // no worker makes the call
			all := resultsOf(state.View(r.s.Log))
			piece, note, partial := strings.Cut(all[len(all)-1], "\n[")
			if partial && !strings.HasPrefix(note, "Bytes ") {
				t.Fatalf("result %d at %d: note %q", i, offset, note)
			}
			if piece == "" {
				t.Fatalf("result %d at %d of %d is empty", i, offset, len(whole[i]))
			}
			got.WriteString(piece)
			offset += len(piece)
			r.begin(loop.TurnBegan{})
		}
		if got.String() != whole[i] {
			t.Fatalf("result %d read again has %d bytes and differs from the original %d", i, got.Len(), len(whole[i]))
		}
	}
}

// A batch that would free less than 10,000 tokens is not worth a new prompt: the compaction is that of an agent
// without the tool.
func TestSmallResultsAreNotCut(t *testing.T) {
	t.Parallel()
	r := start(t, reader(), state.Limits{MaxTurns: 100})
	r.fill(6, 2_000)
	r.begin(loop.TurnBegan{})
	msgs := wantEffect[loop.CallModel](r).Messages
	if !strings.Contains(dump(msgs), "earlier messages were removed") {
		t.Fatalf("the model sees %s", dump(msgs))
	}
}

// A stub keeps the error and the origin of its result. Text that is read again is as untrusted as the result.
func TestStubKeepsOrigin(t *testing.T) {
	t.Parallel()
	page := agent.Tool{Name: "page", Kind: toolspec.HTTP, Own: []byte(`{"url":"https://example.com/"}`)}
	r := start(t, reader(page), state.Limits{MaxTurns: 100})
	r.begin(loop.TurnBegan{})
	r.respond(calls("page {}"))
	r.finishTools(loop.ToolResult{CallID: "c1", Name: "page", Content: strings.Repeat("w", 50_000), IsError: true})
	r.fill(2, 2_000)
	r.begin(loop.TurnBegan{})
	var stub state.Message
	for _, m := range wantEffect[loop.CallModel](r).Messages {
		if m.Role == state.RoleTool && stubID.MatchString(m.Parts[0].Content) && stub.ID == "" {
			stub = m
		}
	}
	if len(stub.Parts) == 0 || stub.Parts[0].Source() != state.OriginWeb || !stub.Parts[0].IsError || !stub.Synthetic {
		t.Fatalf("the stub is %s, want an error of the origin web", dump(stub))
	}
	id := stubID.FindStringSubmatch(stub.Parts[0].Content)[1]
	r.respond(calls(fmt.Sprintf(`read_result {"result":%q}`, id)))
	view := state.View(r.s.Log)
	if last := view[len(view)-1]; last.Parts[0].Source() != state.OriginWeb || last.Parts[0].IsError {
		t.Fatalf("the text read again is %s, want the origin web and no error", dump(last)[:300])
	}
}

// Reading anything but a result of the run returns an error to the model.
func TestReadResultRefuses(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		`{"result":"msg_99_0"}`:             `no result "msg_99_0"`,
		`{"result":"msg_1_0"}`:              `no result "msg_1_0"`, // the submission
		`{"result":""}`:                     "no result",
		`{}`:                                "result",
		`{"result":"msg_1_0","offset":-1}`:  "offset",
		`{"result":"msg_1_0","offset":1.5}`: "offset",
	} {
		r := start(t, reader(), state.Limits{MaxTurns: 100})
		r.begin(loop.TurnBegan{})
		r.respond(calls("read_result " + args))
		r.wantReason(state.NextTurn)
		view := state.View(r.s.Log)
		if last := view[len(view)-1]; !last.Parts[0].IsError || !strings.Contains(last.Parts[0].Content, want) {
			t.Errorf("%s gave %s, want an error with %q", args, dump(last), want)
		}
	}
	r := start(t, reader(), state.Limits{MaxTurns: 100})
	r.fill(1, 20)
	r.begin(loop.TurnBegan{})
	all := state.View(r.s.Log)
	r.respond(calls(fmt.Sprintf(`read_result {"result":%q,"offset":999}`, all[len(all)-1].ID)))
	if got := resultsOf(state.View(r.s.Log)); !strings.Contains(got[len(got)-1], "ends at byte") {
		t.Errorf("behind the end: %q", got[len(got)-1])
	}
}

// Only the first piece of a result has its images and files, so that the model gets them once.
func TestFirstPieceHasTheFiles(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain)}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls("t"))
	long := ok("c1", strings.Repeat("x", 20<<10))
	long.Images, long.Files = []state.Image{{MediaType: "image/png", Data: "AAAA"}}, []state.Part{{Type: state.PartFile, FileID: "f"}}
	r.finishTools(long)
	view := state.View(r.s.Log)
	id := view[len(view)-1].ID
	for offset, want := range map[int]int{0: 1, 16 << 10: 0} {
		got, err := loop.ReadResult(r.s.Log, fmt.Sprintf(`{"result": %q, "offset": %d}`, id, offset), 0)
		if err != nil || len(got.Images) != want || len(got.Files) != want || !strings.HasPrefix(got.Content, "xxx") {
			t.Errorf("from %d: %d images and %d files, %v; want %d", offset, len(got.Images), len(got.Files), err, want)
		}
	}
}

// A piece ends between two characters, so that none is lost. A limit of 0, and one above that of all pieces, is that of
// all pieces.
func TestPiecesEndBetweenCharacters(t *testing.T) {
	t.Parallel()
	r := start(t, agent.Definition{Tools: tools(plain)}, state.Limits{})
	r.begin(loop.TurnBegan{})
	r.respond(calls("t"))
	text := "a" + strings.Repeat("é", 9<<10)
	r.finishTools(ok("c1", text))
	view := state.View(r.s.Log)
	id := view[len(view)-1].ID
	for _, c := range []struct{ offset, limit, end int }{
		{0, 10, 9}, {0, 9, 9}, {1, 9, 9}, {3, 11, 13}, {0, 0, 16<<10 - 1}, {0, 1 << 20, 16<<10 - 1}, {len(text) - 8, 10, len(text)}, {len(text), 10, len(text)},
	} {
		got, err := loop.ReadResult(r.s.Log, fmt.Sprintf(`{"result": %q, "offset": %d}`, id, c.offset), c.limit)
		if err != nil {
			t.Fatal(err)
		}
		want := text[c.offset:c.end]
		if c.end < len(text) {
			want += fmt.Sprintf("\n[Bytes %d to %d of %d. Call again with offset %d for more.]", c.offset, c.end, len(text), c.end)
		}
		if got.Content != want {
			t.Errorf("from %d with limit %d: %d bytes, %.20q...%q; want the bytes to %d", c.offset, c.limit, len(got.Content), got.Content, got.Content[max(0, len(got.Content)-70):], c.end)
		}
	}
}
