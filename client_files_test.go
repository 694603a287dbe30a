package turnpike_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A program uploads, reads and deletes files, and gives them to models, in the process as over HTTP.
func TestFiles(t *testing.T) {
	t.Parallel()
	w := newWays(t)
	put(t, w.d.Client, agentOf("plain", says("Read.")...))
	for name, c := range map[string]*turnpike.Client{"in the process": w.d.Client, "over HTTP": w.client("all", false)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := c.Upload(t.Context(), turnpike.FileUpload{Name: "a.PDF", Content: strings.NewReader("%PDF-1.7")})
			if err != nil {
				t.Fatal(err)
			}
			if f.MediaType != "application/pdf" || f.Bytes != 8 || f.Name != "a.PDF" {
				t.Errorf("Upload: %+v", f)
			}
			plain, err := c.Upload(t.Context(), turnpike.FileUpload{Content: strings.NewReader("hello")})
			if err != nil || plain.MediaType != "text/plain" {
				t.Errorf("Upload without a type: %+v, %v", plain, err)
			}
			if got, err := c.FileByID(t.Context(), f.ID); err != nil || got != f {
				t.Errorf("FileByID: %+v, %v", got, err)
			}
			found := 0
			for got, err := range c.Files(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				if got.ID == f.ID || got.ID == plain.ID {
					found++
				}
			}
			if found != 2 {
				t.Errorf("Files has %d of 2", found)
			}
			r, err := c.Download(t.Context(), f.ID)
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(r)
			if err != nil || string(content) != "%PDF-1.7" || r.Close() != nil {
				t.Errorf("Download: %q, %v", content, err)
			}
			run, err := c.Submit(t.Context(), turnpike.Submission{Agent: "plain", Messages: []turnpike.Message{turnpike.UserMessage("Look", f.ID)}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := run.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			history, err := run.History(t.Context())
			if err != nil || len(history) < 2 || len(history[1].Parts) != 2 || history[1].Parts[1].Type != state.PartFile || history[1].Parts[1].Bytes != 8 {
				t.Errorf("History: %+v, %v", history, err)
			}
			if err := c.DeleteFile(t.Context(), f.ID); !errors.Is(err, turnpike.ErrConflict) {
				t.Errorf("DeleteFile of a file in use: %v", err)
			}
			if err := c.DeleteFile(t.Context(), plain.ID); err != nil {
				t.Error(err)
			}
			if _, err := c.Download(t.Context(), plain.ID); !errors.Is(err, turnpike.ErrNotFound) {
				t.Errorf("Download of a deleted file: %v", err)
			}
			_, err = c.Submit(t.Context(), turnpike.Submission{Agent: "plain", Messages: []turnpike.Message{turnpike.UserMessage("Look", plain.ID)}})
			if e, ok := errors.AsType[*turnpike.Error](err); !ok || e.Code != "invalid_request" {
				t.Errorf("Submit with a deleted file: %v", err)
			}
		})
	}
}

// Closing the deployment ends the content of a file that a program never closes, without waiting for it.
func TestFileContentEndsWithDeployment(t *testing.T) {
	t.Parallel()
	w := newWays(t)
	f, err := w.d.Upload(t.Context(), turnpike.FileUpload{Content: strings.NewReader("x")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.d.Download(t.Context(), f.ID); err != nil {
		t.Fatal(err)
	}
	_, err = w.d.Upload(t.Context(), turnpike.FileUpload{Content: strings.NewReader("x"), Bytes: 1 << 40})
	if e, ok := errors.AsType[*turnpike.Error](err); !ok || e.Code != "body_too_large" {
		t.Errorf("Upload of a file that is too large: %v", err)
	}
	w.d.Close()
	if _, err := w.d.Download(t.Context(), f.ID); !errors.Is(err, turnpike.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}
