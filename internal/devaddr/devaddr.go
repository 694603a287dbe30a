// Package devaddr finds the NATS server of a `turnpike dev` that runs in the working directory.
package devaddr

import (
	"cmp"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// dialTimeout bounds the look whether a `turnpike dev` still runs, on this machine.
const dialTimeout = time.Second

// Server returns named, the URL of a NATS server. If named is empty, it returns the URL from Dev or, if there is none,
// nats://127.0.0.1:4222. If named has no credentials, and the host and port that a `turnpike dev` has written in the
// working directory, Server returns that URL, which has the credentials.
func Server(named string) string {
	if named == "" {
		return cmp.Or(Dev(), nats.DefaultURL)
	}
	u, err := url.Parse(named)
	if err != nil || u.User != nil {
		return named
	}
	if dev := writtenURL(); dev != nil && dev.Host == u.Host {
		return dev.String()
	}
	return named
}

// Dev returns the URL of the NATS server of a `turnpike dev` that runs in the working directory. The `turnpike dev`
// writes it to .turnpike/nats.url, or to nats.url in the directory that TURNPIKE_DATA_DIR names. Dev returns "" if
// there is no such file, or if no server listens at the URL any more.
func Dev() string {
	u := writtenURL()
	if u == nil {
		return ""
	}
	conn, err := net.DialTimeout("tcp", u.Host, dialTimeout)
	if err != nil {
		return ""
	}
	_ = conn.Close() // nothing was sent
	return u.String()
}

// writtenURL returns what a `turnpike dev` has written, or nil.
func writtenURL() *url.URL {
	text, err := os.ReadFile(filepath.Join(cmp.Or(os.Getenv("TURNPIKE_DATA_DIR"), ".turnpike"), "nats.url"))
	if err != nil {
		return nil
	}
	u, err := url.Parse(strings.TrimSpace(string(text)))
	if err != nil {
		return nil
	}
	return u
}
