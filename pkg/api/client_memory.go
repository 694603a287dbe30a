package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// AnyVersion, as the version in a change, applies it to any version of the file. Version 0 applies it only if the
// file does not exist, and any other version only if the file has that version.
const AnyVersion = -1

// MemoryScopes returns a page of the names of the tenant's memories, sorted. An empty cursor begins with the first; the
// default of limit 0 is the gateway's.
func (c *Client) MemoryScopes(ctx context.Context, cursor string, limit int) (Page[MemoryScope], error) {
	return get[Page[MemoryScope]](ctx, c, "/v1/memory:scopes?"+pageQuery(cursor, limit).Encode())
}

// MemoryFiles returns a page of the files of a memory, by path and without their contents. A memory that does not exist
// has no files.
func (c *Client) MemoryFiles(ctx context.Context, scope, cursor string, limit int) (Page[MemoryFile], error) {
	query := pageQuery(cursor, limit)
	query.Set("scope", scope)
	return get[Page[MemoryFile]](ctx, c, "/v1/memory?"+query.Encode())
}

// MemoryFile returns a file of a memory with its content. The error has CodeMemoryNotFound if it does not exist.
func (c *Client) MemoryFile(ctx context.Context, scope, path string) (MemoryFile, error) {
	return get[MemoryFile](ctx, c, memoryPath(scope, path))
}

// PutMemoryFile writes a file of a memory if the file has the version: see AnyVersion. Otherwise the error has
// CodeMemoryChanged. content must be UTF-8.
func (c *Client) PutMemoryFile(ctx context.Context, scope, path, content string, version int64) (MemoryFile, error) {
	if !utf8.ValidString(content) {
		return MemoryFile{}, errors.New("the content of the memory file is not UTF-8: convert it to UTF-8")
	}
	body, err := json.Marshal(PutMemoryRequest{&content})
	if err != nil {
		return MemoryFile{}, err
	}
	var f MemoryFile
	err = c.do(ctx, http.MethodPut, memoryPath(scope, path), ifMatch(version), body, &f)
	return f, err
}

// DeleteMemoryFile deletes a file of a memory if the file has the version: see AnyVersion. Otherwise
// the error has CodeMemoryChanged. With AnyVersion or 0 it has CodeMemoryNotFound if the file does not
// exist. If path is a directory, all files in it are deleted, and its version is the latest of theirs.
func (c *Client) DeleteMemoryFile(ctx context.Context, scope, path string, version int64) error {
	return c.do(ctx, http.MethodDelete, memoryPath(scope, path), ifMatch(version), nil, nil)
}

// EraseMemory deletes a memory with all its files. The error has CodeMemoryNotFound if it does not exist.
func (c *Client) EraseMemory(ctx context.Context, scope string) error {
	return c.do(ctx, http.MethodDelete, "/v1/memory?"+url.Values{"scope": {scope}}.Encode(), nil, nil, nil)
}

func memoryPath(scope, path string) string {
	// As one segment: a server would resolve dots and slashes, and redirect to another resource.
	path = strings.ReplaceAll(url.PathEscape(path), ".", "%2E")
	return "/v1/memory/" + path + "?" + url.Values{"scope": {scope}}.Encode()
}

func ifMatch(version int64) http.Header {
	if version < 0 {
		return nil
	}
	return http.Header{"If-Match": {strconv.Quote(strconv.FormatInt(version, 10))}}
}
