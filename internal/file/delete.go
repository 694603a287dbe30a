package file

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Delete deletes a file. The error is an *InUseError if something refers to the file, which then stays, or a
// *MissingError. It wraps state.ErrChanged if another deletion stays undecided, or other requests keep changing the
// file. After any other error another request for the file or Sweep may complete the deletion later.
func (s *Files) Delete(ctx context.Context, tenant, id string) error {
	return s.remove(ctx, tenant, id, func(*record, time.Time) bool { return true })
}

// remove deletes a file if selected returns true for it and nothing refers to it. It returns nil if selected returns
// false.
func (s *Files) remove(ctx context.Context, tenant, id string, selected func(*record, time.Time) bool) error {
	for range maxTries {
		r, raw, err := s.read(ctx, tenant, id)
		if err != nil {
			return err
		}
		now, err := s.store.Now(ctx)
		if err != nil {
			return err
		}
		if !selected(r, now) {
			return nil
		}
		if r.Removal != nil && r.Removal.Decided {
			return s.purge(ctx, tenant, id)
		}
		if r.Removal != nil && !r.Removal.abandoned(now) {
			if err := pause(ctx); err != nil {
				return err
			}
			continue // wait for the decision of another process
		}
		decided, err := s.decide(ctx, tenant, r, raw, now)
		if errors.Is(err, state.ErrChanged) {
			continue // another process has changed the file: read it again
		}
		if err != nil {
			return err
		}
		if decided {
			return s.purge(ctx, tenant, id)
		}
	}
	return fmt.Errorf("file %s was not deleted, since other requests keep changing it: %w", id, state.ErrChanged)
}

// settle waits until no deletion of a file is undecided, and returns nil if the file still exists, or a *MissingError.
// If a deletion has been undecided for takeOverDelay, settle decides it itself. The error wraps state.ErrChanged if a
// deletion stays undecided, or if other requests keep changing the file.
func (s *Files) settle(ctx context.Context, tenant, id string) error {
	for range maxTries {
		r, _, err := s.read(ctx, tenant, id)
		if err != nil {
			return err
		}
		if r.Removal == nil {
			return nil
		}
		if r.Removal.Decided {
			return &MissingError{id}
		}
		now, err := s.store.Now(ctx)
		if err != nil {
			return err
		}
		if !r.Removal.abandoned(now) {
			if err := pause(ctx); err != nil {
				return err
			}
			continue
		}
		err = s.remove(ctx, tenant, id, func(r *record, now time.Time) bool { return r.Removal != nil && r.Removal.abandoned(now) })
		if _, used := errors.AsType[*InUseError](err); err != nil && !used {
			return err
		}
	}
	return fmt.Errorf("file %s cannot be used, since another request is deleting it: %w", id, state.ErrChanged)
}

// pause waits a moment for another process.
func pause(ctx context.Context) error {
	t := time.NewTimer(pauseDelay)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// decide marks a file, and then marks its deletion as decided if nothing refers to the file; else it removes the mark
// and returns an *InUseError. It reports whether it has decided to delete the file. The error is state.ErrChanged if
// another process has changed the file in between.
func (s *Files) decide(ctx context.Context, tenant string, r *record, raw json.RawMessage, now time.Time) (bool, error) {
	marked := *r
	marked.Removal = &removal{Token: rand.Text(), At: state.At(now)}
	if err := s.replace(ctx, tenant, r.ID, raw, &marked); err != nil {
		return false, err
	}
	_, mark, err := s.read(ctx, tenant, r.ID)
	if err != nil {
		return false, err
	}
	if !bytes.Contains(mark, []byte(marked.Removal.Token)) {
		return false, state.ErrChanged
	}
	used, err := s.user(ctx, tenant, r.ID, now)
	if err != nil {
		return false, err // the mark stays; Sweep continues later
	}
	after := marked
	if used.By != "" {
		after.Removal, after.UsedAt = nil, state.At(now)
	} else {
		after.Removal = &removal{Token: marked.Removal.Token, At: marked.Removal.At, Decided: true}
	}
	if err := s.replace(context.WithoutCancel(ctx), tenant, r.ID, mark, &after); err != nil {
		return false, err
	}
	if used.By != "" {
		return false, &used
	}
	return true, nil
}

// purge deletes everything that is left of a file whose deletion is decided, its document last. It may be repeated.
func (s *Files) purge(ctx context.Context, tenant, id string) error {
	if err := s.objects.DeleteObject(ctx, tenant, id); err != nil {
		return &ContentError{err}
	}
	users, err := s.store.DocumentNames(ctx, state.FileUsersOf(id))
	if err != nil {
		return err
	}
	for _, name := range users {
		if err := s.store.DeleteDocument(ctx, state.FileUsersOf(id), name); err != nil {
			return err
		}
	}
	return s.store.DeleteDocument(ctx, state.FilesOf(tenant), id)
}

// user returns one user that refers to a file; By is "" if no user does. It deletes references of users that do not
// exist.
func (s *Files) user(ctx context.Context, tenant, id string, now time.Time) (InUseError, error) {
	used := InUseError{ID: id}
	names, err := s.store.DocumentNames(ctx, state.FileUsersOf(id))
	if err != nil {
		return used, err
	}
	for _, name := range names {
		raw, err := s.store.Document(ctx, state.FileUsersOf(id), name)
		if errors.Is(err, state.ErrNotFound) {
			continue
		}
		if err != nil {
			return used, err
		}
		var ref reference
		if err := json.Unmarshal(raw, &ref); err != nil {
			return used, fmt.Errorf("decode reference to file %s: %w", id, err)
		}
		found, deleted, err := s.exists(ctx, tenant, id, name, ref)
		switch {
		case err != nil:
			return used, err
		case found.By != "":
			return found, nil
		case !deleted && now.Sub(ref.At.Time) < BindDelay:
			used.By, used.Until = label(name), state.At(ref.At.Add(BindDelay))
			return used, nil
		}
		if err := s.store.ReplaceDocument(ctx, state.FileUsersOf(id), name, raw, nil); err != nil && !errors.Is(err, state.ErrChanged) {
			return used, err
		}
	}
	return used, nil
}

// label returns the name of a user for people.
func label(name string) string {
	if first, ok := strings.CutPrefix(name, batchPrefix); ok {
		return "batch " + state.BatchPrefix + strings.TrimPrefix(first, state.RunPrefix)
	}
	if strings.HasPrefix(name, schedulePrefix) {
		return name
	}
	return "run " + name
}

// exists returns the user of a reference if it exists and may name the file; else By is "". deleted reports that it has
// existed: the store remembers deleted runs for some time.
func (s *Files) exists(ctx context.Context, tenant, id, name string, ref reference) (used InUseError, deleted bool, err error) {
	used.ID = id
	if schedule, ok := strings.CutPrefix(name, schedulePrefix); ok {
		raw, err := s.store.Document(ctx, state.SchedulesOf(tenant), schedule)
		if errors.Is(err, state.ErrNotFound) || err == nil && !bytes.Contains(raw, []byte(id)) {
			return used, false, nil
		}
		used.By = name
		return used, false, err
	}
	deleted = true
	for i := range max(ref.Runs, 1) {
		run := state.RunID(strings.TrimPrefix(name, batchPrefix)).Plus(i)
		_, err := s.store.Load(ctx, run)
		switch {
		case ref.Runs > 0 && (err == nil || errors.Is(err, state.ErrFormat)):
			// Only the logs of the runs show which run names the file; reading all of them would be expensive.
			used.By, used.Run = label(name), run
			return used, false, nil
		case err == nil, errors.Is(err, state.ErrFormat):
			used.By = label(name)
			return used, false, nil
		case !errors.Is(err, state.ErrNotFound):
			return used, false, err
		}
		deleted = deleted && errors.Is(err, state.ErrDeleted)
	}
	return used, deleted, nil
}

// Sweep deletes the files of a tenant that it has not found in use for the time Keep, continues deletions that are
// older than takeOverDelay, and deletes the objects that unfinished uploads have left. It returns the number of files
// that it has deleted because they were not in use. After an error about one file it continues with the others, and
// returns all such errors joined; any other error ends it. If ctx ends, it may return nil before it has examined all
// files.
func (s *Files) Sweep(ctx context.Context, tenant string) (deleted int, err error) {
	// In this order: an upload that completes in between then has its document.
	objects, err := s.objects.ObjectNames(ctx, tenant)
	if err != nil {
		return 0, err
	}
	documents, err := s.store.Documents(ctx, state.FilesOf(tenant))
	if err != nil {
		return 0, err
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return 0, err
	}
	for _, name := range objects {
		if made, ok := madeAt(name); ok && documents[name] == nil && now.Sub(made) > UploadTimeout {
			if err := s.objects.DeleteObject(ctx, tenant, name); err != nil {
				return deleted, err
			}
		}
	}
	var failed []error
	for id, raw := range documents {
		var r record
		if err := json.Unmarshal(raw, &r); err != nil {
			failed = append(failed, fmt.Errorf("decode file %s: %w", id, err))
			continue
		}
		gone, err := s.sweepFile(ctx, tenant, &r, raw, now)
		if err != nil {
			failed = append(failed, fmt.Errorf("file %s: %w", id, err))
		}
		if gone {
			deleted++
		}
		if ctx.Err() != nil {
			break
		}
	}
	return deleted, errors.Join(failed...)
}

// sweepFile deletes one file if nothing has referred to it for Keep, or completes its deletion. It reports whether it
// has deleted the file for the former reason.
func (s *Files) sweepFile(ctx context.Context, tenant string, r *record, raw json.RawMessage, now time.Time) (gone bool, err error) {
	if r.Removal == nil {
		if now.Sub(r.UsedAt.Time) < checkInterval {
			return false, nil
		}
		found, err := s.user(ctx, tenant, r.ID, now)
		if err != nil {
			return false, err
		}
		if found.By != "" {
			used := *r
			used.UsedAt = state.At(now)
			if err := s.replace(ctx, tenant, r.ID, raw, &used); err != nil && !errors.Is(err, state.ErrChanged) {
				return false, err
			}
			return false, nil
		}
	}
	err = s.remove(ctx, tenant, r.ID, func(r *record, now time.Time) bool {
		if r.Removal != nil {
			return r.Removal.abandoned(now)
		}
		gone = now.Sub(r.UsedAt.Time) >= Keep
		return gone
	})
	if _, used := errors.AsType[*InUseError](err); used || errors.Is(err, ErrNotFound) {
		return false, nil
	}
	return gone && err == nil, err
}

// DropTenant deletes all files of a tenant, also those that runs refer to: model calls of these runs fail then.
func (s *Files) DropTenant(ctx context.Context, tenant string) error {
	ids, err := s.IDs(ctx, tenant)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := s.purge(ctx, tenant, id); err != nil {
			return err
		}
	}
	if err := s.objects.DropObjects(ctx, tenant); err != nil {
		return &ContentError{err}
	}
	return nil
}
