package toolspec

import (
	"errors"
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
	origin    = regexp.MustCompile(`^[^/]*://[^/?#]*`) // scheme, host and port of a URL
	header    = regexp.MustCompile(`^[a-zA-Z0-9-]{1,64}$`)
)

// Check returns an error about one mistake in a template, or nil if it has none.
func (r Request) Check() error {
	if !slices.Contains(Methods(), r.Verb()) {
		return fmt.Errorf("method: it is %q: write one of %s", r.Method, strings.Join(Methods(), ", "))
	}
	// The model chooses the arguments: they must not choose the host that receives the secrets.
	if Argument.MatchString(origin.FindString(r.URL)) {
		return fmt.Errorf("url: %q has an argument before the path: write scheme, host and port as fixed text, and use arguments only in the path and after the ?", r.URL)
	}
	u, err := url.Parse(Argument.ReplaceAllString(r.URL, "x"))
	switch {
	case err != nil || u.Host == "" || !web(u):
		return fmt.Errorf("url: %q is not an http or https URL: write one such as https://api.example.com/orders", r.URL)
	case u.User != nil:
		return errors.New("url: a user or password is not allowed here: remove it, and pass credentials in headers, such as Authorization: Bearer secret://NAME")
	case u.Fragment != "":
		return fmt.Errorf("url: %q has a fragment, which is never sent: remove the # and what follows it", r.URL)
	}
	if path, _, _ := strings.Cut(r.URL, "?"); strings.Contains(path, secretScheme) {
		return fmt.Errorf("url: %q has a secret before the ?: move it behind the ?, or into query or headers", r.URL)
	}
	for name := range r.Headers {
		if err := checkHeader(name); err != nil {
			return err
		}
	}
	return nil
}

// checkHeader returns an error if name is not a valid name of a header, or if the worker sets the header itself: besides
// those of every request, these are more, in which an entry that ends with - stands for all names that begin with it.
func checkHeader(name string, more ...string) error {
	if !header.MatchString(name) {
		return fmt.Errorf("headers: %.80q is not a valid name: use 1 to 64 letters, digits and -", name)
	}
	lower := strings.ToLower(name)
	for _, own := range append([]string{"host", "content-length", "transfer-encoding", "connection"}, more...) {
		if lower == own || strings.HasSuffix(own, "-") && strings.HasPrefix(lower, own) {
			return fmt.Errorf("headers: the worker sets %q itself: remove it", name)
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
