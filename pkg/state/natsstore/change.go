package natsstore

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/internal/state/wire"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// change is one message on a run's subject.
type change struct {
	// op identifies a change, so that a writer recognises its own change if the acknowledgement was
	// lost.
	op      string
	record  record.Record // the subject has the run's id
	entries []state.Entry // the last ones of the log
}

// encode encodes a change. The format comes first: a build that does not know it reads nothing
// else.
func (c change) encode() ([]byte, error) {
	c.record.Header.ID = ""
	rec, err := record.Encode(c.record)
	if err != nil {
		return nil, err
	}
	p := wire.Packer{B: make([]byte, 0, len(rec)+1024*len(c.entries)+64)}
	p.Num(1, int64(cmp.Or(c.record.Header.Format, state.Format)))
	p.TextOr(2, c.op)
	p.Text(3, string(rec))
	for i := range c.entries {
		b, err := state.EncodeEntry(&c.entries[i])
		if err != nil {
			return nil, err
		}
		p.Text(4, string(b))
	}
	return p.Bytes()
}

// decode reads a change of a run. It returns state.ErrFormat if a newer build has written the run,
// and state.ErrDeleted if the run was deleted.
func decode(id state.RunID, data []byte) (change, error) {
	var c change
	var entries []string
	u := wire.Unpack(string(data))
	for u.Next() {
		switch u.Field() {
		case 1:
			header := state.State{Format: u.Int()}
			if header.Format == deletedFormat {
				return change{}, fmt.Errorf("run %s: %w", id, state.ErrDeleted)
			}
			if err := header.CheckFormat(); err != nil {
				return change{}, err
			}
		case 2:
			c.op = u.Text()
		case 3:
			var err error
			if c.record, err = record.Decode(strings.Clone(u.Text())); err != nil { // the index keeps it, and not the entries
				return change{}, err
			}
			c.record.Header.ID = id
		case 4:
			entries = append(entries, u.Text())
		}
	}
	if err := u.Err(); err != nil {
		return change{}, err
	}
	if len(entries) > 0 {
		c.entries = make([]state.Entry, 0, len(entries))
	}
	first := c.record.LogLen - int64(len(entries)) + 1
	for i, text := range entries {
		e, err := state.DecodeEntry(first+int64(i), text)
		if err != nil {
			return change{}, err
		}
		c.entries = append(c.entries, e)
	}
	return c, nil
}
