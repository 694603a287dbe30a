package api

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// DefaultURL is the address at which `turnpike dev` serves the API.
const DefaultURL = "http://127.0.0.1:7070"

// addressError reports an invalid gateway address.
type addressError struct {
	text  string
	given bool // the address is invalid by itself, whatever server it names
}

func (e *addressError) Error() string { return "address of the gateway: " + e.text }

// Is reports whether it is an ErrURL.
func (e *addressError) Is(target error) bool { return e.given && target == ErrURL } //nolint:errorlint // Is compares

// ErrURL is wrapped by the errors of a [Client] whose gateway URL is invalid.
var ErrURL = errors.New("not the URL of a gateway")

// foreignError reports a response that no gateway gives.
type foreignError struct {
	status int
	text   string
}

func (e *foreignError) Error() string { return e.text }

// Is reports a failure of a server as ErrUnavailable: a proxy answers for a gateway that it cannot reach.
func (e *foreignError) Is(target error) bool {
	return target == ErrUnavailable && e.status >= http.StatusInternalServerError
}

// Address returns the URL of a gateway. It puts http:// before a host and the number of a port, such as 127.0.0.1:7070,
// with or without a path, and returns any other address unchanged, without checking it.
func Address(address string) string {
	hostPort, _, _ := strings.Cut(address, "/")
	host, port, err := net.SplitHostPort(hostPort)
	if _, notNumber := strconv.ParseUint(port, 10, 16); err != nil || notNumber != nil || host == "" || strings.Contains(host, "@") {
		return address
	}
	return "http://" + address
}

// addressOf returns the base of a gateway's URLs, or an error if given is invalid. An empty address is DefaultURL.
func addressOf(given string) (string, error) {
	if given == "" {
		return DefaultURL, nil
	}
	given = Address(given)
	u, err := url.Parse(given)
	switch {
	case err != nil && !strings.Contains(given, "://"), err == nil && u.Host == "" && !strings.Contains(given, "@"):
		return "", &addressError{fmt.Sprintf("%q is not a URL: write one such as http://127.0.0.1:7070", given), true}
	case err != nil, u.Host == "":
		return "", &addressError{"it is not a valid URL: write one such as http://127.0.0.1:7070", true} // it may hold a password
	case u.Scheme != "http" && u.Scheme != "https":
		return "", &addressError{fmt.Sprintf("%s:// is not supported: write http:// or https://", u.Scheme), true}
	case u.RawQuery != "" || u.Fragment != "":
		return "", &addressError{fmt.Sprintf("%s has a query or a fragment: write one such as http://127.0.0.1:7070", u.Redacted()), true}
	}
	base := strings.TrimRight(given, "/")
	if strings.HasSuffix(base, "/v1") {
		return "", &addressError{fmt.Sprintf("%s ends with /v1, which every request adds: remove it", u.Redacted()), true}
	}
	return base, nil
}

// plainResponse is the text of net/http, which has no type for the error, if the server of an https URL has no TLS.
const plainResponse = "server gave HTTP response to HTTPS client"

// unreachable adds the remedy to the error of a connection if the error has a known cause.
func unreachable(err error) error {
	if strings.Contains(err.Error(), plainResponse) {
		return &addressError{text: "the server at " + hostOf(err) + " does not use TLS: write http://"}
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return &addressError{text: "the certificate of " + hostOf(err) + " is signed by an unknown authority: give the authority's file with TURNPIKE_CA_FILE or --ca-file, in Go with api.WithRootCAs"}
	}
	return err
}

func hostOf(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		if u, parseErr := url.Parse(e.URL); parseErr == nil {
			return u.Host
		}
	}
	return "this address"
}

// foreign returns the error for a response that no gateway gives.
func foreign(resp *http.Response, body []byte) error {
	const most = 100
	begins := []rune(string(bytes.Join(bytes.Fields(body), []byte(" "))))
	if len(begins) > most {
		begins = append(begins[:most], '…')
	}
	text := fmt.Sprintf("%s answered %s, and is not a gateway: check the URL in --server, TURNPIKE_URL or api.New", resp.Request.URL.Host, resp.Status)
	if resp.StatusCode >= http.StatusInternalServerError {
		text = fmt.Sprintf("%s answered %s for a gateway: retry, and check that its proxy reaches a gateway", resp.Request.URL.Host, resp.Status)
	}
	if len(begins) > 0 {
		text += ". It answered: " + string(begins)
	}
	if resp.StatusCode == http.StatusBadRequest && strings.Contains(string(begins), "HTTP request to an HTTPS server") {
		return &addressError{text: "the server at " + resp.Request.URL.Host + " uses TLS: write https://"}
	}
	return &foreignError{resp.StatusCode, text}
}

// answerOf reads the body of a response that is not an error.
func answerOf(resp *http.Response) ([]byte, error) {
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, brokenBody(resp, err)
	}
	return b, nil
}

// brokenBody returns the error of reading a body. It wraps ErrUnavailable unless the context of the request has ended.
func brokenBody(resp *http.Response, err error) error {
	err = fmt.Errorf("read answer of %s %s: %w", resp.Request.Method, resp.Request.URL.Path, err)
	if resp.Request.Context().Err() == nil {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err) // the connection broke
	}
	return err
}
