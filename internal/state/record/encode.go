package record

import (
	"fmt"

	"github.com/turnpike-dev/turnpike/internal/state/wire"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// statuses are the words of a status, see wire.Words.
var statuses = wire.NewWords(state.Queued, state.Running, state.Waiting, state.Completed, state.Incomplete, state.Failed, state.Cancelled)

// Encode encodes a record. As in the rest of the format, the numbers of fields stay what they are.
func Encode(r Record) ([]byte, error) {
	header, err := state.EncodeState(r.Header)
	if err != nil {
		return nil, err
	}
	p := wire.Packer{B: make([]byte, 0, len(header)+192)}
	p.Text(1, string(header))
	p.WordOr(2, statuses, string(r.Status))
	p.NumOr(3, r.Version)
	p.TextOr(4, r.Token)
	if r.EagerToken != r.Token { // an eager claim in force has its token
		p.Text(5, r.EagerToken)
	}
	p.TextOr(6, r.Owner)
	p.TimeOr(7, r.LeaseEnd.Time)
	p.NumOr(8, int64(r.Attempts))
	p.NumOr(9, int64(r.Paused))
	p.TimeOr(10, r.StartedAt.Time)
	p.NumOr(11, r.LogLen)
	p.NumOr(12, r.LogLen-r.Base)
	p.NumOr(13, r.Finalized)
	p.TimeOr(14, r.Due.Time)
	p.TextOr(15, r.CommitID)
	p.WordOr(16, statuses, string(r.Committed.Status))
	p.NumOr(17, r.Committed.Version)
	p.TimeOr(18, r.WakeAt.Time)
	p.NumOr(19, int64(r.Sweeps))
	p.TextOr(20, r.Key)
	p.TextOr(21, r.Sealed)
	p.TimeOr(22, r.QueuedAt.Time)
	p.Texts(23, r.Evicted)
	p.TimeOr(24, r.EvictedAt.Time)
	p.Any(25, r.Abort, r.Abort != nil)
	p.NumOr(26, int64(r.AbortReach))
	p.Texts(27, r.Awaits)
	for i := range r.Inbox {
		p.Any(28, &r.Inbox[i], true)
	}
	p.NumOr(29, r.InboxBytes)
	p.Texts(30, r.Seen)
	if len(r.SeenMarks) > 0 {
		p.Map(31, r.SeenMarks)
	}
	p.Texts(32, r.Started)
	for i := range r.Starts {
		p.Any(33, &r.Starts[i], true)
	}
	for i := range r.Results {
		b, err := state.EncodeEntry(&r.Results[i])
		if err != nil {
			return nil, err
		}
		p.Text(34, string(b))
	}
	p.Texts(35, r.Indexed)
	p.YesOr(36, r.Interrupted)
	p.NumOr(37, int64(r.CheckpointAt))   //nolint:gosec // a position of a stream
	p.NumOr(38, int64(r.CheckpointNext)) //nolint:gosec // as above
	return p.Bytes()
}

// Decode decodes a record. If the header has a newer format, the error is state.ErrFormat and the
// record has the format alone.
func Decode(text string) (r Record, err error) {
	u := wire.Unpack(text)
	eager := false
	for u.Next() {
		switch u.Field() {
		case 1:
			if r.Header, err = state.DecodeState(u.Text()); err != nil {
				return r, err
			}
		case 2:
			r.Status = state.Status(u.Word(statuses))
		case 3:
			r.Version = u.Num()
		case 4:
			r.Token = u.Text()
		case 5:
			r.EagerToken, eager = u.Text(), true
		case 6:
			r.Owner = u.Text()
		case 7:
			r.LeaseEnd = state.Time{Time: u.Time()}
		case 8:
			r.Attempts = u.Int()
		case 9:
			r.Paused = u.Int()
		case 10:
			r.StartedAt = state.Time{Time: u.Time()}
		case 11:
			r.LogLen = u.Num()
		case 12:
			r.Base = -u.Num()
		case 13:
			r.Finalized = u.Num()
		case 14:
			r.Due = state.Time{Time: u.Time()}
		case 15:
			r.CommitID = u.Text()
		case 16:
			r.Committed.Status = state.Status(u.Word(statuses))
		case 17:
			r.Committed.Version = u.Num()
		default:
			if err := r.decodeRare(&u); err != nil {
				return Record{}, err
			}
		}
	}
	if err := u.Err(); err != nil {
		return Record{}, fmt.Errorf("decode record: %w", err)
	}
	r.Base += r.LogLen
	if !eager {
		r.EagerToken = r.Token
	}
	return r, nil
}

func (r *Record) decodeRare(u *wire.Unpacker) error {
	switch u.Field() {
	case 18:
		r.WakeAt = state.Time{Time: u.Time()}
	case 19:
		r.Sweeps = u.Int()
	case 20:
		r.Key = u.Text()
	case 21:
		r.Sealed = u.Text()
	case 22:
		r.QueuedAt = state.Time{Time: u.Time()}
	case 23:
		r.Evicted = append(r.Evicted, u.Text())
	case 24:
		r.EvictedAt = state.Time{Time: u.Time()}
	case 25:
		r.Abort = wire.Any[*state.Abort](u)
	case 26:
		r.AbortReach = u.Int()
	case 27:
		r.Awaits = append(r.Awaits, u.Text())
	case 28:
		r.Inbox = append(r.Inbox, wire.Any[state.Signal](u))
	case 29:
		r.InboxBytes = u.Num()
	case 30:
		r.Seen = append(r.Seen, u.Text())
	case 31:
		u.Map(&r.SeenMarks)
	case 32:
		r.Started = append(r.Started, u.Text())
	case 33:
		r.Starts = append(r.Starts, wire.Any[state.Start](u))
	case 34:
		e, err := state.DecodeEntry(0, u.Text())
		if err != nil {
			return err
		}
		r.Results = append(r.Results, e)
	case 35:
		r.Indexed = append(r.Indexed, u.Text())
	case 36:
		r.Interrupted = u.Yes()
	case 37:
		r.CheckpointAt = uint64(u.Num()) //nolint:gosec // as it was written
	case 38:
		r.CheckpointNext = uint64(u.Num()) //nolint:gosec // as above
	}
	return nil
}
