package exchange

import (
	"bufio"
	"errors"
	"io"
	"mime"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// sniffed is the number of bytes by which the media type of a file without one is found.
const sniffed = 512

// TypeOfFile returns the content of a file and its media type. It replaces a type that says nothing by that of
// the name's extension, or of the first bytes. The error is a problem that the content has returned.
func TypeOfFile(name, mediaType string, content io.Reader) (io.Reader, string, error) {
	kind, _, _ := mime.ParseMediaType(mediaType)
	if !slices.Contains([]string{"", "application/octet-stream", "application/x-www-form-urlencoded"}, kind) {
		return content, mediaType, nil
	}
	if t := mime.TypeByExtension(strings.ToLower(path.Ext(name))); t != "" {
		return content, t, nil
	}
	r := bufio.NewReaderSize(content, sniffed)
	start, err := r.Peek(sniffed)
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return nil, "", p
	}
	return r, http.DetectContentType(start), nil
}
