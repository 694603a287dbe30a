package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// fileSize is the size of the files that users upload: more than one chunk on the bus.
const fileSize = 300_000

// fileFor returns the content of the file of a submission.
func fileFor(s Submitted) string { return strings.Repeat(s.Key+"\n", fileSize/(len(s.Key)+1)) }

// attach uploads a file and adds it to a submission's input.
func (u *users) attach(ctx context.Context, s *Submitted, req *api.SubmitRequest) bool {
	f, ok := insist(ctx, u, func(ctx context.Context) (api.File, error) {
		return u.door().client.PutFile(ctx, api.FileUpload{Name: s.Key + ".txt", MediaType: "text/plain", Content: strings.NewReader(fileFor(*s))})
	})
	if !ok {
		return false
	}
	s.File = f.ID
	var err error
	req.Input, err = json.Marshal([]any{map[string]any{"role": "user", "parts": []any{
		map[string]string{"type": "text", "text": "go"}, map[string]string{"type": "file", "file_id": f.ID},
	}}})
	return err == nil
}

// detach tries to delete the file of a run, which must be refused.
func (u *users) detach(ctx context.Context, s *Submitted) {
	if rig.Pause(ctx, time.Duration(u.dice(2500))*time.Millisecond) {
		_ = u.door().client.DeleteFile(ctx, s.File) // checkFile detects its loss
	}
}

// fileMissing reports whether the file of a run is not what was uploaded.
func fileMissing(ctx context.Context, s *deployment, r Submitted) (bool, error) {
	if r.File == "" {
		return false, nil
	}
	content, err := s.doors[0].client.FileContent(ctx, r.File)
	if errors.Is(err, api.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the file of run %s: %w", r.ID, err)
	}
	defer content.Close()
	got, err := io.ReadAll(content)
	return !bytes.Equal(got, []byte(fileFor(r))), err
}

// checkFile checks that a run has the file that its submission names (I1).
func (c *checker) checkFile(w Witness) {
	if w.FileMissing && !c.touched(w) {
		c.broken("I1", w.ID, "the run's file %s is gone", w.File)
	}
}
