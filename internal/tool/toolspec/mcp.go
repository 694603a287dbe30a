package toolspec

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Server is an MCP server: a program to start, or a URL. secret://NAME in Env and
// Headers is replaced by a secret.
type Server struct {
	Command []string          `json:"command,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

var variable = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// Check returns an error about one mistake in s, or nil if it has none.
func (s Server) Check() error {
	if (len(s.Command) == 0) == (s.URL == "") {
		return errors.New("an MCP server needs a command or a url: give exactly one, a command as a list such as [npx, some-server]")
	}
	if s.URL == "" {
		if s.Command[0] == "" {
			return errors.New("command: the program is missing: write it first in the list")
		}
		if len(s.Headers) > 0 {
			return errors.New("headers: a server with a command has no headers: pass values in env instead")
		}
		if slices.ContainsFunc(s.Command, func(arg string) bool { return strings.Contains(arg, secretScheme) }) {
			return errors.New("command: a secret is not allowed here, since other users can see a program's arguments: pass it in env")
		}
		for name := range s.Env {
			if !variable.MatchString(name) {
				return fmt.Errorf("env: %q is not a valid name of a variable: use letters, digits and _, and no digit at the beginning", name)
			}
		}
		return nil
	}
	if len(s.Env) > 0 {
		return errors.New("env: a server with a url has no environment: pass values in headers instead")
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || !web(u) {
		return fmt.Errorf("url: %q is not an http or https URL: write one such as https://example.com/mcp", s.URL)
	}
	if u.Fragment != "" {
		return errors.New("url: it has a fragment, which is never sent: remove the # and what follows it")
	}
	if u.User != nil || strings.Contains(s.URL, secretScheme) {
		return errors.New("url: a user, a password or a secret is not allowed here: remove it, and pass credentials in headers, such as Authorization: Bearer secret://NAME")
	}
	for name := range s.Headers {
		if err := checkHeader(name, "content-type", "accept", "mcp-"); err != nil {
			return err
		}
	}
	return nil
}

// String returns the URL or the command of the server, for messages.
func (s Server) String() string {
	if s.URL == "" {
		return strings.Join(s.Command, " ")
	}
	where, _, _ := strings.Cut(s.URL, "?")
	return where
}
