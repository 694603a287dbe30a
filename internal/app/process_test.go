package app

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/turnpike-dev/turnpike/internal/credential"
	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// keyLines receives the lines of a log about the keys of the bus.
type keyLines chan string

func (l keyLines) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "bus keys") {
		l <- string(line)
	}
	return len(line), nil
}

// The keys of the bus are read at each signal, also after a file that was not valid, until the process ends.
func TestBusKeysAreReadAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "bus.keys")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Repeat("a", 43))
	lines := make(keyLines, 1)
	d, err := deploy.Open(t.Context(), deploy.Config{
		NATSURL: testbed.NATSWith(t, func(*server.Options) {}).ClientURL(), Store: memstore.New(memstore.Config{}), BusKeys: credential.Value{File: path}, Logger: slog.New(slog.NewTextHandler(lines, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ctx, stop := context.WithCancel(t.Context())
	reload, ended := make(chan os.Signal), make(chan struct{})
	go func() {
		defer close(ended)
		reloadKeys(ctx, d, path, reload)
	}()
	for _, c := range []struct{ text, want string }{
		{"short", "new bus keys not loaded"}, {strings.Repeat("b", 43), "bus keys loaded"}, {"unsigned", "new bus keys not loaded"}, {strings.Repeat("c", 43), "bus keys loaded"},
	} {
		write(c.text)
		select {
		case reload <- syscall.SIGHUP:
		case <-ended:
			t.Fatal("no signal is read after a file that was not valid")
		}
		if line := <-lines; !strings.Contains(line, c.want) || !strings.Contains(line, path) {
			t.Errorf("the keys %q: %s, want %q", c.text, line, c.want)
		}
	}
	stop()
	<-ended
}
