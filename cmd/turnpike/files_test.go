package main

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// openBodies counts the responses whose bodies are open.
type openBodies struct{ n atomic.Int64 }

func (o *openBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		o.n.Add(1)
		resp.Body = &countedBody{resp.Body, o}
	}
	return resp, err
}

type countedBody struct {
	io.ReadCloser

	open *openBodies
}

func (c *countedBody) Close() error {
	c.open.n.Add(-1)
	return c.ReadCloser.Close()
}

// A file is uploaded from a path or standard input, and downloaded to a path or standard output, as it was.
func TestFilesAsTheyWere(t *testing.T) {
	t.Parallel()
	connections := &openBodies{}
	c := api.NewWithHTTP(workedAt(t), &http.Client{Transport: connections})
	dir := t.TempDir()
	content := strings.Repeat("tea\x00\n", 50_000)
	from, to := filepath.Join(dir, "tea.txt"), filepath.Join(dir, "copy")
	if err := os.WriteFile(from, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	first, err := says(t, c, "files", "put", from, "--type", "text/plain")
	if err != nil {
		t.Fatal(err)
	}
	var second bytes.Buffer
	if err := execute(t, c, strings.NewReader("short"), &second, "files", "put", "-", "--name", "in.txt"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, []byte(content+content), 0o600); err != nil { // a longer one is replaced
		t.Fatal(err)
	}
	for id, want := range map[string]string{strings.TrimSpace(first): content, strings.TrimSpace(second.String()): "short"} {
		if got, err := says(t, c, "files", "get", id); err != nil || got != want {
			t.Errorf("get %s has %d bytes, %v; want %d", id, len(got), err, len(want))
		}
		printed, err := says(t, c, "files", "get", id, to)
		if got, readErr := os.ReadFile(to); err != nil || readErr != nil || string(got) != want || printed != "" {
			t.Errorf("get %s FILE wrote %d bytes, %v, %v, and printed %q; want %d", id, len(got), err, readErr, printed, len(want))
		}
	}
	if text, err := says(t, c, "files", "ls"); err != nil || !strings.Contains(text, "250000") || !strings.Contains(text, "tea.txt") || !strings.Contains(text, "in.txt") {
		t.Errorf("ls: %v\n%s", err, text)
	}
	if err := os.WriteFile(to, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	id := strings.TrimSpace(first)
	if text, err := says(t, c, "files", "rm", id); err != nil || text != "removed "+id+"\n" {
		t.Errorf("rm: %q, %v", text, err)
	}
	if _, err := says(t, c, "files", "get", id, to); err == nil {
		t.Error("a removed file is downloaded")
	}
	if got, err := os.ReadFile(to); err != nil || string(got) != "kept" {
		t.Errorf("the failed download leaves %q, %v", got, err)
	}
	if _, err := says(t, c, "files", "get", strings.TrimSpace(second.String()), filepath.Join(dir, "none", "copy")); err == nil {
		t.Error("a download to a directory that is missing succeeds")
	}
	// A terminal shows the content, and does not obey it.
	var shown bytes.Buffer
	e := newEnv(&shown, &shown, false, true)
	e.ctx, e.client, e.in = t.Context(), c, strings.NewReader("a\x1b[2Jb")
	f, err := e.upload("-", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := (&filesGetCmd{ID: f.ID, File: "-"}).Run(e); err != nil || shown.String() != "a\uFFFD[2Jb" {
		t.Errorf("a terminal gets %q, %v", &shown, err)
	}
	if n := connections.n.Load(); n != 0 {
		t.Errorf("%d responses are open", n)
	}
}
