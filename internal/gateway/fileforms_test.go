package gateway_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// storeFile sends a file to a gateway, and returns what the response says about it.
func storeFile(t *testing.T, g *gateway.Gateway, query, contentType string, body io.Reader) (f api.File) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/files"+query, body)
	r.Header.Set("Content-Type", contentType)
	w := httptest.NewRecorder()
	g.Handler().ServeHTTP(w, r)
	if err := json.Unmarshal(w.Body.Bytes(), &f); err != nil || w.Code != http.StatusCreated {
		t.Fatalf("%d %s, %v", w.Code, w.Body, err)
	}
	return f
}

// The name in the query takes precedence over that in a form, and the type follows the name that applies unless the
// form gives it.
func TestNamesOfForms(t *testing.T) {
	t.Parallel()
	g, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ query, partType, name, mediaType string }{
		{"", "", "a.pdf", "application/pdf"},
		{"?name=b.json", "", "b.json", "application/json"},
		{"?name=", "", "a.pdf", "application/pdf"},
		{"?name=b.json", "Content-Type: text/csv\r\n", "b.json", "text/csv"},
	} {
		form := "--b\r\nContent-Disposition: form-data; name=f; filename=a.pdf\r\n" + c.partType + "\r\nhello\r\n--b--\r\n"
		f := storeFile(t, g, c.query, "multipart/form-data; boundary=b", strings.NewReader(form))
		if f.Name != c.name || f.MediaType != c.mediaType || f.Bytes != 5 {
			t.Errorf("%q %q: %s of type %s with %d bytes, want %s of type %s", c.query, c.partType, f.Name, f.MediaType, f.Bytes, c.name, c.mediaType)
		}
	}
}

// A file is downloaded under its name, or its id if it has none, and with its type only if no browser executes that.
func TestDownloads(t *testing.T) {
	t.Parallel()
	g, err := gateway.New(memstore.New(memstore.Config{}), membus.New(), gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	const hidden = "application/octet-stream"
	for mediaType, want := range map[string]string{
		"application/pdf": "application/pdf", "text/csv": "text/csv", "image/png": "image/png", "audio/ogg": "audio/ogg", "video/mp4": "video/mp4",
		"image/svg+xml": hidden, "text/html": hidden, "application/xml": hidden, "application/png": hidden,
	} {
		for name, query := range map[string]string{"": "", "a": "?name=a"} {
			f := storeFile(t, g, query, mediaType, strings.NewReader("x"))
			if name == "" {
				name = f.ID
			}
			w := httptest.NewRecorder()
			g.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/files/"+f.ID+"/content", nil))
			if got := w.Header().Get("Content-Type"); got != want {
				t.Errorf("%s is sent as %s, want %s", mediaType, got, want)
			}
			if got := w.Header().Get("Content-Disposition"); got != "attachment; filename="+name {
				t.Errorf("the file is sent as %s, want the name %s", got, name)
			}
		}
	}
}
