package effect

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/clock"
	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

const (
	// settleTimeout bounds how long a result waits for a store or a bus that does not answer.
	settleTimeout = 30 * time.Second

	// settlePause is the time between two tries.
	settlePause = 200 * time.Millisecond
)

// settle prepares the files of a result for the history. It uploads inline data as a file of the tenant, so that the
// history contains only its id. It binds each file of the tenant to the run before the journal has the result, so that
// the file is not deleted while a stored history names it. It replaces a file with a remark for the model if
// tool.CheckFiles refuses the file, if the run's tenant does not have it, or if it cannot be stored or bound. It keeps
// a file with a URL, and does not read the URL. The limit of settleTimeout is for all files together. The end of ctx
// does not end settle, because the result must be kept.
func (ts *tools) settle(ctx context.Context, t *Turn, name string, files []state.Part) (kept []state.Part, remark string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	files, remark = tool.CheckFiles(files)
	for _, f := range files {
		label := strings.Trim(f.FileLabel(), "[]")
		f, err := ts.settleFile(ctx, t, name, f)
		if err != nil {
			remark += fmt.Sprintf("\n[%s left out: %v]", label, err)
			continue
		}
		kept = append(kept, f)
	}
	return kept, remark
}

// settleFile returns a file as the history has it. The error is for the model.
func (ts *tools) settleFile(ctx context.Context, t *Turn, name string, f state.Part) (state.Part, error) {
	f.MediaType = model.MediaType(f.MediaType)
	if f.URL != "" {
		return f, nil
	}
	files, tenant := ts.cfg.Files, t.Run.Tenant
	if files == nil {
		return f, errors.New("this worker has no storage for files: continue without the file; the operator must connect the worker to NATS with JetStream")
	}
	var made file.File
	err := ts.persist(ctx, func() (err error) {
		if f.Data == "" {
			made, err = files.Get(ctx, tenant, f.FileID)
			return err
		}
		content := base64.NewDecoder(base64.StdEncoding, strings.NewReader(f.Data))
		made, err = files.Put(ctx, tenant, file.File{Name: f.Name, MediaType: f.MediaType, By: "tool " + name}, content)
		return err
	})
	if err == nil {
		err = ts.persist(ctx, func() error { return files.Bind(ctx, tenant, file.User{Run: t.Run.ID}, made.ID) })
	}
	switch {
	case err == nil:
		return state.Part{Type: state.PartFile, FileID: made.ID, Name: made.Name, MediaType: made.MediaType, Bytes: made.Bytes}, nil
	case errors.Is(err, file.ErrNotFound):
		if f.FileID == "" { // it was stored
			return f, errors.New("the file was deleted while it was stored: continue without the file, or call the tool again")
		}
		return f, fmt.Errorf("tenant %s has no file with the id %.60q: continue without the file; the tool must name one that was uploaded to this tenant", tenant, f.FileID)
	case errors.Is(err, bus.ErrObjectsFull):
		return f, fmt.Errorf("the files of tenant %s have reached their limit in bytes: continue without the file; a user must delete some, or the operator raise TURNPIKE_FILES_MIB (in Go, NATS.Limits.Files)", tenant)
	case errors.Is(err, file.ErrTooMany):
		return f, err
	default:
		ts.log.Warn("file of a result not stored", "error", err, "run_id", t.Run.ID, "tool", name, "hint", "run `turnpike doctor`: the store or NATS may be unreachable or refuse the operation; the model gets a note in place of the file")
		return f, errors.New("the file could not be stored: continue without the file; the worker's log has the cause")
	}
}

// persist calls f until it succeeds, ctx ends, or a retry cannot help. It returns the last error.
func (ts *tools) persist(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || errors.Is(err, file.ErrNotFound) || errors.Is(err, file.ErrTooMany) || errors.Is(err, bus.ErrObjectsFull) || !clock.Pause(ctx, settlePause) {
			return err
		}
	}
}
