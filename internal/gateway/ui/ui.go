// Package ui serves the page at /ui/. The other files in its folder are the page, which web/build.sh
// builds.
package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Path is the path of the page and the prefix of its files.
const Path = "/ui/"

// Policy is the Content-Security-Policy of documents of the page: they load nothing from other hosts,
// and no document may frame them, because buttons of the page approve calls.
const Policy = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

//go:embed *.html *.js *.css *.svg
var page embed.FS

// file is a file of the page, with its encodings.
type file struct {
	kind   string
	tag    string
	plain  []byte
	zipped []byte
}

// content reads the files of the page once. Responses are compressed and have a tag that browsers use to revalidate
// them: another build serves other files at the same paths.
var content = sync.OnceValues(func() (map[string]file, error) {
	files := map[string]file{}
	err := fs.WalkDir(page, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		plain, err := page.ReadFile(name)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := z.Write(plain); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		sum := sha256.Sum256(plain)
		files[Path+name] = file{kindOf(name), hex.EncodeToString(sum[:8]), plain, b.Bytes()}
		return nil
	})
	files[Path] = files[Path+"index.html"]
	return files, err
})

// kindOf returns the media type of a file. It does not use the tables of the machine, because some say that JavaScript
// is text/plain.
func kindOf(name string) string {
	kinds := map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
	if kind, ok := kinds[path.Ext(name)]; ok {
		return kind
	}
	return "application/octet-stream"
}

// hashed matches names with a hash of the file's content, which the build generates: such a name never has other
// content.
var hashed = regexp.MustCompile(`-[A-Z0-9]{8}\.js$`)

// Get responds with a file of the page.
func Get(w http.ResponseWriter, r *http.Request) error {
	files, err := content()
	if err != nil {
		return err
	}
	f, ok := files[r.URL.Path]
	if !ok {
		return exchange.Problem(http.StatusNotFound, api.CodeNotFound, "there is no path %s: open the page at /ui/", r.URL.Path)
	}
	h := w.Header()
	h.Set("Content-Security-Policy", Policy)
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "no-cache")
	if hashed.MatchString(r.URL.Path) {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	h.Set("Vary", "Accept-Encoding")
	body, tag := f.plain, f.tag
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		body, tag = f.zipped, f.tag+"-gzip"
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("ETag", `"`+tag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
	return nil
}
