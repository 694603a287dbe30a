//go:build browser

package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
)

// browser is one tab, with the errors that occurred in it.
type browser struct {
	t   *testing.T
	ctx context.Context
	url string

	profile cdp.BrowserContextID

	others []string // further addresses that may be requested

	mu       sync.Mutex
	requests []string
	problems []string
}

// quit ends the Chromium that all tests share, if it was started.
var quit = func() {}

// chromium starts the browser that all tests share.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		return nil, fmt.Errorf("%w: hack/ensure-chromium.sh installs it", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WindowSize(1440, 900), chromedp.Flag("disable-dev-shm-usage", true))
	alloc, stop := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(alloc, chromedp.WithErrorf(func(string, ...any) {})) // it logs an error for each event that it does not know
	quit = func() { cancel(); stop() }
	return ctx, chromedp.Run(ctx)
})

// open opens a tab that shares no cookies and no storage with others. It fails the test if there is no browser.
func open(t *testing.T, address string) *browser {
	t.Helper()
	all, err := chromium()
	if err != nil {
		t.Fatal(err)
	}
	executor := cdp.WithExecutor(all, chromedp.FromContext(all).Browser)
	profile, err := target.CreateBrowserContext().WithDisposeOnDetach(true).Do(executor)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := target.DisposeBrowserContext(profile).Do(executor); err != nil {
			t.Error(err)
		}
	})
	b := &browser{t: t, profile: profile, url: address}
	b.ctx = b.tab(all, true)
	ctx := b.ctx
	chromedp.ListenTarget(ctx, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := ev.(type) {
		case *network.EventRequestWillBeSent:
			b.requests = append(b.requests, e.Request.Method+" "+e.Request.URL)
		case *runtime.EventExceptionThrown:
			b.problems = append(b.problems, e.ExceptionDetails.Error())
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError {
				b.problems = append(b.problems, fmt.Sprint("console.error ", e.Args))
			}
		case *log.EventEntryAdded:
			// The editor also sets styles of elements. The policy refuses them, and the editor works without
			// them.
			if e.Entry.Source == log.SourceSecurity && !strings.Contains(e.Entry.Text, "Applying inline style") {
				b.problems = append(b.problems, e.Entry.Text)
			}
		case *page.EventJavascriptDialogOpening:
			b.problems = append(b.problems, "dialog: "+e.Message)
		}
	})
	b.run(network.Enable(), runtime.Enable(), log.Enable(), page.Enable(), emulation.SetFocusEmulationEnabled(true))
	t.Cleanup(b.sound)
	return b
}

// tab opens a tab in the browser's profile, which has a window once it has one tab.
func (b *browser) tab(all context.Context, window bool) context.Context {
	b.t.Helper()
	made := target.CreateTarget("about:blank").WithBrowserContextID(b.profile)
	if window {
		made = made.WithNewWindow(true).WithWidth(1440).WithHeight(900)
	}
	id, err := made.Do(cdp.WithExecutor(all, chromedp.FromContext(all).Browser))
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := chromedp.NewContext(all, chromedp.WithTargetID(id))
	b.t.Cleanup(cancel)
	return ctx
}

// sound fails the test if a script failed, or if the page sent a request to another host.
func (b *browser) sound() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.problems {
		b.t.Errorf("in the browser: %s", p)
	}
	for _, r := range b.requests {
		_, address, _ := strings.Cut(r, " ")
		u, err := url.Parse(address)
		if err != nil || !strings.HasPrefix(b.url, "http://"+u.Host) && !slices.Contains(b.others, "http://"+u.Host) && u.Scheme != "blob" {
			b.t.Errorf("the page requested %s", r)
		}
	}
}

func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *browser) goTo(hash string) {
	b.t.Helper()
	b.run(chromedp.Navigate("about:blank"), chromedp.Navigate(b.url+"/ui/"+hash))
}

// eval returns the value of an expression.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	var v T
	b.run(chromedp.Evaluate(expression, &v, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	return v
}

// shows waits until an expression is true.
func (b *browser) shows(what, expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(40 * time.Millisecond)
	defer tick.Stop()
	for {
		var ok bool
		if err := chromedp.Run(ctx, chromedp.Evaluate("!!("+expression+")", &ok)); err == nil && ok {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.t.Fatalf("the page does not show %s. It shows:\n%s", what, eval[string](b, "location.hash + '\\n' + document.body.innerText.slice(0, 3000)"))
		}
	}
}

func quoted(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always encodes
	}
	return string(text)
}

// text waits until an element contains a text.
func (b *browser) text(selector, text string) {
	b.t.Helper()
	b.shows(fmt.Sprintf("%q in %s", text, selector), fmt.Sprintf("[...document.querySelectorAll(%s)].some(e => e.innerText.includes(%s))", quoted(selector), quoted(text)))
}

// press clicks the button with a text, once it exists and is enabled.
func (b *browser) press(within, text string) {
	b.t.Helper()
	b.shows("the button "+text, fmt.Sprintf(`(() => {
		const e = [...document.querySelectorAll(%s + " button, " + %s + " a.button")].find(b => b.textContent.trim() === %s && !b.disabled);
		e?.click(); return !!e })()`, quoted(within), quoted(within), quoted(text)))
}

// unfold opens all folded elements, including nested ones.
func (b *browser) unfold() {
	b.t.Helper()
	b.shows("all that was folded", `(() => { const all = [...document.querySelectorAll("details")]; all.forEach(d => d.open = true); return all.every(d => d.children.length > 1) })()`)
}

// write replaces the text of a field.
func (b *browser) write(selector, text string) {
	b.t.Helper()
	b.shows(selector, fmt.Sprintf("(() => { const e = document.querySelector(%s); e?.focus(); e?.select(); return document.activeElement === e && e })()", quoted(selector)))
	b.run(input.InsertText(text))
}

func (b *browser) key(keys string) {
	b.t.Helper()
	b.run(chromedp.KeyEvent(keys))
}

// apiRequests returns the API requests since the tab was opened or the last call.
func (b *browser) apiRequests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []string
	for _, r := range b.requests {
		if strings.Contains(r, "/v1/") {
			out = append(out, r)
		}
	}
	b.requests = nil
	return out
}

// picture stores a screenshot in the directory TURNPIKE_PICTURES, if set.
func (b *browser) picture(name string) {
	b.t.Helper()
	b.shot(name, false)
}

// shot is picture and also returns the screenshot. It takes one only if it is stored or wanted.
func (b *browser) shot(name string, wanted bool) []byte {
	b.t.Helper()
	dir := os.Getenv("TURNPIKE_PICTURES")
	if dir == "" && !wanted {
		return nil
	}
	var png []byte
	b.run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		png, err = page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatPng).WithOptimizeForSpeed(true).Do(ctx)
		return err
	}))
	if dir == "" {
		return png
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/"+name+".png", png, 0o644); err != nil {
		b.t.Fatal(err)
	}
	return png
}
