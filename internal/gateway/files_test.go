package gateway_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

func (s *guarded) upload(c *api.Client, f api.FileUpload, content string) api.File {
	s.t.Helper()
	f.Content = strings.NewReader(content)
	made, err := c.PutFile(s.t.Context(), f)
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

// Files can be uploaded raw or as forms, listed, described, downloaded as attachments, and deleted.
func TestFiles(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	key := s.key("acme", access.Submitter, access.Viewer)
	c := api.New(s.url, api.WithToken(key))
	const html = "<html><script>alert(1)</script>"
	raw := s.upload(c, api.FileUpload{Name: "räport \"1\".html", MediaType: "Text/HTML; charset=utf-8"}, html)
	if raw.MediaType != "text/html" || raw.Bytes != int64(len(html)) || raw.Name != "räport \"1\".html" || raw.CreatedBy == "" || !strings.HasPrefix(raw.ID, "file_") || len(raw.SHA256) != 64 {
		t.Errorf("PutFile: %+v", raw)
	}
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	_ = w.WriteField("purpose", "user_data")
	part, err := w.CreateFormFile("file", "a.PDF")
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(part, "%PDF-1.7")
	_ = w.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/files", io.MultiReader(&form)) // chunked
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", w.FormDataContentType())
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	id, _ := strings.CutPrefix(resp.Header.Get("Location"), "/v1/files/")
	if f, err := c.File(t.Context(), id); err != nil || f.MediaType != "application/pdf" || f.Name != "a.PDF" || f.Bytes != 8 {
		t.Errorf("%s: %+v, %v", resp.Status, f, err)
	}
	for content, want := range map[string]string{"%PDF-1.4": "application/pdf", "hello": "text/plain", "\x89PNG\r\n\x1a\n": "image/png"} {
		if f := s.upload(c, api.FileUpload{}, content); f.MediaType != want {
			t.Errorf("the type of %q is %s, want %s", content, f.MediaType, want)
		}
	}
	page, err := c.Files(t.Context(), "", 2)
	if err != nil || len(page.Items) != 2 || page.NextCursor == nil {
		t.Fatalf("Files: %+v, %v", page, err)
	}
	rest, err := c.Files(t.Context(), *page.NextCursor, 100)
	all := append(page.Items, rest.Items...) // files of one millisecond are in any order
	if err != nil || len(all) != 5 || !slices.Contains(all, raw) || rest.NextCursor != nil {
		t.Errorf("Files: %+v, then %+v, %v", page, rest, err)
	}
	req, err = http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/files/"+raw.ID+"/content", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Range", "bytes=1-2") // ignored
	if resp, err = http.DefaultClient.Do(req); err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil || string(content) != html || resp.ContentLength != int64(len(html)) {
		t.Errorf("content %q, %v", content, err)
	}
	for name, want := range map[string]string{
		"Accept-Ranges": "none", "Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff", "Etag": `"` + raw.SHA256 + `"`,
		"Content-Disposition": "attachment; filename*=utf-8''r%C3%A4port%20%221%22.html",
	} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, "sandbox; default-src 'none'") {
		t.Errorf("Content-Security-Policy: %s", csp)
	}
	shown, err := c.FileContent(t.Context(), s.upload(c, api.FileUpload{Name: "note.txt"}, "hello").ID) // of type text/plain
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	if content, err := io.ReadAll(shown); err != nil || string(content) != "hello" {
		t.Errorf("content %q, %v", content, err)
	}
	if err := c.DeleteFile(t.Context(), raw.ID); err != nil {
		t.Error(err)
	}
	_, getErr := c.File(t.Context(), raw.ID)
	_, openErr := c.FileContent(t.Context(), raw.ID)
	for _, err := range []error{getErr, openErr, c.DeleteFile(t.Context(), raw.ID)} {
		refused(t, "a deleted file", err, api.CodeFileNotFound)
	}
}

// An upload that cannot be stored is refused with the reason, and leaves nothing behind.
func TestFilesRefused(t *testing.T) {
	t.Parallel()
	store, b := memstore.New(memstore.Config{}), membus.New()
	keys := access.NewKeys(store)
	g, err := gateway.New(store, b, gateway.Config{Auth: access.Chain{Keys: keys}, MaxBody: 100 << 10, MaxFile: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(server.Close)
	s := &guarded{t, server.URL, &countingStore{Store: store}, keys, b}
	key := s.key("acme", access.Submitter)
	post := func(contentType, query string, body io.Reader) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url+"/v1/files"+query, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", contentType)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return http.StatusRequestEntityTooLarge, "larger than 1048576 bytes" // closed before everything was sent
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	const form = "multipart/form-data; boundary=b"
	file := "--b\r\nContent-Disposition: form-data; name=f; filename=a.txt\r\n\r\n"
	for name, tt := range map[string]struct {
		contentType, query string
		body               io.Reader
		status             int
		want               string
	}{
		"too large":             {"text/plain", "", strings.NewReader(strings.Repeat("x", 1<<20+1)), 413, "larger than 1048576 bytes"},
		"too large, chunked":    {"text/plain", "", io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20+1))), 413, "larger than 1048576 bytes"},
		"far too large":         {"text/plain", "", io.LimitReader(zeros{}, 64<<20), 413, "larger than"},
		"form, too large":       {form, "", strings.NewReader(file + strings.Repeat("x", 1<<20+1) + "\r\n--b--\r\n"), 413, "larger than 1048576 bytes"},
		"form without a file":   {form, "", strings.NewReader("--b\r\nContent-Disposition: form-data; name=f\r\n\r\nx\r\n--b--\r\n"), 400, "no part with a file name"},
		"form with two files":   {form, "", strings.NewReader(file + "one\r\n" + file + "two\r\n--b--\r\n"), 400, "more than one file"},
		"form, second cut off":  {form, "", strings.NewReader(file + "one\r\n--b\r\nContent-"), 400, "the multipart body is not valid"},
		"form that ends early":  {form, "", strings.NewReader(file + "half"), 400, "send it again: unexpected EOF"},
		"form without boundary": {"multipart/form-data", "", strings.NewReader("x"), 400, "no boundary"},
		"no form":               {form, "", strings.NewReader("x"), 400, "multipart"},
		"empty":                 {"text/plain", "", http.NoBody, 400, "the file has no content: send at least one byte"},
		"empty, chunked":        {"", "", io.MultiReader(strings.NewReader("")), 400, "the file has no content"},
		"form, empty":           {form, "", strings.NewReader(file + "\r\n--b--\r\n"), 400, "the file has no content"},
		"no media type":         {"pdf", "", strings.NewReader("x"), 400, "media type"},
		"long name":             {"text/plain", "?name=" + strings.Repeat("a", 256), strings.NewReader("x"), 400, "at most 255 bytes"},
		"name with a line end":  {"text/plain", "?name=a%0Ab", strings.NewReader("x"), 400, "control characters"},
	} {
		status, text := post(tt.contentType, tt.query, tt.body)
		if status != tt.status || !strings.Contains(text, tt.want) {
			t.Errorf("%s: %d %s, want %d %s", name, status, text, tt.status, tt.want)
		}
	}
	// A sender disappears in the middle of an upload.
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = fmt.Fprintf(conn, "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: text/plain\r\nContent-Length: 500000\r\n\r\n%s", key, strings.Repeat("x", 200_000))
	_ = conn.(*net.TCPConn).CloseWrite()
	_, _ = io.ReadAll(conn)
	_ = conn.Close()
	if status, _ := post("text/plain", "", strings.NewReader(strings.Repeat("x", 1<<20))); status != http.StatusCreated {
		t.Errorf("a file of the maximum size: %d", status)
	}
	if status, text := post("text/plain", "?name="+strings.Repeat("a", 255), strings.NewReader("x")); status != http.StatusCreated {
		t.Errorf("a name of the maximum length: %d %s", status, text)
	}
	names, err := b.ObjectNames(t.Context(), "acme")
	if err != nil || len(names) != 2 {
		t.Errorf("stored: %v, %v, want only the last two", names, err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// seer is a provider that records what its models read.
type seer struct {
	mu   sync.Mutex
	seen [][]state.Message
}

func (s *seer) Generate(_ context.Context, r model.Request, _ func(model.Delta)) (model.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, r.Messages)
	return model.Response{Parts: []state.Part{{Type: state.PartText, Text: "seen"}}, Stop: model.StopEnd, Model: "m", Provider: "scripted"}, nil
}

// files returns the names and contents of the files in the latest request.
func (s *seer) files(t *testing.T) (found []string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.seen[len(s.seen)-1] {
		for _, p := range m.Parts {
			if p.Type == state.PartFile {
				content, err := base64.StdEncoding.DecodeString(p.Data)
				if err != nil {
					t.Error(err)
				}
				found = append(found, p.Name+" "+p.MediaType+" "+string(content))
			}
		}
	}
	return found
}

func input(ids ...string) []byte {
	parts := []string{`{"type":"text","text":"Look"}`}
	for _, id := range ids {
		parts = append(parts, fmt.Sprintf(`{"type":"file","file_id":%q}`, id))
	}
	return []byte(`[{"role":"user","parts":[` + strings.Join(parts, ",") + `]}]`)
}

func (s *deployment) upload(name, content string) string {
	s.t.Helper()
	f, err := s.client.PutFile(s.t.Context(), api.FileUpload{Name: name, Content: strings.NewReader(content)})
	if err != nil {
		s.t.Fatal(err)
	}
	return f.ID
}

func (s *deployment) ended(id string) api.Run {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	for _, err := range s.client.Events(ctx, id, 0) {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	run, err := s.client.Get(ctx, id)
	if err != nil {
		s.t.Fatal(err)
	}
	return run
}

// A model reads the files that the input and messages name, also in a fork. The history contains only their
// names. A file cannot be deleted while runs name it.
func TestFilesOfRuns(t *testing.T) {
	t.Parallel()
	eye := &seer{}
	s := newDeployment(t, func(c *worker.Config) { c.Providers["scripted"] = eye })
	first, second := s.upload("a.txt", strings.Repeat("first ", 50_000)), s.upload("b.pdf", "%PDF")
	run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: input(first)}, "key")
	if err != nil {
		t.Fatal(err)
	}
	s.ended(run.ID)
	want := []string{"a.txt text/plain " + strings.Repeat("first ", 50_000)}
	if got := eye.files(t); !slices.Equal(got, want) {
		t.Errorf("the model saw %.200q", got)
	}
	if _, err := s.client.Signal(t.Context(), run.ID, api.SignalRequest{Message: input(second)[1 : len(input(second))-1]}); err != nil {
		t.Fatal(err)
	}
	s.ended(run.ID)
	want = append(want, "b.pdf application/pdf %PDF")
	if got := eye.files(t); !slices.Equal(got, want) {
		t.Errorf("after the message the model read %.200q", got)
	}
	messages, err := s.client.Messages(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	p := messages[0].Parts[1]
	if p.Type != state.PartFile || p.FileID != first || p.MediaType != "text/plain" || p.Bytes != 300_000 || p.Name != "a.txt" || p.Data != "" {
		t.Errorf("the history has %.300v", p)
	}
	turn := 1
	fork, err := s.client.Fork(t.Context(), run.ID, api.ForkRequest{Turn: &turn, Input: api.Text("again")})
	if err != nil {
		t.Fatal(err)
	}
	s.ended(fork.ID)
	if got := eye.files(t); !slices.Equal(got, want[:1]) {
		t.Errorf("in the fork the model read %.200q", got)
	}
	batch, err := s.client.SubmitBatch(t.Context(), api.BatchRequest{Runs: []api.SubmitRequest{{Agent: "hello", Input: api.Text("x")}, {Agent: "hello", Input: input(second)}}}, "")
	if err != nil {
		t.Fatal(err)
	}
	s.ended(batch.RunIDs[0])
	s.ended(batch.RunIDs[1])
	// The files exist as long as one of the runs does.
	for _, id := range []string{run.ID, batch.RunIDs[0]} {
		if err := s.client.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{first, second} {
		refused(t, "delete a file in use", s.client.DeleteFile(t.Context(), id), api.CodeFileInUse)
	}
	for _, id := range []string{fork.ID, batch.RunIDs[1]} {
		if err := s.client.Delete(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{first, second} {
		if err := s.client.DeleteFile(t.Context(), id); err != nil {
			t.Errorf("delete a file that no run names: %v", err)
		}
	}
	_, err = s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: input(first)}, "")
	if p := refused(t, "submit with a deleted file", err, api.CodeInvalidRequest); !strings.Contains(p.Detail, first) {
		t.Error(p.Detail)
	}
}

// A repeated submission returns its run although the file is gone. A run whose file is gone fails with the
// reason.
func TestMissingFile(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	id := s.upload("a.txt", "x")
	run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: input(id), Delay: model.Duration(time.Hour)}, "key")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.bus.DeleteObject(t.Context(), "default", id); err != nil {
		t.Fatal(err)
	}
	if err := s.store.DeleteDocument(t.Context(), state.FilesOf("default"), id); err != nil {
		t.Fatal(err)
	}
	again, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: input(id), Delay: model.Duration(time.Hour)}, "key")
	if err != nil || again.ID != run.ID {
		t.Errorf("submitted again: %s, %v, want %s", again.ID, err, run.ID)
	}
	lost := s.upload("c.txt", "x")
	if err := s.bus.DeleteObject(t.Context(), "default", lost); err != nil {
		t.Fatal(err)
	}
	broken, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: input(lost)}, "")
	if err != nil {
		t.Fatal(err)
	}
	if run := s.ended(broken.ID); run.Status != "failed" || run.Error == nil || !strings.Contains(run.Error.Message, "file "+lost+" does not exist") {
		t.Errorf("a run without its file: %s %+v", run.Status, run.Error)
	}
}

// Invalid file parts are refused with their location.
func TestFilePartsRefused(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.put("claude", `{model: {provider: anthropic, name: claude-haiku-4-5}}`)
	id := s.upload("a.wav", "x")
	for part, want := range map[string]string{
		`{"type":"file"}`: "parts[0]: a file needs file_id, data or url",
		`{"type":"file","file_id":"x","url":"https://example.com"}`:                          "exactly one of",
		`{"type":"file","data":"aGk="}`:                                                      "parts[0]: a file with data or url needs a media_type",
		`{"type":"file","data":"","media_type":"text/plain"}`:                                "parts[0]: the file has no content",
		`{"type":"file","data":"\r\n","media_type":"text/plain"}`:                            "parts[0]: the file's data is empty",
		`{"type":"image","data":"\n","media_type":"image/png"}`:                              "parts[0]: the image's data is empty",
		`{"type":"file","data":"x","media_type":"text/plain"}`:                               "is not base64",
		`{"type":"file","data":"aGk=","media_type":"pdf"}`:                                   "media type \"pdf\"",
		`{"type":"file","file_id":"file_x"}`:                                                 "there is no file \"file_x\"",
		`{"type":"file","file_id":"` + id + `"}`:                                             "anthropic takes no audio/",
		`{"type":"file","url":"https://example.com/a.mp3","media_type":"audio/mp3"}`:         "anthropic takes no audio/mpeg",
		`{"type":"file","data":"aGk=","media_type":"text/plain","name":"` + "\\u0000" + `"}`: "control characters",
		`{"type":"file","url":"file:///etc/passwd","media_type":"text/plain"}`:               "is not an http or https URL",
		`{"type":"file","url":"https:///a.txt","media_type":"text/plain"}`:                   "is not an http or https URL",
		`{"type":"file","url":"https://ann:pw@example.com/a","media_type":"text/plain"}`:     "has a user or a password",
		`{"type":"image","url":"javascript:alert(1)"}`:                                       "is not an http or https URL",
	} {
		_, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "claude", Input: []byte(`[{"role":"user","parts":[` + part + `]}]`)}, "")
		if p := refused(t, part, err, api.CodeInvalidRequest); !strings.Contains(p.Detail, want) {
			t.Errorf("%s: %s, want %s", part, p.Detail, want)
		}
	}
	_, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "claude", Input: []byte(`[{"role":"assistant","parts":[{"type":"file","file_id":"` + id + `"}]},{"content":"x"}]`)}, "")
	if p := refused(t, "a file of the assistant", err, api.CodeInvalidRequest); !strings.Contains(p.Detail, "a message of role assistant cannot have a part of type") {
		t.Error(p.Detail)
	}
	s.put("front", `{"model": {"provider": "scripted", "responses": [{"tool_calls": [{"id": "c1", "name": "over", "arguments": {}}]}]},
		"tools": [{"name": "over", "kind": "handoff", "agent": "claude"}]}`)
	_, _, handed := s.call("POST", "/v1/runs?wait=2m", `{"agent":"front","input":"go"}`)
	_, err = s.client.Signal(t.Context(), handed["id"].(string), api.SignalRequest{Message: input(id)[1 : len(input(id))-1]})
	if p := refused(t, "a message after a handoff", err, api.CodeInvalidRequest); !strings.Contains(p.Detail, "anthropic takes no audio/") {
		t.Error(p.Detail)
	}
	run, err := s.client.Submit(t.Context(), api.SubmitRequest{Agent: "hello", Input: []byte(`[{"role":"user","parts":[{"type":"file","data":"aGk=","media_type":"Text/Plain; charset=x","name":"a"}]}]`)}, "")
	if err != nil {
		t.Fatal(err)
	}
	messages, err := s.client.Messages(t.Context(), run.ID)
	if p := messages[0].Parts[0]; err != nil || p.MediaType != "text/plain" || p.Bytes != 2 || p.Data != "aGk=" {
		t.Errorf("inline: %+v, %v", p, err)
	}
}
