//go:build browser

package browser

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

var (
	update    = flag.Bool("update", false, "write the layout and the pictures of testdata/layout anew")
	recording = flag.Bool("record", false, "record the answers of testdata/layout anew, from a deployment")
)

const boxesFile = "testdata/layout/boxes.txt"

// within is the tolerance of a landmark's position, in pixels.
const within = 2

var sizes = [][2]int64{{390, 844}, {1280, 800}, {2560, 1440}}

// landmarks identify a view, at most six of each.
var landmarks = []string{
	".top", ".top nav", ".search-open", ".live", "h1", "h2", ".tabs", "main table.list", "main table.list thead th", "main table.list tbody tr",
	".filters", ".counts", ".row-heads", ".row", ".row-id", ".row-gist", ".row-acts", ".r-age",
	".run-title", ".facts", ".card", ".needs-acts", ".timeline", ".tl-box", ".tl-row", ".tl-death", ".bubble", ".call", ".note", ".side", ".side .diff", ".aligned-row", ".beside .run",
	".figures", ".chart", ".chart-plot", ".chart-says", ".chart-legend", ".trigger-state", ".hook-state", ".hook-address", ".tokens p", ".memory-facts", ".memory-text", ".review", ".workbench > *", ".editor", ".letter", ".letter .advice", ".progress", "main button, main a.button", "main input, main select, main textarea", ".state",
}

// screen is a place in the page of which screenshots are taken.
type screen struct {
	name, hash, ready string
	do                func(*browser)
}

type measured struct {
	Boxes []struct {
		Name string
		Says string
		Box  [4]int
	}
	Faults []string
	Busy   bool
}

// still waits until a screen has not changed for a while, and returns its measurements.
func (b *browser) still(script string) measured {
	b.t.Helper()
	names, err := json.Marshal(landmarks)
	if err != nil {
		b.t.Fatal(err)
	}
	look := func(whole bool) (string, measured) {
		b.t.Helper()
		text := eval[string](b, fmt.Sprintf(`document.fonts.ready.then(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))).then(() => (%s)(%s, %v))`, script, names, whole))
		var m measured
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			b.t.Fatal(err)
		}
		return text, m
	}
	tick := time.NewTicker(60 * time.Millisecond)
	defer tick.Stop()
	last, same := "", 0
	for range 300 {
		now, m := look(false)
		if same++; now != last || m.Busy {
			same = 0
		}
		if same == 3 {
			_, m = look(true)
			return m
		}
		last = now
		<-tick.C
	}
	b.t.Fatalf("the page does not stop changing: %s", last)
	return measured{}
}

// fixed gives the tab a fixed clock, time zone and language.
func (b *browser) fixed() {
	b.t.Helper()
	b.run(emulation.SetTimezoneOverride("UTC"), emulation.SetLocaleOverride().WithLocale("en-GB"))
	clock := fmt.Sprintf(`(() => { const at = %d, Real = Date; globalThis.Date = class extends Real { constructor(...a) { a.length ? super(...a) : super(at) } static now() { return at } } })()`, stands.UnixMilli())
	b.run(chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := page.AddScriptToEvaluateOnNewDocument(clock).Do(ctx)
		return err
	}))
}

func (b *browser) theme(name string) {
	b.t.Helper()
	b.run(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}, {Name: "prefers-reduced-motion", Value: "reduce"}}))
}

// show opens a screen.
func (b *browser) show(s screen) {
	b.t.Helper()
	b.goTo(s.hash)
	b.shows(s.name, fmt.Sprintf("document.querySelector(%s)", quoted(s.ready)))
	if s.do != nil {
		s.do(b)
	}
}

// On each screen, in three sizes, nothing is cut off, overlaps or leaves the window, and the landmarks are in
// their recorded positions. Data, clock and fonts come from testdata/layout. -update records the current
// positions. Screenshots are compared with those of the same Chromium version.
func TestLayout(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("testdata/layout/measure.js")
	if err != nil {
		t.Fatal(err)
	}
	if *recording {
		recordScreens(t)
	}
	address := replay(t)
	b := open(t, address)
	b.fixed()
	gallery := openGallery(b)
	var got []string
	for _, theme := range []string{"light", "dark"} {
		if theme == "dark" && !gallery.open() {
			break // only the colors differ
		}
		b.theme(theme)
		for _, s := range recordedScreens(t) {
			for i, size := range sizes {
				b.run(chromedp.EmulateViewport(size[0], size[1]))
				if i == 0 {
					b.show(s)
				}
				m := b.still(string(script))
				if theme == "light" {
					for _, f := range m.Faults {
						t.Errorf("%s, %d wide: %s", s.name, size[0], f)
					}
					got = append(got, fmt.Sprintf("%s %d", s.name, size[0]))
					for _, x := range m.Boxes {
						got = append(got, fmt.Sprintf("\t%s\t%d %d %d %d\t%s", x.Name, x.Box[0], x.Box[1], x.Box[2], x.Box[3], x.Says))
					}
				}
				gallery.picture(fmt.Sprintf("%s-%d-%s", s.name, size[0], theme))
			}
		}
	}
	gallery.end()
	text := "# Where the landmarks of each screen are: left, top, width, height, and what they say. Made by -update.\n" + strings.Join(got, "\n") + "\n"
	if *update {
		if err := os.WriteFile(boxesFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	was, err := os.ReadFile(boxesFile)
	if err != nil {
		t.Fatal(err)
	}
	moved := movedBoxes(string(was), text)
	for _, m := range moved[:min(len(moved), 60)] {
		t.Error(m)
	}
	if len(moved) > 0 {
		t.Errorf("%d landmarks are elsewhere than %s has them. If that is meant: go test -tags browser ./internal/verify/browser -run TestLayout -update", len(moved), boxesFile)
	}
}

type box struct {
	at   [4]int
	says string
}

func readBoxes(text string) (all map[string]box, order []string) {
	all = map[string]box{}
	screen := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		cells := strings.Split(line, "\t")
		if len(cells) != 4 {
			screen = line
			continue
		}
		x := box{says: cells[3]}
		_, _ = fmt.Sscan(cells[2], &x.at[0], &x.at[1], &x.at[2], &x.at[3])
		key := screen + ": " + cells[1]
		all[key] = x
		order = append(order, key)
	}
	return all, order
}

// movedBoxes describes the landmarks whose positions differ.
func movedBoxes(was, now string) []string {
	old, before := readBoxes(was)
	fresh, after := readBoxes(now)
	var out []string
	for _, k := range before {
		o := old[k]
		n, ok := fresh[k]
		if !ok {
			out = append(out, fmt.Sprintf("%s %q is gone; it was %s", k, o.says, o.where()))
			continue
		}
		far := false
		for i := range o.at {
			if d := o.at[i] - n.at[i]; d > within || d < -within {
				far = true
			}
		}
		if far || o.says != n.says {
			out = append(out, fmt.Sprintf("%s %q was %s, now %q is %s", k, o.says, o.where(), n.says, n.where()))
		}
	}
	for _, k := range after {
		if _, ok := old[k]; !ok {
			out = append(out, fmt.Sprintf("%s %q is new: %s", k, fresh[k].says, fresh[k].where()))
		}
	}
	return out
}

func (b box) where() string {
	return fmt.Sprintf("%d×%d at %d,%d", b.at[2], b.at[3], b.at[0], b.at[1])
}
