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

// sniffed is the number of bytes that TypeOfFile examines to find a media type.
const sniffed = 512

// TypeOfFile returns the content of a file and its media type. If mediaType is empty, not valid,
// application/octet-stream or application/x-www-form-urlencoded, TypeOfFile uses the type of the name's extension, or
// else the type that it detects in the first bytes. The caller must read the returned content, because TypeOfFile may
// have read a part of the given one. The error is an *api.Problem that content has returned; reads of the returned
// content return other errors.
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
