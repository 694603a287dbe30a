package devserver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/devserver"
)

// envDir makes the test binary hold this directory and publish until it is killed.
const envDir = "TURNPIKE_TEST_HOLD_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envDir); dir != "" {
		if err := hold(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// hold prints the number of each acknowledged message. It drops its reference to the server on purpose: the
// lock must not depend on it.
func hold(dir string) error {
	server, err := devserver.Start(devserver.Options{Dir: dir})
	if err != nil {
		return err
	}
	nc, err := server.Conn("holder")
	if err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	// The timeout is long enough to be killed, and short enough not to outlive a failed test.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		return err
	}
	for {
		runtime.GC()
		ack, err := js.Publish(ctx, "s", []byte("x"))
		if err != nil {
			return err
		}
		fmt.Println(ack.Sequence)
	}
}

// Acknowledged messages are there after kill -9, and the directory is free (I1).
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envDir+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var acked uint64
	killed := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, err := fmt.Sscan(lines.Text(), &acked); err != nil {
			t.Fatalf("helper says %q", lines.Text())
		}
		if acked < 500 || killed {
			continue
		}
		second, err := devserver.Start(devserver.Options{Dir: dir})
		if err == nil {
			second.Close()
		}
		if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), fmt.Sprint("process ", cmd.Process.Pid)) {
			t.Errorf("Start = %v, want the directory and the owner", err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		killed = true // messages in the pipe were acknowledged as well
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !killed || !errors.As(err, &exit) {
		t.Fatalf("the helper ended by itself: %v", err)
	}
	server, err := devserver.Start(devserver.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	nc, err := server.Conn("test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	if st := s.CachedInfo().State; st.FirstSeq != 1 || st.LastSeq < acked || st.Msgs != st.LastSeq {
		t.Errorf("stream has %d to %d, %d messages; %d were acknowledged", st.FirstSeq, st.LastSeq, st.Msgs, acked)
	}
}

// A port in use is reported at once.
func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	s, err := devserver.Start(devserver.Options{Dir: dir, Listen: l.Addr().String()})
	if err == nil {
		s.Close()
		t.Fatal("Start succeeds")
	}
	if !strings.Contains(err.Error(), "in use") {
		t.Errorf("Start = %v, want the reason", err)
	}
	again, err := devserver.Start(devserver.Options{Dir: dir}) // the lock was released
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestDirectoryIsPrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s, err := devserver.Start(devserver.Options{Dir: dir, SyncAlways: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o700 {
		t.Errorf("mode of the data directory is %o", mode)
	}
	if s, err := devserver.Start(devserver.Options{}); err == nil {
		s.Close()
		t.Error("Start without a directory succeeds")
	}
}
