package api

import (
	"context"
	"io"
	"net/http"
	"net/url"
)

// FileUpload is a file to upload.
type FileUpload struct {
	Name      string // may be empty
	MediaType string // empty: the gateway determines it from the name or the content
	Content   io.Reader

	// Bytes is the size of Content, or 0 if it is unknown. With a size the gateway refuses a file that is too large
	// before the client sends it.
	Bytes int64
}

// PutFile uploads a file while it reads f.Content. The gateway deletes the file when no run and no schedule has named
// it for a day. The error has CodeBodyTooLarge for a file above the gateway's maximum, or CodeFilesFull if the tenant
// has reached its limit of files or of their bytes.
func (c *Client) PutFile(ctx context.Context, f FileUpload) (File, error) {
	var out File
	if c.bad != nil {
		return out, c.bad
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/v1/files?"+url.Values{"name": {f.Name}}.Encode(), f.Content)
	if err != nil {
		return out, err
	}
	if f.Bytes > 0 {
		req.ContentLength = f.Bytes
	}
	if f.MediaType != "" {
		req.Header.Set("Content-Type", f.MediaType)
	}
	return out, c.send(req, &out)
}

// Files returns a page of the tenant's files, oldest first. An empty cursor begins with the oldest; the default of
// limit 0 is the gateway's.
func (c *Client) Files(ctx context.Context, cursor string, limit int) (Page[File], error) {
	return get[Page[File]](ctx, c, "/v1/files?"+pageQuery(cursor, limit).Encode())
}

// File returns a file without its content.
func (c *Client) File(ctx context.Context, id string) (File, error) {
	return get[File](ctx, c, filePath(id))
}

// FileContent opens the content of a file, which the caller must close. If the connection breaks, reading returns an
// error other than io.EOF.
func (c *Client) FileContent(ctx context.Context, id string) (io.ReadCloser, error) {
	if c.bad != nil {
		return nil, c.bad
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+filePath(id)+"/content", nil)
	if err != nil {
		return nil, err
	}
	c.sign(req)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		defer resp.Body.Close()
		return nil, problemOf(resp)
	}
	return resp.Body, nil
}

// DeleteFile deletes a file. The error has CodeFileInUse if a run or a schedule names the file or is about to.
func (c *Client) DeleteFile(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, filePath(id), nil, nil, nil)
}

func filePath(id string) string { return "/v1/files/" + url.PathEscape(id) }
