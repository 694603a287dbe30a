package api

// Valid returns nil if the client has the URL of a gateway, and the error of every call otherwise.
func (c *Client) Valid() error { return c.bad }
