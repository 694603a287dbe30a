package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/devserver"
)

// portFile is the file in the data directory to which dev writes the last port of its NATS server.
const portFile = "nats.port"

// startNATS starts the NATS server of dev. If NATSListen allows any port, it uses the port of the previous start, so
// that services reconnect. If another program uses that port now, lost is the port, and the server has another one.
func (c *devCmd) startNATS(password string) (server *devserver.Server, lost string, err error) {
	options := devserver.Options{Dir: c.DataDir, Listen: c.NATSListen, Password: password}
	host, port, err := net.SplitHostPort(c.NATSListen)
	if err != nil || port != "0" {
		server, err = devserver.Start(options)
		return server, "", err
	}
	path := filepath.Join(c.DataDir, portFile)
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	last := strings.TrimSpace(string(text))
	if n, err := strconv.ParseUint(last, 10, 16); err == nil && n > 0 {
		options.Listen = net.JoinHostPort(host, last)
		if !free(options.Listen) {
			options.Listen, lost = c.NATSListen, last
		}
	}
	if server, err = devserver.Start(options); err != nil {
		return nil, "", err
	}
	_, port, _ = net.SplitHostPort(strings.TrimPrefix(server.Address(), "nats://"))
	if err := writeSecret(path, port+"\n"); err != nil {
		server.Close()
		return nil, "", err
	}
	return server, lost, nil
}

func free(address string) bool {
	l, err := net.Listen("tcp", address)
	return err == nil && l.Close() == nil
}

// moved returns the message that services must be restarted, because the port of NATS
// changed.
func moved(lost string) string {
	if lost == "" {
		return ""
	}
	return fmt.Sprintf("  another program uses port %s, where NATS listened before: restart tools and hooks that are running\n", lost)
}
