package api

import (
	"context"
	"net/http"
	"net/url"
)

// PutSchedule creates a schedule, or replaces all settings of one. It fires for instants after the call.
func (c *Client) PutSchedule(ctx context.Context, name string, s ScheduleSettings) (Schedule, error) {
	return send[Schedule](ctx, c, http.MethodPut, "/v1/schedules/"+url.PathEscape(name), s)
}

// Schedule returns a schedule with its settings and its firings.
func (c *Client) Schedule(ctx context.Context, name string) (Schedule, error) {
	return get[Schedule](ctx, c, "/v1/schedules/"+url.PathEscape(name))
}

// Schedules returns a page of the schedules of the tenant, by name. An empty cursor begins with the first; the default
// of limit 0 is the gateway's.
func (c *Client) Schedules(ctx context.Context, cursor string, limit int) (Page[Schedule], error) {
	return get[Page[Schedule]](ctx, c, "/v1/schedules?"+pageQuery(cursor, limit).Encode())
}

// DeleteSchedule deletes a schedule. Its runs continue.
func (c *Client) DeleteSchedule(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/schedules/"+url.PathEscape(name), nil, nil, nil)
}

// PauseSchedule stops a schedule from firing until ResumeSchedule. A run that waits for the end of another (see
// OverlapQueueOne) still starts.
func (c *Client) PauseSchedule(ctx context.Context, name string) (Schedule, error) {
	return c.actOnSchedule(ctx, name, "pause")
}

// ResumeSchedule lets a schedule fire again, for instants after the call.
func (c *Client) ResumeSchedule(ctx context.Context, name string) (Schedule, error) {
	return c.actOnSchedule(ctx, name, "resume")
}

func (c *Client) actOnSchedule(ctx context.Context, name, action string) (s Schedule, err error) {
	err = c.do(ctx, http.MethodPost, "/v1/schedules/"+url.PathEscape(name)+"/"+action, nil, nil, &s)
	return s, err
}

// RunSchedule starts the run of a schedule now, whatever its Overlap says, even while it is paused. Calls for the
// schedule with the same key start one run while the key is known, at least a week unless the run is deleted; with an
// empty key each call starts one. The run does not count as a firing.
func (c *Client) RunSchedule(ctx context.Context, name, key string) (Run, error) {
	var run Run
	err := c.do(ctx, http.MethodPost, "/v1/schedules/"+url.PathEscape(name)+"/run", keyHeader(key), nil, &run)
	return run, err
}
