package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

type deadCmd struct {
	Ls     deadLsCmd     `cmd:"" default:"withargs" help:"List dead letters."`
	Show   deadShowCmd   `cmd:"" help:"Show a dead letter: its cause and the remedy."`
	Replay deadReplayCmd `cmd:"" help:"Replay dead letters."`
}

type deadLsCmd struct {
	Open bool `help:"Only letters that can be replayed."`

	kind string // only letters of this kind; empty: all
}

func (c *deadLsCmd) Run(e *env) error {
	letters, err := c.letters(e)
	if err != nil {
		return err
	}
	return e.print(api.NewPage(letters, ""), table("LETTER\tKIND\tSTATUS\tOF\tAGE\tCAUSE", letters, func(l api.DeadLetter) string {
		return fmt.Sprintf("%d\t%s\t%s\t%s\t%s\t%s", l.Seq, l.Kind, l.Status, of(l), time.Since(l.At.Time).Round(time.Second), firstLine(l.Cause))
	}))
}

// letters reads all pages of dead letters, and returns the selected ones.
func (c *deadLsCmd) letters(e *env) ([]api.DeadLetter, error) {
	letters := []api.DeadLetter{}
	for after := uint64(0); ; {
		page, err := e.client.Dead(e.ctx, after, 0)
		if err != nil {
			return nil, err
		}
		for _, l := range page.Items {
			after = l.Seq
			if (!c.Open || l.Status == api.DeadOpen) && (c.kind == "" || c.kind == l.Kind) {
				letters = append(letters, l)
			}
		}
		if page.NextCursor == nil {
			return letters, nil
		}
	}
}

// of returns the id of a letter's run, or the name of its agent, or "-".
func of(l api.DeadLetter) string {
	switch {
	case l.RunID != nil:
		return *l.RunID
	case l.Replay != nil:
		return l.Replay.RunID
	case l.Agent != nil:
		return *l.Agent
	default:
		return "-"
	}
}

type deadShowCmd struct {
	Letter uint64 `arg:"" help:"Number of the letter."`
}

func (c *deadShowCmd) Run(e *env) error {
	l, err := e.client.DeadLetter(e.ctx, c.Letter)
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "letter    %d, %s, %s\n", l.Seq, l.Kind, l.Status)
	if l.RunID != nil {
		fmt.Fprintf(&b, "run       %s\n", *l.RunID)
	}
	if l.Version > 0 {
		fmt.Fprintf(&b, "ended     at version %d, after %d attempts\n", l.Version, l.Attempts)
	}
	if l.Agent != nil {
		fmt.Fprintf(&b, "agent     %s\n", *l.Agent)
	}
	fmt.Fprintf(&b, "at        %s\ncause     %s\n", l.At.Local().Format(time.DateTime), l.Cause)
	for _, call := range l.Calls {
		fmt.Fprintf(&b, "open      %s %s %s\n", call.ID, call.Tool, call.Arguments)
	}
	fmt.Fprintf(&b, "message   %s\n", l.Data)
	if l.Replay != nil {
		fmt.Fprintf(&b, "replayed  as %s", l.Replay.RunID)
		if !l.Replay.At.IsZero() {
			fmt.Fprintf(&b, " at %s", l.Replay.At.Local().Format(time.DateTime))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "to do     %s", l.Advice)
	if l.Status == api.DeadOpen {
		fmt.Fprintf(&b, "\n          turnpike dead replay %d", l.Seq)
	}
	return e.print(l, b.String())
}

type deadReplayCmd struct {
	Letters []uint64 `arg:"" optional:"" help:"Numbers of letters."`
	All     bool     `help:"Every letter that can be replayed."`

	kind string // the kind for All; empty: all
}

// Run replays each letter, and continues after a failure.
func (c *deadReplayCmd) Run(e *env) error {
	switch {
	case c.All && len(c.Letters) > 0:
		return usagef("numbers of letters and --all are both given: remove one of them")
	case !c.All && len(c.Letters) == 0:
		return usagef("no dead letter is selected: give their numbers, or --all")
	}
	if c.All {
		open, err := (&deadLsCmd{Open: true, kind: c.kind}).letters(e)
		if err != nil {
			return err
		}
		for _, l := range open {
			c.Letters = append(c.Letters, l.Seq)
		}
	}
	var errs []error
	for _, seq := range c.Letters {
		l, err := e.client.Replay(e.ctx, seq)
		if err == nil {
			err = e.print(l, fmt.Sprintf("%d  %s", seq, of(l)))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
