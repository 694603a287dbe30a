package inprocess

import (
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"sync"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// PutFile stores a file while it is read.
func (c *Client) PutFile(ctx context.Context, f api.FileUpload) (api.File, error) {
	return do[api.File](ctx, c, call{operation: service.PutFile}, func(ctx context.Context, caller access.Caller) (any, error) {
		if err := c.p.cfg.Service.Permit(ctx, caller, service.PutFile); err != nil {
			return nil, err
		}
		in := service.Upload{Name: f.Name, MediaType: f.MediaType, Content: f.Content, Bytes: f.Bytes}
		if in.Content == nil {
			in.Content = strings.NewReader("")
		}
		var err error
		if in.Content, in.MediaType, err = exchange.TypeOfFile(in.Name, in.MediaType, in.Content); err != nil {
			return nil, err
		}
		return c.p.cfg.Service.Files.Put(ctx, caller, in)
	})
}

// Files returns a page of the tenant's files, the oldest first. An empty cursor begins with the first; limit
// 0 is the service's own.
func (c *Client) Files(ctx context.Context, cursor string, limit int) (api.Page[api.File], error) {
	return do[api.Page[api.File]](ctx, c, call{operation: service.Read}, func(ctx context.Context, caller access.Caller) (any, error) {
		q := map[string][]string{}
		if cursor != "" {
			q["cursor"] = []string{cursor}
		}
		if limit != 0 {
			q["limit"] = []string{strconv.Itoa(limit)}
		}
		p, err := service.ParsePage(q)
		if err != nil {
			return nil, err
		}
		return c.p.cfg.Service.Files.List(ctx, caller, p)
	})
}

// File returns a file without its content.
func (c *Client) File(ctx context.Context, id string) (api.File, error) {
	return do[api.File](ctx, c, call{operation: service.Read}, func(ctx context.Context, caller access.Caller) (any, error) {
		return c.p.cfg.Service.Files.Get(ctx, caller, id)
	})
}

// FileContent opens the content of a file, which the caller must close. It ends with ctx and with the
// Process.
func (c *Client) FileContent(ctx context.Context, id string) (io.ReadCloser, error) {
	ctx, end, err := c.p.begin(ctx)
	if err != nil {
		return nil, err
	}
	end = sync.OnceFunc(end)
	context.AfterFunc(ctx, end) // so that Close does not wait for a caller that never closes the content
	content := &content{end: end}
	err = service.Guarded(c.p.cfg.Log, func() error {
		caller, err := c.caller()
		if err == nil {
			_, content.ReadCloser, err = c.p.cfg.Service.Files.Open(ctx, caller, id)
		}
		return err
	})()
	if err != nil {
		err = c.problem(ctx, err)
		end()
		return nil, err
	}
	return content, nil
}

// content is the content of a file, and ends its call.
type content struct {
	io.ReadCloser

	end func()
}

func (c *content) Close() error {
	defer c.end()
	return c.ReadCloser.Close()
}

// DeleteFile deletes a file that no run and no schedule names.
func (c *Client) DeleteFile(ctx context.Context, id string) error {
	_, err := do[json.RawMessage](ctx, c, call{operation: service.DeleteFile}, func(ctx context.Context, caller access.Caller) (any, error) {
		return nil, c.p.cfg.Service.Files.Delete(ctx, caller, id)
	})
	return err
}
