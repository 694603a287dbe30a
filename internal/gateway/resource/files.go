package resource

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
)

const (
	// UploadBuffers is the number of bytes of memory that an upload uses: a message to the bus, and the buffers of its
	// connection and of a multipart body.
	UploadBuffers = bus.ObjectBuffer

	// MultipartExtra is the number of bytes that a multipart body may have in addition to its file.
	MultipartExtra = 64 << 10
)

// Files stores, reads and deletes files.
type Files struct{ files *service.Files }

// NewFiles returns the handlers of files.
func NewFiles(f *service.Files) *Files { return &Files{f} }

// Post stores a file: the body, or the only part of a multipart body that has a file name.
func (h *Files) Post(w http.ResponseWriter, r *http.Request) error {
	in := service.Upload{Name: r.URL.Query().Get("name"), MediaType: r.Header.Get("Content-Type"), Content: http.NoBody}
	if r.Body != nil {
		in.Content = r.Body
	}
	kind, params, err := mime.ParseMediaType(in.MediaType)
	if err == nil && kind == "multipart/form-data" {
		if params["boundary"] == "" {
			return exchange.Invalid("header Content-Type: multipart/form-data has no boundary: let your HTTP client set the header")
		}
		form := multipart.NewReader(r.Body, params["boundary"])
		part, err := filePart(form)
		if errors.Is(err, io.EOF) {
			return exchange.Invalid("the multipart body has no part with a file name: send one, as in curl -F file=@a.pdf")
		}
		if err != nil {
			return err
		}
		in.Content, in.MediaType = &onlyFile{part, form}, part.Header.Get("Content-Type")
		if in.Name == "" {
			in.Name = part.FileName()
		}
	}
	in.Content, in.MediaType, err = exchange.TypeOfFile(in.Name, in.MediaType, in.Content)
	if err != nil {
		return err
	}
	f, err := h.files.Put(r.Context(), access.FromContext(r.Context()), in)
	if err == nil {
		w.Header().Set("Location", "/v1/files/"+f.ID)
	}
	return reply(w, http.StatusCreated, f, err)
}

// filePart returns the next part of a multipart body that has a file name, or io.EOF.
func filePart(form *multipart.Reader) (*multipart.Part, error) {
	for {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		if p, ok := errors.AsType[*api.Problem](err); ok {
			return nil, p
		}
		if err != nil {
			return nil, exchange.Invalid("the multipart body is not valid, let your HTTP client encode it: %v", err)
		}
		if part.FileName() != "" {
			return part, nil
		}
	}
}

// onlyFile reads the one file of a multipart body. If another file follows, its last read fails with a problem, so that
// nothing is stored.
type onlyFile struct {
	*multipart.Part

	form *multipart.Reader
}

// Read implements io.Reader.
func (f *onlyFile) Read(p []byte) (int, error) {
	n, err := f.Part.Read(p)
	if !errors.Is(err, io.EOF) {
		return n, err
	}
	switch _, err := filePart(f.form); {
	case errors.Is(err, io.EOF):
		return n, io.EOF
	case err != nil:
		return n, err
	default:
		return n, exchange.Invalid("the multipart body has more than one file: send each in its own request")
	}
}

// List responds with a page of files.
func (h *Files) List(w http.ResponseWriter, r *http.Request) error {
	return exchange.ReplyList(w, r, h.files.List)
}

// Get responds with a file, without its content.
func (h *Files) Get(w http.ResponseWriter, r *http.Request) error {
	f, err := h.files.Get(r.Context(), access.FromContext(r.Context()), r.PathValue("id"))
	return reply(w, http.StatusOK, f, err)
}

// inert are the media types, besides images, audio and video, that no browser executes.
var inert = []string{"application/pdf", "application/json", "text/plain", "text/csv", "text/markdown"}

// shownType returns the media type of a response with an uploaded file: a type that browsers do not execute, because
// the page has the same origin as the API.
func shownType(mediaType string) string {
	major, minor, _ := strings.Cut(mediaType, "/")
	if slices.Contains(inert, mediaType) || slices.Contains([]string{"image", "audio", "video"}, major) && !strings.Contains(minor, "xml") {
		return mediaType
	}
	return "application/octet-stream"
}

// Content responds with the content of a file, which browsers save instead of showing.
func (h *Files) Content(w http.ResponseWriter, r *http.Request) error {
	f, content, err := h.files.Open(r.Context(), access.FromContext(r.Context()), r.PathValue("id"))
	if err != nil {
		return err
	}
	defer content.Close()
	name := f.Name
	if name == "" {
		name = f.ID
	}
	header := w.Header()
	header.Set("Content-Type", shownType(f.MediaType))
	header.Set("Content-Length", strconv.FormatInt(f.Bytes, 10))
	header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name}))
	header.Set("Content-Security-Policy", "sandbox; default-src 'none'; frame-ancestors 'none'")
	header.Set("Accept-Ranges", "none")
	header.Set("ETag", strconv.Quote(f.SHA256))
	w.WriteHeader(http.StatusOK)
	if _, err := io.Copy(w, content); err != nil {
		panic(http.ErrAbortHandler) // a partial response must not look complete
	}
	return nil
}

// Delete deletes a file that is not in use.
func (h *Files) Delete(w http.ResponseWriter, r *http.Request) error {
	return exchange.Done(w, h.files.Delete(r.Context(), access.FromContext(r.Context()), r.PathValue("id")))
}
