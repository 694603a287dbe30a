package toolkit

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

// DefaultURL returns the NATS server of programs that name none: that of the variable
// TURNPIKE_NATS_URL, else that of a `turnpike dev` which runs in the working directory,
// else nats://127.0.0.1:4222.
func DefaultURL() string { return cmp.Or(os.Getenv("TURNPIKE_NATS_URL"), DevURL(), nats.DefaultURL) }

// DevURL returns the NATS server of a `turnpike dev` that runs in the working directory,
// which writes it to .turnpike/nats.url, or to nats.url in the directory that
// TURNPIKE_DATA_DIR names. It is empty if none is there, or none listens any more.
func DevURL() string {
	text, err := os.ReadFile(filepath.Join(cmp.Or(os.Getenv("TURNPIKE_DATA_DIR"), ".turnpike"), "nats.url"))
	if err != nil {
		return ""
	}
	address := strings.TrimSpace(string(text))
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	conn, err := net.DialTimeout("tcp", u.Host, dialTimeout)
	if err != nil {
		return ""
	}
	_ = conn.Close() // nothing was sent
	return address
}
