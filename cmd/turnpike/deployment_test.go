package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// Commands use the address that a turnpike dev in this directory has written if something listens there, and never that
// of another host: the file may have been planted, and requests carry tokens.
func TestRunningDev(t *testing.T) {
	all, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = all.Close() })
	_, port, _ := net.SplitHostPort(all.Addr().String())
	t.Chdir(t.TempDir())
	t.Setenv("TURNPIKE_DATA_DIR", "")
	if got := runningDev(); got != "" {
		t.Errorf("without a file the address is %q", got)
	}
	for _, dir := range []string{".turnpike", "data"} {
		if dir != ".turnpike" {
			t.Setenv("TURNPIKE_DATA_DIR", dir)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]string{
			"http://127.0.0.1:" + port + "\n":      "http://127.0.0.1:" + port,
			"https://127.0.0.1:" + port:            "https://127.0.0.1:" + port,
			"http://0.0.0.0:" + port + "\n":        "", // not a loopback address, although it reaches this host
			"http://localhost:" + port + "\n":      "", // whatever that name means here
			"http://127.0.0.1:" + port + "@x.test": "",
			"http://x.test@127.0.0.1:" + port:      "",
			"http://127.0.0.1:1\n":                 "", // nothing listens
			"127.0.0.1:" + port:                    "",
			"":                                     "",
		} {
			if err := os.WriteFile(filepath.Join(dir, addressFile), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := runningDev(); got != want {
				t.Errorf("%s has %q: the address is %q, want %q", dir, text, got, want)
			}
		}
	}
}
