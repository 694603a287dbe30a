package service

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// searchText is the maximum number of characters in the text of a search.
	searchText = 256

	// searchRuns is the maximum number of runs that a search reads over all pages: the newest that match the rest of
	// the filter.
	searchRuns = 1000

	// searchPage is the number of runs listed at once. The search reads the inputs of searchPart of them, searchReads
	// concurrently, before it checks its limits of time and bytes: an input has up to a megabyte.
	searchPage  = 200
	searchPart  = 16
	searchReads = 4

	// searchTime and searchBytes are the limits at which a page ends early, with a cursor.
	searchTime  = time.Second
	searchBytes = 64 << 20
)

// searchOf returns the text to search for, or "".
func searchOf(values []string) (string, error) {
	switch {
	case len(values) == 0:
		return "", nil
	case len(values) > 1:
		return "", invalid("parameter %q is given %d times: give it once", "text", len(values))
	case values[0] == "":
		return "", invalid("parameter %q is empty: give a text to search for, or omit it", "text")
	case !utf8.ValidString(values[0]):
		return "", invalid("text is not UTF-8: encode it in UTF-8")
	case utf8.RuneCountInString(values[0]) > searchText:
		return "", invalid("text has %d characters, at most %d are allowed: shorten it", utf8.RuneCountInString(values[0]), searchText)
	case strings.ContainsFunc(values[0], func(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' }):
		return "", invalid("text %q has control characters, which the search does not support: remove them", values[0])
	}
	return strings.ToLower(values[0]), nil
}

// troubleOf reads the parameter that selects runs with failures.
func troubleOf(values []string) (bool, error) {
	switch {
	case len(values) == 0:
		return false, nil
	case len(values) > 1:
		return false, invalid("parameter %q is given %d times: give it once", "trouble", len(values))
	case values[0] != "true":
		return false, invalid("trouble is %q: write true, or omit it", values[0])
	}
	return true, nil
}

// search looks for a text, for failures or for both in the newest runs that a filter selects.
type search struct {
	k        *core
	text     string // in lower case; empty: any
	troubled bool
	limit    int // maximum number of runs on a page

	began    time.Time
	examined int // number of runs read, for this page and earlier ones
	found    []state.State
	bytes    int // bytes that were read and found for this page
	last     state.RunID
}

// cursorOf splits the cursor of a search into the list cursor and the number of runs examined so
// far.
func cursorOf(cursor string) (rest string, examined int, err error) {
	rest, count, ok := strings.Cut(cursor, ".")
	if ok {
		examined, err = strconv.Atoi(count)
	}
	if err != nil || examined < 0 || examined > searchRuns {
		return "", 0, invalidCursor()
	}
	return rest, examined, nil
}

// run reads one page into found. It returns the cursor of the next page, and whether the search has read all runs that
// match the filter.
func (s *search) run(ctx context.Context, f state.Filter) (next string, complete bool, err error) {
	s.began = time.Now()
	for {
		f.Limit, f.Bytes = min(searchPage, searchRuns-s.examined), ListBytes
		if f.Limit <= 0 {
			return "", false, nil
		}
		page, err := s.k.store.List(ctx, f)
		if err != nil {
			return "", false, err
		}
		for part := range slices.Chunk(page.Runs, searchPart) {
			full, err := s.part(ctx, part)
			if err != nil {
				return "", false, err
			}
			if full {
				more := page.Next != "" || s.last != page.Runs[len(page.Runs)-1].ID
				return s.cursor(string(s.last), more), !more, nil
			}
		}
		if page.Next == "" {
			return "", true, nil
		}
		if f.Cursor = page.Next; time.Since(s.began) > searchTime {
			return s.cursor(page.Next, true), false, nil
		}
	}
}

// cursor returns the cursor of the next page, or "" without one.
func (s *search) cursor(at string, more bool) string {
	if !more || s.examined >= searchRuns {
		return ""
	}
	return at + "." + strconv.Itoa(s.examined)
}

// part searches some runs, and reports whether the page is full.
func (s *search) part(ctx context.Context, runs []state.State) (full bool, err error) {
	has, read := make([]bool, len(runs)), make([]int, len(runs))
	var group errgroup.Group
	group.SetLimit(searchReads)
	for i := range runs {
		if s.troubled && !runs[i].Trouble.Any() {
			continue
		}
		if has[i] = s.text == "" || s.inHeader(&runs[i]); has[i] {
			continue
		}
		group.Go(s.k.guarded(func() (err error) {
			has[i], read[i], err = s.inInput(ctx, runs[i].ID)
			return err
		}))
	}
	if err := group.Wait(); err != nil {
		return false, err
	}
	for i := range runs {
		s.examined++
		s.last = runs[i].ID
		s.bytes += read[i]
		if has[i] {
			s.found = append(s.found, runs[i])
			s.bytes += sizeOf(&runs[i])
		}
		if len(s.found) == s.limit {
			return true, nil
		}
	}
	return s.bytes > searchBytes || time.Since(s.began) > searchTime, nil
}

func (s *search) in(text string) bool { return strings.Contains(strings.ToLower(text), s.text) }

// inHeader reports whether the text occurs in the fields of a run that a list shows.
func (s *search) inHeader(st *state.State) bool {
	if s.in(string(st.ID)) || st.Output != nil && s.in(*st.Output) || s.in(string(st.StructuredOutput)) || st.Error != nil && (s.in(st.Error.Code) || s.in(st.Error.Message)) {
		return true
	}
	for _, value := range st.Metadata {
		if s.in(value) {
			return true
		}
	}
	if st.Waiting == nil {
		return false
	}
	return s.in(st.Waiting.Question) || slices.ContainsFunc(st.Waiting.Calls, func(c state.WaitCall) bool { return s.in(c.Message) })
}

// inInput reports whether the text occurs in the input of a run, and returns the size of that input in bytes.
func (s *search) inInput(ctx context.Context, id state.RunID) (has bool, bytes int, err error) {
	log, err := s.k.store.Log(ctx, id, 0, 1)
	if errors.Is(err, state.ErrNotFound) || errors.Is(err, state.ErrFormat) {
		return false, 0, nil
	}
	if err != nil || len(log) == 0 {
		return false, 0, err
	}
	for _, m := range log[0].Messages {
		for _, p := range m.Parts {
			bytes += len(p.Text)
			has = has || p.Type == state.PartText && s.in(p.Text)
		}
	}
	return has, bytes, nil
}

// sizeOf returns the approximate memory of a run that was found, in bytes.
func sizeOf(st *state.State) int {
	n := len(st.StructuredOutput) + len(st.OutputSchema) + len(st.Variables)
	if st.Output != nil {
		n += len(*st.Output)
	}
	for _, value := range st.Metadata {
		n += len(value)
	}
	return n
}
