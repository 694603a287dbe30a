package toolspec

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Request is the settings of the kind HTTP: the template of a request. {name} in URL, Query and Headers is replaced by
// an argument of the call, escaped for its place. Other arguments become query parameters of a GET or DELETE, and a
// JSON object in the body of other methods. secret://NAME in Query, in Headers and after the ? of URL is replaced by a
// secret.
type Request struct {
	URL     string            `json:"url,omitempty"`
	Method  string            `json:"method,omitempty"` // default: GET
	Query   map[string]string `json:"query,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// Methods returns the methods that a request may have.
func Methods() []string { return []string{"GET", "POST", "PUT", "PATCH", "DELETE"} }

var (
	// Argument matches {name} in a template, and SecretRef a reference to a secret; the first submatch is the name.
	Argument  = regexp.MustCompile(`\{([a-zA-Z_][a-zA-Z0-9_]*)\}`)
	SecretRef = regexp.MustCompile(`secret://([a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})`)
	header    = regexp.MustCompile(`^[a-zA-Z0-9-]{1,64}$`)
)

// Check returns an error about one mistake in a template, or nil if it has none.
func (r Request) Check() error {
	if !slices.Contains(Methods(), r.Verb()) {
		return fmt.Errorf("method: it is %q: write one of %s", r.Method, strings.Join(Methods(), ", "))
	}
	u, err := url.Parse(Argument.ReplaceAllString(r.URL, "x"))
	if err != nil || u.Host == "" || !web(u) || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("url: %q is not an http or https URL, or has a user or a fragment: write one such as https://api.example.com/orders", r.URL)
	}
	// The model chooses the arguments: they must not choose the host that receives the secrets.
	if scheme, rest, _ := strings.Cut(r.URL, "://"); Argument.MatchString(scheme) || Argument.MatchString(strings.SplitN(rest, "/", 2)[0]) || strings.Contains(strings.SplitN(rest, "?", 2)[0], secretScheme) {
		return fmt.Errorf("url: %q: an argument is only allowed in the path and after the ?, and a secret only in query and headers: move it", r.URL)
	}
	for name := range r.Headers {
		if !header.MatchString(name) || slices.Contains([]string{"host", "content-length", "transfer-encoding", "connection"}, strings.ToLower(name)) {
			return fmt.Errorf("headers: %q is not a valid name, or is set by the worker: correct the name, or remove it", name)
		}
	}
	return nil
}

// Verb returns the method of the request.
func (r Request) Verb() string {
	if r.Method == "" {
		return "GET"
	}
	return r.Method
}

// Uses returns the first key of the template that uses an argument: url, query or headers.
func (r Request) Uses(argument string) string {
	uses := func(text string) bool { return strings.Contains(text, "{"+argument+"}") }
	if uses(r.URL) {
		return "url"
	}
	if slices.ContainsFunc(slices.Collect(maps.Values(r.Query)), uses) {
		return "query"
	}
	return "headers"
}

// Arguments returns the names of the arguments that the template uses, sorted.
func (r Request) Arguments() []string {
	names := map[string]bool{}
	for _, text := range slices.Concat([]string{r.URL}, slices.Collect(maps.Values(r.Query)), slices.Collect(maps.Values(r.Headers))) {
		for _, m := range Argument.FindAllStringSubmatch(text, -1) {
			names[m[1]] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
