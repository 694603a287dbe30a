package gateway_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/gateway"
)

// pageBudget bounds the compressed bytes that a browser loads before the page works.
const pageBudget = 150_000

// fetchPage gets a file of the page as a browser does. It returns the compressed and the uncompressed bytes.
func fetchPage(t *testing.T, url string) (http.Header, int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip, br")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	sent, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s = %s, %v", url, resp.Status, err)
	}
	z, err := gzip.NewReader(strings.NewReader(string(sent)))
	if err != nil {
		t.Fatalf("GET %s is not compressed: %v", url, err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header, len(sent), string(text)
}

// The initial load is small, and comes from this gateway alone.
func TestPageIsSmallAndItsOwn(t *testing.T) {
	t.Parallel()
	s := hostileServer(t, gateway.Config{})
	_, total, index := fetchPage(t, s.URL+"/ui/")
	refs := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(index, -1)
	if len(refs) < 3 {
		t.Fatalf("the page refers to %v", refs)
	}
	todo := []string{}
	for _, r := range refs {
		todo = append(todo, r[1])
	}
	imports := regexp.MustCompile(`(?:from|import)\s*"\./([^"]+)"`)
	seen := map[string]bool{}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if seen[name] {
			continue
		}
		seen[name] = true
		if strings.Contains(name, "//") || strings.HasPrefix(name, "/") {
			t.Errorf("the page loads %s", name)
			continue
		}
		h, size, text := fetchPage(t, s.URL+"/ui/"+name)
		total += size
		if strings.HasSuffix(name, ".js") {
			if got := h.Get("Content-Type"); got != "text/javascript; charset=utf-8" {
				t.Errorf("%s has the type %q", name, got)
			}
			for _, m := range imports.FindAllStringSubmatch(text, -1) {
				todo = append(todo, m[1])
			}
		}
		if strings.HasSuffix(name, ".css") && strings.Contains(text, "url(") {
			t.Errorf("%s loads something", name)
		}
	}
	t.Logf("%d bytes in %d files", total, len(seen)+1)
	if total > pageBudget {
		t.Errorf("the page loads %d bytes at once, at most %d are allowed: load a view when it is opened", total, pageBudget)
	}
}

// A browser with a cached page revalidates it.
func TestPageIsCached(t *testing.T) {
	t.Parallel()
	s := hostileServer(t, gateway.Config{})
	for _, accept := range []string{"gzip", "identity"} {
		get := func(tag string) (status int, h http.Header, body string) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/ui/app.js", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept-Encoding", accept)
			if tag != "" {
				req.Header.Set("If-None-Match", tag)
			}
			resp, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, resp.Header, string(text)
		}
		status, h, body := get("")
		if status != http.StatusOK || h.Get("Cache-Control") != "no-cache" || body == "" {
			t.Errorf("%s: GET = %d %v", accept, status, h)
		}
		if status, _, body = get(h.Get("ETag")); status != http.StatusNotModified || body != "" {
			t.Errorf("%s: GET again = %d and %d bytes", accept, status, len(body))
		}
	}
}

// A browser caches a file whose name has its hash forever, and revalidates every other one.
func TestHashedFilesAreImmutable(t *testing.T) {
	t.Parallel()
	s := hostileServer(t, gateway.Config{})
	files, err := filepath.Glob("ui/*.js")
	if err != nil || len(files) < 2 {
		t.Fatalf("files %v, %v", files, err)
	}
	for _, f := range files {
		resp, err := http.Get(s.URL + "/ui/" + filepath.Base(f))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		got, own := resp.Header.Get("Cache-Control"), filepath.Base(f) == "app.js"
		if own != (got == "no-cache") || !own && !strings.Contains(got, "immutable") {
			t.Errorf("%s: Cache-Control %q", f, got)
		}
	}
}

// A source file above this size must be split by subject.
func TestPageSourcesAreShort(t *testing.T) {
	t.Parallel()
	const most = 600
	n := 0
	err := filepath.WalkDir("../../web/src", func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		n++
		if lines := strings.Count(string(text), "\n"); lines > most {
			t.Errorf("%s has %d lines, at most %d are allowed", name, lines, most)
		}
		return nil
	})
	if err != nil || n < 20 {
		t.Errorf("%d sources, %v", n, err)
	}
}
