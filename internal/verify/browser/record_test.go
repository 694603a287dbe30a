//go:build browser

package browser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	answersFile = "testdata/layout/answers.json"
	pageDir     = "../../../internal/gateway/ui"
)

// recorded is a gateway's response to a GET of the page. Streams have lines.
type recorded struct {
	Path   string          `json:"path"`
	Status int             `json:"status"`
	Body   json.RawMessage `json:"body,omitempty"`
	Stream []string        `json:"stream,omitempty"` // the lines of a stream
}

// recorder is a proxy between a browser and a gateway that records the latest responses.
type recorder struct {
	mu      sync.Mutex
	answers map[string]*recorded
	bodies  map[string][]byte
}

func record(t *testing.T, gateway string) (*recorder, string) {
	t.Helper()
	to, err := url.Parse(gateway)
	if err != nil {
		t.Fatal(err)
	}
	rec := &recorder{answers: map[string]*recorded{}, bodies: map[string][]byte{}}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Header.Del("Accept-Encoding")
			if r.In.Header.Get("Origin") != "" {
				r.Out.Header.Set("Origin", gateway)
			}
		},
		ModifyResponse: func(resp *http.Response) error {
			if resp.Request.Method == http.MethodGet && strings.HasPrefix(resp.Request.URL.Path, "/v1/") {
				resp.Body = &tee{ReadCloser: resp.Body, rec: rec, path: resp.Request.URL.RequestURI(), status: resp.StatusCode}
			}
			return nil
		},
	}
	s := httptest.NewServer(proxy)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return rec, strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
}

// tee records the bytes of a response: the longest of a stream, else the last.
type tee struct {
	io.ReadCloser
	rec    *recorder
	path   string
	status int
	seen   []byte
}

func (b *tee) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.seen = append(b.seen, p[:n]...)
	b.rec.mu.Lock()
	defer b.rec.mu.Unlock()
	stream := strings.Contains(b.path, "/events")
	if stream && len(b.seen) > len(b.rec.bodies[b.path]) || !stream && err == io.EOF {
		b.rec.answers[b.path] = &recorded{Path: b.path, Status: b.status}
		b.rec.bodies[b.path] = slices.Clone(b.seen)
	}
	return n, err
}

var (
	instants = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	lengths  = regexp.MustCompile(`"(duration_ms|age_ms|uptime_ms)":(\d+)`)
)

// slower stretches recorded times, so that runs of seconds become runs of minutes.
const slower = 8

// stands is the fixed time at which the recording is shown.
var stands = time.Date(2026, 3, 14, 10, 20, 0, 0, time.UTC)

// write stores the responses, shifted from end to the time stands.
func (rec *recorder) write(t *testing.T, end time.Time) {
	t.Helper()
	rec.mu.Lock()
	defer rec.mu.Unlock()
	shift := func(body []byte) []byte {
		body = instants.ReplaceAllFunc(body, func(b []byte) []byte {
			at, err := time.Parse(time.RFC3339Nano, string(b))
			if err != nil {
				t.Fatal(err)
			}
			d := at.Sub(end)
			if d < 0 {
				d *= slower
			}
			return stands.Add(d).Truncate(time.Millisecond).AppendFormat(nil, "2006-01-02T15:04:05.000Z")
		})
		return lengths.ReplaceAllFunc(body, func(b []byte) []byte {
			m := lengths.FindSubmatch(b)
			n, err := strconv.Atoi(string(m[2]))
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Appendf(nil, `"%s":%d`, m[1], n*slower)
		})
	}
	var all []*recorded
	for path, a := range rec.answers {
		body := shift(rec.bodies[path])
		switch {
		case strings.HasPrefix(path, "/v1/stats"):
			// The page requests the day that ends with the hour of its clock.
			u, err := url.Parse(path)
			if err != nil {
				t.Fatal(err)
			}
			to := stands.Truncate(time.Hour).Add(time.Hour)
			for name, at := range map[string]time.Time{"from": to.AddDate(0, 0, -1), "to": to} {
				a.Path = strings.Replace(a.Path, url.QueryEscape(u.Query().Get(name)), url.QueryEscape(at.Format("2006-01-02T15:04:05.000Z")), 1)
			}
			a.Body = body
		case strings.HasPrefix(path, "/v1/events"):
			// Changes that arrive during a screenshot would move its content.
			first, _, _ := strings.Cut(string(body), "\n\n")
			a.Stream = append(strings.Split(first, "\n"), "", "")
		case strings.Contains(path, "/events"):
			a.Stream = strings.Split(string(body), "\n")
		default:
			a.Body = body
		}
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b *recorded) int { return strings.Compare(a.Path, b.Path) })
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(all); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(answersFile, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// fontStyle replaces the system's fonts with those of testdata.
const fontStyle = `
@font-face { font-family: "Test"; src: url(fonts/sans.woff2); font-weight: 100 500; }
@font-face { font-family: "Test"; src: url(fonts/sans-bold.woff2); font-weight: 501 900; }
@font-face { font-family: "Test Mono"; src: url(fonts/mono.woff2); }
@font-face { font-family: "Test Signs"; src: url(fonts/signs.woff2); }
:root { --sans: "Test", "Test Signs"; --mono: "Test Mono", "Test Signs"; }
* { caret-color: transparent !important; }
`

// replay serves the current page with the fonts of testdata and the recorded responses.
func replay(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(answersFile)
	if err != nil {
		t.Fatal(err)
	}
	var list []recorded
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	answers := map[string]recorded{}
	for _, a := range list {
		answers[a.Path] = a
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ui/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		http.StripPrefix("/ui/", http.FileServer(http.Dir(pageDir))).ServeHTTP(w, r)
	})
	mux.Handle("GET /ui/fonts/", http.StripPrefix("/ui/", http.FileServer(http.Dir("testdata/layout"))))
	mux.HandleFunc("GET /ui/style.css", func(w http.ResponseWriter, _ *http.Request) { serveStyle(t, w, "style.css") })
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		a, ok := answers[r.URL.RequestURI()]
		switch {
		case !ok:
			t.Errorf("the page requests %s %s, which is not in %s: run with -record to record it", r.Method, r.URL.RequestURI(), answersFile)
			http.Error(w, "{}", http.StatusNotFound)
		case a.Stream != nil:
			w.Header().Set("Content-Type", "text/event-stream")
			text := strings.Join(a.Stream, "\n")
			_, _ = io.WriteString(w, text)
			if !strings.Contains(text, "event: run.finished") {
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			}
		default:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(a.Status)
			_, _ = w.Write(a.Body)
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

func serveStyle(t *testing.T, w http.ResponseWriter, name string) {
	text, err := os.ReadFile(path.Join(pageDir, name))
	if err != nil {
		t.Error(err)
	}
	w.Header().Set("Content-Type", "text/css")
	_, _ = w.Write(append(text, fontStyle...))
}
