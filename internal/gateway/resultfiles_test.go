package gateway_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// reader is a scripted model that records the last tool result it read.
type reader struct {
	model.Provider

	mu   sync.Mutex
	last state.Part
}

func (r *reader) Generate(ctx context.Context, req model.Request, onDelta func(model.Delta)) (model.Response, error) {
	for _, m := range req.Messages {
		for _, p := range m.Parts {
			if p.Type == state.PartToolResult {
				r.mu.Lock()
				r.last = p
				r.mu.Unlock()
			}
		}
	}
	return r.Provider.Generate(ctx, req, onDelta)
}

// read returns the text of the last result, and the names, types and contents of its files.
func (r *reader) read(t *testing.T) (text string, files []string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range r.last.Files {
		content, err := base64.StdEncoding.DecodeString(f.Data)
		if err != nil {
			t.Error(err)
		}
		files = append(files, strings.TrimSpace(f.Name+" "+f.MediaType+" "+string(content)))
	}
	return r.last.Content, files
}

// newReader starts a deployment whose tool add returns the result of give.
func newReader(t *testing.T, give func(c tool.Call) tool.Result) (*deployment, *reader) {
	t.Helper()
	r := &reader{Provider: scripted.New()}
	return newDeployment(t, func(c *worker.Config) {
		c.Providers["scripted"] = r
		c.Kinds = toolspec.Kinds(map[string]tool.Tool{"add": tool.Func(func(_ context.Context, call tool.Call) (tool.Result, error) { return give(call), nil })})
	}), r
}

// Files in a tool's result reach the model, and the history has only their names. They belong to the run's
// tenant, and exist as long as a run names them. A tool cannot name files of another tenant.
func TestFilesOfTools(t *testing.T) {
	t.Parallel()
	var mine, foreign string
	s, model := newReader(t, func(c tool.Call) tool.Result {
		return tool.Result{Content: "two reports", Files: []state.Part{
			tool.File("made.pdf", "application/x-pdf", []byte("%PDF made")), tool.UploadedFile(mine), tool.UploadedFile(foreign),
			tool.UploadedFile("file_01ARZ3NDEKTSV4RRFFQ69G5FAV"), {Type: state.PartFile, Data: "not base64", MediaType: "text/plain"}, {Name: "x"},
			{URL: "https://example.com/a.pdf", MediaType: "application/pdf", FileID: ""}, tool.File("empty.txt", "text/plain", nil),
			{MediaType: "text/plain", Data: "\n"},
		}}
	})
	other, err := file.New(s.store, s.bus).Put(t.Context(), "other", file.File{MediaType: "text/plain"}, strings.NewReader("secret"))
	if err != nil {
		t.Fatal(err)
	}
	mine, foreign = s.upload("mine.txt", "hello"), other.ID
	run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "adder", Input: api.Text("x")}, "")
	if err != nil {
		t.Fatal(err)
	}
	if done := s.ended(run.ID); done.Status != "completed" {
		t.Fatalf("%s %+v", done.Status, done.Error)
	}
	text, files := model.read(t)
	want := []string{"made.pdf application/pdf %PDF made", "mine.txt text/plain hello", "application/pdf"}
	if !slices.Equal(files, want) {
		t.Errorf("the model read %q", files)
	}
	for _, remark := range []string{
		"two reports\n[file 5 left out: the file's data is not base64: encode it]", "[file 6 left out: a file needs file_id, data or url: give exactly one of them]",
		"[file 8 left out: the file has no content: give data, or a file_id or url instead]", "[file 9 left out: the file's data is empty: send the content in base64]",
		"[file " + foreign + " left out: tenant default has no file with the id \"" + foreign + "\": continue without the file; the tool must name one that was uploaded to this tenant]", "[file file_01ARZ3NDEKTSV4RRFFQ69G5FAV left out: tenant default has no file with the id \"file_01ARZ3NDEKTSV4RRFFQ69G5FAV\": continue without the file; the tool must name one that was uploaded to this tenant]",
	} {
		if !strings.Contains(text, remark) {
			t.Errorf("the result %q has no %q", text, remark)
		}
	}
	messages, err := s.client.Messages(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(messages, func(m api.Message) bool { return m.Role == state.RoleTool })
	kept := messages[i].Parts[0].Files
	if len(kept) != 3 || kept[0].Data != "" || kept[0].Bytes != 9 || kept[0].Type != state.PartFile || kept[1].FileID != mine {
		t.Fatalf("the history has %+v", kept)
	}
	made := kept[0].FileID
	if f, err := s.client.File(t.Context(), made); err != nil || f.CreatedBy != "tool add" {
		t.Errorf("the made file: %+v, %v", f, err)
	}
	turn := 1
	fork, err := s.client.Fork(t.Context(), run.ID, api.ForkRequest{Turn: &turn, Input: api.Text("again")})
	if err != nil {
		t.Fatal(err)
	}
	s.ended(fork.ID)
	if err := s.client.Delete(t.Context(), run.ID); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{made, mine} {
		refused(t, "delete a file of a result", s.client.DeleteFile(t.Context(), id), api.CodeFileInUse)
	}
	if err := s.client.Delete(t.Context(), fork.ID); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{made, mine} {
		if err := s.client.DeleteFile(t.Context(), id); err != nil {
			t.Errorf("delete a file that no run names: %v", err)
		}
	}
}

// A run references a file before the store has the result that names it, so that a crash in between cannot
// leave the run without its file.
func TestFilesOfToolsAreBoundFirst(t *testing.T) {
	t.Parallel()
	s, _ := newReader(t, func(tool.Call) tool.Result {
		return tool.Result{Files: []state.Part{tool.File("a", "text/plain", []byte("x"))}}
	})
	var mu sync.Mutex
	named := 0
	s.store.recording(func(run state.RunID, r state.Record) {
		var messages []state.Message
		for _, e := range slices.Concat(r.Entries, r.Results) {
			if e.Message != nil {
				messages = append(messages, *e.Message)
			}
		}
		for _, id := range state.FileIDs(messages...) {
			users, err := s.store.DocumentNames(context.Background(), state.FileUsersOf(id))
			if err != nil || !slices.Contains(users, string(run)) {
				t.Errorf("the result is stored, and the file has the references %v, %v", users, err)
			}
			mu.Lock()
			named++
			mu.Unlock()
		}
	})
	s.put("two", `{model: {provider: scripted, responses: [{tool_calls: [{name: add, id: c1}, {name: add, id: c2}]}, {text: done}]}, tools: [{name: add}]}`)
	run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "two", Input: api.Text("x")}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.ended(run.ID)
	mu.Lock()
	defer mu.Unlock()
	if named == 0 {
		t.Error("no record had a file")
	}
}

// A client can answer its tool with files, by id or inline. The gateway refuses an invalid file with its
// location.
func TestFilesOfClientTools(t *testing.T) {
	t.Parallel()
	s, model := newReader(t, nil)
	s.put("picker", `{model: {provider: scripted, responses: [{tool_calls: [{name: pick, id: c1}]}, {text: done}]}, tools: [{name: pick, kind: client, schema: {type: object}}]}`)
	_, _, waits := s.call("POST", "/v1/runs?wait=2m", `{"agent":"picker","input":"x"}`)
	runID, _ := waits["id"].(string)
	id := s.upload("picked.txt", "hello")
	signal := func(files string) error {
		var req api.SignalRequest
		if err := json.Unmarshal([]byte(`{"tool_results":[{"call_id":"c1","content":"this one","files":`+files+`}]}`), &req); err != nil {
			t.Fatal(err)
		}
		_, err := s.client.Signal(t.Context(), runID, req)
		return err
	}
	for files, want := range map[string]string{
		`[{"type":"file","file_id":"file_01ARZ3NDEKTSV4RRFFQ69G5FAV"}]`:                          `there is no file "file_01ARZ3NDEKTSV4RRFFQ69G5FAV"`,
		`[{"type":"image","file_id":"` + id + `"}]`:                                              `tool_results[0].files: file 1: the type of the file is "image": set type to "file", or omit it`,
		`[{"type":"file","data":"aGk="}]`:                                                        `media_type "" is not a media type`,
		`[{"type":"file","media_type":"text/plain","data":""}]`:                                  `the file has no content`,
		`[{"type":"file","media_type":"text/plain","data":"aGk=","url":"https://example.com"}]`:  `exactly one of`,
		`[{"type":"file","media_type":"text/plain","data":"aGk=","name":"` + "a\\u0000b" + `"}]`: `has control characters`,
	} {
		if p := refused(t, files, signal(files), api.CodeInvalidRequest); !strings.Contains(p.Detail, want) {
			t.Errorf("%s: %s", files, p.Detail)
		}
	}
	if err := signal(`[{"type":"file","file_id":"` + id + `"},{"media_type":"text/plain","data":"aGk=","name":"b.txt"}]`); err != nil {
		t.Fatal(err)
	}
	s.ended(runID)
	if text, files := model.read(t); text != "this one" || !slices.Equal(files, []string{"picked.txt text/plain hello", "b.txt text/plain hi"}) {
		t.Errorf("the model read %q with %q", text, files)
	}
	refused(t, "delete a file of a result", s.client.DeleteFile(t.Context(), id), api.CodeFileInUse)
}

// A submission and a fork can give a tool result with files. The model reads them, the history describes them, and they
// exist as long as the run. Files that do not exist are refused, and so are too many.
func TestFilesOfSubmittedResults(t *testing.T) {
	t.Parallel()
	s, eye := newReader(t, nil)
	id := s.upload("given.txt", "hello")
	history := func(files string) []byte {
		return []byte(`[{"content":"x"},{"role":"assistant","parts":[{"type":"tool_call","id":"c1","name":"f"}]},
			{"role":"tool","parts":[{"type":"tool_result","call_id":"c1","content":"this one","files":[` + files + `]}]}]`)
	}
	fork := func(run, files string) (api.Run, error) {
		var req api.ForkRequest
		if err := json.Unmarshal([]byte(`{"turn":0,"tool_results":[{"call_id":"c1","content":"the other","files":[`+files+`]}]}`), &req); err != nil {
			t.Fatal(err)
		}
		return s.client.Fork(t.Context(), run, req)
	}
	check := func(run api.Run, err error, want string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		s.ended(run.ID)
		if text, files := eye.read(t); text != want || !slices.Equal(files, []string{"given.txt text/plain hello"}) {
			t.Errorf("the model read %q with %q", text, files)
		}
		messages, err := s.client.Messages(t.Context(), run.ID)
		if err != nil {
			t.Fatal(err)
		}
		if f := messages[2].Parts[0].Files[0]; f.Name != "given.txt" || f.MediaType != "text/plain" || f.Bytes != 5 || f.Data != "" {
			t.Errorf("the history has %+v", f)
		}
	}
	run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: history(`{"file_id":"` + id + `"}`)}, "")
	check(run, err, "this one")
	forked, err := fork(run.ID, `{"file_id":"`+id+`"}`)
	check(forked, err, "the other")
	for _, r := range []api.Run{run, forked} {
		refused(t, "delete a file of a result", s.client.DeleteFile(t.Context(), id), api.CodeFileInUse)
		if err := s.client.Delete(t.Context(), r.ID); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.client.DeleteFile(t.Context(), id); err != nil {
		t.Errorf("delete a file that no run names: %v", err)
	}

	run, err = s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: history("")}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.ended(run.ID)
	const gone = `{"file_id":"file_01ARZ3NDEKTSV4RRFFQ69G5FAV"}`
	_, submitted := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: history(gone)}, "")
	_, forking := fork(run.ID, gone)
	for what, err := range map[string]error{"submit": submitted, "fork": forking} {
		if p := refused(t, what, err, api.CodeInvalidRequest); !strings.Contains(p.Detail, `there is no file "file_01ARZ3NDEKTSV4RRFFQ69G5FAV"`) {
			t.Errorf("%s: %s", what, p.Detail)
		}
	}

	var many []string // files of the user
	for range 50 {
		many = append(many, s.upload("a.txt", "x"))
	}
	later := func(file string) error {
		both := append(append(bytes.TrimSuffix(input(many...), []byte("]")), ','), history(file)[1:]...)
		_, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: both, Delay: model.Duration(time.Hour)}, "")
		return err
	}
	if err := later(`{"file_id":"` + many[0] + `"}`); err != nil {
		t.Errorf("50 files, one of them also in a result: %v", err)
	}
	if p := refused(t, "51 files", later(gone), api.CodeInvalidRequest); !strings.Contains(p.Detail, "names more than 50 files") {
		t.Errorf("51 files: %s", p.Detail)
	}
}
