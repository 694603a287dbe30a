package devserver_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/devserver"
)

// Only one server at a time can use a directory: JetStream does not detect a second one.
func TestDirectoryIsLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := devserver.Start(devserver.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if first.URL() == "" {
		t.Error("no URL")
	}
	_, err = devserver.Start(devserver.Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
		t.Fatalf("second Start = %v, want the directory and the owner", err)
	}
	first.Close()
	again, err := devserver.Start(devserver.Options{Dir: dir, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestBadAddress(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"nonsense", "127.0.0.1:x"} {
		if s, err := devserver.Start(devserver.Options{Dir: t.TempDir(), Listen: addr}); err == nil {
			s.Close()
			t.Errorf("Start at %q succeeds", addr)
		}
	}
}
