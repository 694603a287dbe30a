package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Runs of the kind noted share the memory notesScope, and in it the file sharedNote.
const (
	notesScope = "agent:noted"
	sharedNote = "all"
)

// startNotes creates the file that all runs of the kind noted write to.
func (s *deployment) startNotes(ctx context.Context) error {
	return rig.Until(ctx, ready, "the memory is there", func(ctx context.Context) error {
		_, err := s.doors[0].client.PutMemoryFile(ctx, notesScope, sharedNote, "", 0)
		return err
	})
}

// notesOf reads the memory of the kind noted.
func notesOf(ctx context.Context, s *deployment) (map[string]string, error) {
	all := map[string]string{}
	for cursor := ""; ; {
		page, err := s.doors[0].client.MemoryFiles(ctx, notesScope, cursor, 100)
		if err != nil {
			return nil, fmt.Errorf("read the memory: %w", err)
		}
		for _, f := range page.Items {
			if f, err = s.doors[0].client.MemoryFile(ctx, notesScope, f.Path); err != nil {
				return nil, fmt.Errorf("read the memory: %w", err)
			}
			all[f.Path] = *f.Content
		}
		if page.NextCursor == nil {
			return all, nil
		}
		cursor = *page.NextCursor
	}
}

// checkNotes checks that each committed memory change exists, and exists once (I3, I4).
func (c *checker) checkNotes(w Witness) {
	if w.Kind != "noted" {
		return
	}
	calls := map[string]string{} // arguments by call
	for _, e := range w.Log {
		if e.Type == state.EntryModel && e.Message != nil {
			nonce := nonceOf(e.Message)
			if n := strings.Count(c.Notes[sharedNote], nonce); n > 1 && len(nonce) == len(nonceMark) {
				c.broken("I4", w.ID, "the note %q is in the shared file %d times", nonce, n)
			}
			for _, call := range e.Message.Calls() {
				calls[call.ID] = call.Arguments
			}
		}
		if e.Type != state.EntryTool || e.Name != "note" || e.IsError || e.Message == nil || e.Message.Synthetic || c.touched(w) {
			continue
		}
		var args struct {
			Path string `json:"path"`
			File string `json:"file_text"`
			Line string `json:"insert_text"`
		}
		if err := json.Unmarshal([]byte(calls[e.CallID]), &args); err != nil {
			c.broken("I3", w.ID, "call %s has the arguments %q", e.CallID, calls[e.CallID])
			continue
		}
		if has := c.Notes[strings.TrimPrefix(args.Path, "/memories/")]; !strings.Contains(has, args.File+args.Line) || args.File != "" && has != args.File {
			c.broken("I3", w.ID, "call %s has written %q to %s, which has %q", e.CallID, args.File+args.Line, args.Path, has)
		}
	}
}

// checkHanded checks that a run is handed over once, and completes under the agent that received it (I1).
func (c *checker) checkHanded(w Witness) {
	if w.Kind != "handed" {
		return
	}
	n := 0
	for _, e := range w.Log {
		if e.Type == state.EntryHandoff {
			n++
		}
	}
	switch taken := w.Run.ActiveAgent != nil && w.Run.ActiveAgent.Name == "taker"; {
	case n > 1, taken != (n == 1):
		c.broken("I1", w.ID, "the log has %d handoffs, and the active agent is %v", n, w.Run.ActiveAgent)
	case n == 0 && w.Run.Status == string(state.Completed) && !w.Mode.Interrupts():
		c.broken("I1", w.ID, "the run completed without its handoff")
	}
}
