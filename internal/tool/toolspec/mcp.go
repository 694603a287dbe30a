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

// Check returns the mistakes in s.
func (s Server) Check() error {
	if (len(s.Command) == 0) == (s.URL == "") {
		return errors.New("an MCP server is either a command, a list such as [npx, some-server], or a url")
	}
	if s.URL == "" {
		if s.Command[0] == "" {
			return errors.New("command: the program is missing")
		}
		if len(s.Headers) > 0 {
			return errors.New("headers are for servers with a url; a command takes env")
		}
		if slices.ContainsFunc(s.Command, func(arg string) bool { return strings.Contains(arg, secretScheme) }) {
			return errors.New("command: a secret may stand in env only: others can see a program's arguments")
		}
		for name := range s.Env {
			if !variable.MatchString(name) {
				return fmt.Errorf("env: %q is not the name of a variable", name)
			}
		}
		return nil
	}
	if len(s.Env) > 0 {
		return errors.New("env is for servers with a command; a url takes headers")
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || !web(u) || u.User != nil || u.Fragment != "" || strings.Contains(s.URL, secretScheme) {
		return fmt.Errorf("url: %q is not an http or https URL without user, secret and fragment", s.URL)
	}
	for name := range s.Headers {
		if !header.MatchString(name) || slices.Contains([]string{"host", "content-length", "transfer-encoding", "connection", "content-type", "accept"}, strings.ToLower(name)) || strings.HasPrefix(strings.ToLower(name), "mcp-") {
			return fmt.Errorf("headers: %q cannot be set", name)
		}
	}
	return nil
}

// String names the server in messages.
func (s Server) String() string {
	if s.URL == "" {
		return strings.Join(s.Command, " ")
	}
	where, _, _ := strings.Cut(s.URL, "?")
	return where
}
