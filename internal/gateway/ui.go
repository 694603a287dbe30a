package gateway

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

//go:embed ui
var uiFiles embed.FS

// uiFile is a file of the page, as it is sent.
type uiFile struct {
	kind   string
	tag    string
	plain  []byte
	zipped []byte
}

// uiContent reads the page once. Browsers get it compressed, and ask with its tag whether it
// is the same still: another build has another page under the same addresses.
var uiContent = sync.OnceValues(func() (map[string]uiFile, error) {
	files := map[string]uiFile{}
	err := fs.WalkDir(uiFiles, "ui", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		plain, err := uiFiles.ReadFile(name)
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
		files["/"+name] = uiFile{uiKind(name), hex.EncodeToString(sum[:8]), plain, b.Bytes()}
		return nil
	})
	files["/ui/"] = files["/ui/index.html"]
	return files, err
})

// uiKind is not left to the machine: some say that JavaScript is text/plain.
func uiKind(name string) string {
	kinds := map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
	if kind, ok := kinds[path.Ext(name)]; ok {
		return kind
	}
	return "application/octet-stream"
}

// pagePolicy is what documents of the page may load and do.
const pagePolicy = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// page serves the embedded page. It may load nothing from elsewhere, and no other
// page may frame it: its buttons approve calls.
func page() exchange.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		files, err := uiContent()
		if err != nil {
			return err
		}
		f, ok := files[r.URL.Path]
		if !ok {
			return exchange.Problem(http.StatusNotFound, api.CodeNotFound, "there is nothing at %s; the page is at /ui/", r.URL.Path)
		}
		h := w.Header()
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("Content-Type", f.kind)
		h.Set("Cache-Control", "no-cache")
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
}
