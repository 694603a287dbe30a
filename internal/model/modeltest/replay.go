package modeltest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Outcome is the content of a stream, in the terms of the contract.
type Outcome struct {
	// Whole means that the stream marked the end of the response.
	Whole bool

	Text, Thinking string // refusals are text
	Shown          string // the deltas of the text, if the format repeats it in full
	Calls          []Call
	Stop           model.Stop
	Usage          state.Usage

	// Class of the error that the stream reports; empty means success.
	Class model.Class
}

// Call is a tool call. The adapter must generate a missing ID.
type Call struct{ ID, Name, Arguments string }

// At returns a provider and the request that reaches the server at a URL, which
// answers at any path.
type At func(t *testing.T, url string) (model.Provider, model.Request)

// Replay serves a recording over HTTP and compares the adapter's result with that of w.Read. Then it damages the
// stream as networks and proxies do, with lost, duplicated and unknown parts. The result must then be the answer or a
// classified error, and no tool call may be incomplete.
func Replay(t *testing.T, w Wire, at At, rec Recording) {
	s := &replayServer{}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	p, r := at(t, h.URL)
	x := replay{Wire: w, rec: rec, server: s, provider: p, request: ask(r, 0), full: w.Read(rec.Events)}
	x.tries = min(40, max(5, 500_000/len(x.body(rec.Events))))
	t.Run("as recorded", x.plain)
	t.Run("split", x.split)
	t.Run("framed otherwise", x.framed)
	t.Run("cut", x.cut)
	t.Run("doubled", x.doubled)
	t.Run("unknown events", x.unknown)
	t.Run("failing", x.failing)
	t.Run("cancelled", x.cancelled)
	t.Run("stalled", x.stalled)
}

type replay struct {
	Wire
	rec      Recording
	server   *replayServer
	provider model.Provider
	request  model.Request
	full     Outcome
	tries    int // places at which a long recording is corrupted
}

// result is an adapter's result for a stream.
type result struct {
	resp   model.Response
	deltas []model.Delta
	err    error
}

// play serves a body in the given pieces and makes one call.
func (x replay) play(t *testing.T, abort bool, pieces ...string) result {
	t.Helper()
	x.server.next.Store(&served{pieces: pieces, abort: abort})
	resp, deltas, err := generate(t.Context(), x.provider, x.request)
	return result{resp, deltas, err}
}

func (x replay) plain(t *testing.T) {
	got := x.play(t, false, x.body(x.rec.Events))
	x.is(t, got, x.full)
	if got.err != nil {
		return
	}
	var text, thinking string
	for _, d := range got.deltas {
		text, thinking = text+d.Text, thinking+d.Thinking
	}
	shown := cmp.Or(x.full.Shown, x.full.Text)
	if text != shown || thinking != x.full.Thinking {
		t.Errorf("the deltas have the text %q and the thinking %q, want %q and %q as in the response", text, thinking, shown, x.full.Thinking)
	}
}

// split sends the stream in pieces of arbitrary length.
func (x replay) split(t *testing.T) {
	body := x.body(x.rec.Events)
	for seed := range uint64(4) {
		random := rand.New(rand.NewPCG(seed, 7))
		longest := []int{1, 7, 60, 4000}[seed]
		if len(body)/longest > 6000 {
			continue
		}
		var pieces []string
		for rest := body; len(rest) > 0; {
			n := min(len(rest), 1+random.IntN(longest))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		x.is(t, x.play(t, false, pieces...), x.full)
	}
}

// framed writes the events in the other framings that the format allows.
func (x replay) framed(t *testing.T) {
	body := x.body(x.rec.Events)
	for name, other := range map[string]string{
		"line ends":   strings.ReplaceAll(body, "\n", "\r\n"),
		"no space":    strings.ReplaceAll(strings.ReplaceAll(body, "\ndata: ", "\ndata:"), "\n\nevent: ", "\n\nevent:"),
		"comments":    ": hello\n\n" + strings.ReplaceAll(body, "\n\n", "\n\n: keep-alive\n\n"),
		"no names":    names.ReplaceAllString(body, ""),
		"ids, delays": strings.ReplaceAll("\n"+body, "\ndata: ", "\nid: 7\nretry: 1000\ndata: ")[1:],
	} {
		if got := x.play(t, false, other); !x.matches(got, x.full) {
			t.Errorf("%s: %s", name, x.differ(got, x.full))
		}
	}
}

// names are the lines that name events.
var names = regexp.MustCompile(`(?m)^event: .*\n`)

// cut ends the stream after every byte. If that would take too long, as in the short form, it does so after and
// around some events and at some bytes within.
func (x replay) cut(t *testing.T) {
	body := x.body(x.rec.Events)
	ends := make([]int, 0, len(x.rec.Events))
	length := 0
	for _, e := range x.rec.Events {
		length += len(x.frame(e))
		ends = append(ends, length)
	}
	var at []int
	if len(body) <= 3000 && !testing.Short() {
		for n := range body {
			at = append(at, n)
		}
	} else {
		random := rand.New(rand.NewPCG(1, uint64(len(body))))
		for range 2 * x.tries {
			e := ends[random.IntN(len(ends))]
			at = append(at, e-random.IntN(3), random.IntN(len(body)))
		}
		last := ends[len(ends)-1]
		at = append(at, last, last-1, last-2, len(body)-1)
	}
	read := map[int]Outcome{}
	after := func(n int) Outcome {
		if _, ok := read[n]; !ok {
			read[n] = x.Read(x.rec.Events[:n])
		}
		return read[n]
	}
	for _, n := range at {
		// A decoder may not need the empty line that ends an event.
		whole, withTail := sort.SearchInts(ends, n+1), sort.SearchInts(ends, n+3)
		got := x.play(t, n%2 == 0, body[:n])
		if !x.matches(got, after(whole)) && !x.matches(got, after(withTail)) {
			t.Fatalf("cut after %d bytes, %d events: %s", n, whole, x.differ(got, after(whole)))
		}
	}
}

// doubled sends events twice. If the format cannot detect that, a repeated piece is in the answer twice; it
// never counts as something else.
func (x replay) doubled(t *testing.T) {
	try := func(what string, events []string) {
		got := x.play(t, false, x.body(events))
		if !x.matches(got, x.full) && !x.matches(got, x.Read(events)) && !x.failed(got) {
			t.Fatalf("%s: %s", what, x.differ(got, x.Read(events)))
		}
	}
	var all []string
	for _, e := range x.rec.Events {
		all = append(all, e, e)
	}
	try("every event twice", all)
	for _, i := range x.places(len(x.rec.Events)) {
		try(fmt.Sprintf("event %d twice", i), slices.Insert(slices.Clone(x.rec.Events), i, x.rec.Events[i]))
	}
}

// unknown inserts events of unknown types into the stream: they change nothing.
func (x replay) unknown(t *testing.T) {
	var all []string
	for _, e := range x.rec.Events {
		all = append(append(all, x.Unknown...), e)
	}
	x.is(t, x.play(t, false, x.body(all)), x.full)
	for _, i := range x.places(len(x.rec.Events)) {
		for _, u := range x.Unknown {
			got := x.play(t, false, x.body(slices.Insert(slices.Clone(x.rec.Events), i, u)))
			if !x.matches(got, x.full) {
				t.Fatalf("%s before event %d: %s", u, i, x.differ(got, x.full))
			}
		}
	}
}

// failing inserts a provider error into the stream.
func (x replay) failing(t *testing.T) {
	for _, i := range x.places(len(x.rec.Events)) {
		for data, class := range x.Errors {
			want := x.Read(x.rec.Events[:i])
			if !want.Whole && want.Class == "" {
				want = Outcome{Class: class}
			}
			if got := x.play(t, false, x.body(append(slices.Clone(x.rec.Events[:i]), data))); !x.matches(got, want) {
				t.Fatalf("%s before event %d: %s", data, i, x.differ(got, want))
			}
		}
	}
}

// cancelled ends the context while the answer arrives (A4, A5).
func (x replay) cancelled(t *testing.T) {
	body := x.body(x.rec.Events)
	for _, n := range x.places(len(x.play(t, false, body).deltas)) {
		ctx, cancel := context.WithCancel(t.Context())
		x.server.next.Store(&served{pieces: []string{body}})
		left := n
		resp, err := x.provider.Generate(ctx, x.request, func(model.Delta) {
			if left == 0 {
				cancel()
			}
			left--
		})
		cancel()
		got := result{resp: resp, err: err}
		if err == nil && x.matches(got, x.full) {
			continue // the rest had arrived already
		}
		e, ok := errors.AsType[*model.Error](err)
		if !ok || e.Class != model.Cancelled && e.Class != x.full.Class {
			t.Fatalf("cancelled at delta %d: %v", n, err)
		}
		calls := callsOf(resp.Parts)
		if len(calls) != len(resp.Parts) || len(calls) > len(x.full.Calls) {
			t.Fatalf("cancelled at delta %d: parts %+v", n, resp.Parts)
		}
		for i, c := range calls {
			if !sameCall(c, x.full.Calls[i]) {
				t.Fatalf("cancelled at delta %d: call %+v, want %+v", n, c, x.full.Calls[i])
			}
		}
	}
}

// stalled sends a part of the stream and then nothing until the call's time limit, which is a timeout, unless
// the answer was already complete.
func (x replay) stalled(t *testing.T) {
	n := len(x.rec.Events)
	for _, i := range []int{n / 2, n - 1} {
		x.server.next.Store(&served{pieces: []string{x.frames(x.rec.Events[:i])}, stall: true})
		ctx, cancel := context.WithTimeout(t.Context(), stall)
		var deltas []model.Delta
		resp, err := x.provider.Generate(ctx, x.request, func(d model.Delta) { deltas = append(deltas, d) })
		cancel()
		got, late, want := result{resp, deltas, err}, Outcome{Class: model.Timeout}, x.Read(x.rec.Events[:i])
		if !x.matches(got, late) && (!want.Whole && want.Class == "" || !x.matches(got, want)) {
			t.Fatalf("stalled after %d events: %s", i, x.differ(got, late))
		}
	}
}

// stall is the time limit of a call whose stream stalls.
const stall = 30 * time.Millisecond

// places returns the numbers below n, or some of them.
func (x replay) places(n int) []int {
	step := max(1, n/x.tries)
	var at []int
	for i := 0; i < n; i += step {
		at = append(at, i)
	}
	if n > 0 && at[len(at)-1] != n-1 {
		at = append(at, n-1)
	}
	return at
}

func (x replay) is(t *testing.T, got result, want Outcome) {
	t.Helper()
	if !x.matches(got, want) {
		t.Errorf("%s", x.differ(got, want))
	}
}

// failed reports whether a call ended with a classified error and nothing else.
func (x replay) failed(got result) bool {
	e, ok := errors.AsType[*model.Error](got.err)
	return ok && e.Class != "" && e.Message != "" && e.Streamed == (len(got.deltas) > 0) && len(got.resp.Parts) == 0
}

func (x replay) matches(got result, want Outcome) bool { return x.differ(got, want) == "" }

// differ describes the difference between a result and the expected one.
func (x replay) differ(got result, want Outcome) string {
	if !want.Whole {
		class := want.Class
		if class == "" {
			class = model.Transport
		}
		e, ok := errors.AsType[*model.Error](got.err)
		if !ok || e.Class != class || !x.failed(got) {
			return fmt.Sprintf("response %+v, error %#v, want class %s", got.resp, got.err, class)
		}
		return ""
	}
	if got.err != nil {
		return fmt.Sprintf("error %v, want %+v", got.err, want)
	}
	is := Outcome{Whole: true, Shown: want.Shown, Stop: got.resp.Stop, Usage: got.resp.Usage, Calls: callsOf(got.resp.Parts)}
	for _, p := range got.resp.Parts {
		switch p.Type {
		case state.PartText:
			is.Text += p.Text
		case state.PartThinking:
			is.Thinking += p.Text
		default:
		}
	}
	return gocmp.Diff(want, is, gocmp.Comparer(sameCall), gocmp.Comparer(func(a, b []Call) bool { return slices.EqualFunc(a, b, sameCall) }))
}

func callsOf(parts []state.Part) []Call {
	var calls []Call
	for _, p := range parts {
		if p.Type == state.PartToolCall {
			calls = append(calls, Call{p.ID, p.Name, p.Arguments})
		}
	}
	return calls
}

func sameCall(a, b Call) bool {
	return a.Name == b.Name && a.Arguments == b.Arguments && (a.ID == b.ID || a.ID == "" || b.ID == "")
}

// replayServer answers each request with the last stored body.
type replayServer struct{ next atomic.Pointer[served] }

type served struct {
	pieces []string
	abort  bool // close the connection instead of ending the body
	stall  bool // send nothing more until the client disconnects
}

func (s *replayServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	next := s.next.Load()
	for _, piece := range next.pieces {
		if _, err := w.Write([]byte(piece)); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
	}
	if next.stall {
		<-r.Context().Done()
	}
	if next.abort {
		panic(http.ErrAbortHandler)
	}
}
