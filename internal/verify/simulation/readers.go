package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/turnpike-dev/turnpike/internal/transcript"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// reader pages through the history of a run, with small pages, while faults strike. Its store gives small pages as well.
type reader struct {
	s      *Deployment
	dice   *dice
	tenant string
	run    string
}

// read compares the events, messages, turns and exports of a run with one another, if the run does not change
// meanwhile, and the events with those that a stream had: nothing is missing, nothing is there twice, and the order is
// that of the log (I9). It returns an error if the gateway does not answer.
func (r reader) read(ctx context.Context, seen [][]byte) error {
	before, err := pages[json.RawMessage](ctx, r, "/events", nil)
	if err != nil {
		return err
	}
	full, err := pages[json.RawMessage](ctx, r, "/messages", url.Values{"view": {"full"}})
	if err != nil {
		return err
	}
	model, err := pages[json.RawMessage](ctx, r, "/messages", nil)
	if err != nil {
		return err
	}
	turns, err := pages[json.RawMessage](ctx, r, "/turns", nil)
	if err != nil {
		return err
	}
	session, err := pages[json.RawMessage](ctx, r, "/messages", url.Values{"view": {"session"}})
	if err != nil {
		return err
	}
	format := transcript.Formats()[r.dice.n(len(transcript.Formats()))]
	exported, err := r.get(ctx, "/messages", url.Values{"format": {string(format)}})
	if err != nil {
		return err
	}
	after, err := pages[json.RawMessage](ctx, r, "/events", nil)
	if err != nil || r.s.fellBack() {
		return err
	}
	log, err := r.log(before)
	if err != nil {
		return err
	}
	r.compare("events, read again,", before, after[:min(len(before), len(after))])
	streamed := make([]json.RawMessage, len(seen))
	for i := range seen {
		streamed[i] = seen[i]
	}
	r.compare("events of a stream", streamed[:min(len(streamed), len(after))], after[:min(len(streamed), len(after))])
	if len(after) > len(before) {
		return nil // the run continued
	}
	r.compare("messages", items(api.MessagesOf(state.FullView(log))), full)
	r.compare("messages of the model", items(api.MessagesOf(state.View(log))), model)
	r.compare("turns", items(state.Audit(log)), turns)
	r.compare("events of the session", items(state.Session(log)), session)
	var want bytes.Buffer
	if err := transcript.Write(&want, format, slices.Values(state.View(log))); err != nil {
		return err
	}
	r.compare("exports", []json.RawMessage{bytes.TrimSpace(want.Bytes())}, []json.RawMessage{exported})
	return nil
}

// log decodes the entries of a run, which must be numbered from 1.
func (r reader) log(events []json.RawMessage) ([]state.Entry, error) {
	log := make([]state.Entry, len(events))
	for i, data := range events {
		e, err := api.DecodeEvent(data)
		if err != nil {
			return nil, err
		}
		if log[i] = e.Entry; e.Seq != int64(i+1) {
			r.s.violate("I9: the event %d of %s is in place %d of its pages", e.Seq, r.run, i+1)
		}
	}
	return log, nil
}

// compare reports the first difference of two lists.
func (r reader) compare(what string, want, got []json.RawMessage) {
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			r.s.violate("I9: a reader of %s got %d of %d %s, without %s", r.run, len(got), len(want), what, want[i])
		case i >= len(want):
			r.s.violate("I9: a reader of %s got %d %s, of %d: %s", r.run, len(got), what, len(want), got[i])
		case !bytes.Equal(want[i], got[i]):
			r.s.violate("I9: a reader of %s got in place %d of %s %s, and the log has %s", r.run, i+1, what, got[i], want[i])
		default:
			continue
		}
		return
	}
}

// items encodes each item of a list as a gateway does.
func items[T any](list []T) []json.RawMessage {
	out := make([]json.RawMessage, len(list))
	for i := range list {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(list[i]); err != nil {
			panic(err) // a gateway has sent it as JSON
		}
		out[i] = bytes.TrimSpace(b.Bytes())
	}
	return out
}

// pages returns the items of a list, which it reads in pages.
func pages[T any](ctx context.Context, r reader, path string, query url.Values) (all []T, err error) {
	if query == nil {
		query = url.Values{}
	}
	query.Set("limit", strconv.Itoa(1+r.dice.n(9)))
	for {
		data, err := r.get(ctx, path, query)
		if err != nil {
			return nil, err
		}
		var page api.Page[T]
		if err := json.Unmarshal(data, &page); err != nil {
			return nil, fmt.Errorf("page of %s of %s: %w", path, r.run, err)
		}
		all = append(all, page.Items...)
		if page.NextCursor == nil {
			return all, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}

// get reads a part of the run.
func (r reader) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://gateway/v1/runs/"+r.run+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Turnpike-Tenant", r.tenant)
	req.Header.Set("Accept", "application/json")
	resp, err := r.s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s of %s: %s", path, r.run, resp.Status)
	}
	return bytes.TrimSpace(data), err
}
