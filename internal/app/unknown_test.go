package app

import (
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

// A misspelled setting is reported with the name that was probably meant.
func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	got, err := UnknownVariables([]string{
		"TURNPIKE_SLOT=5", "TURNPIKE_NATS_ULR=x", "TURNPIKE_SOMETHING_ELSE=1", "TURNPIKE_DRAIM=",
		"TURNPIKE_SLOTS=5", "TURNPIKE_DRAIN=1s", "TURNPIKE_URL=x", "TURNPIKE_SECRET_X=y", "TURNPIKE_TEST_REDIS_URL=z", "PATH=/bin", "DEBUG=1",
		"TURNPIKE_PORT=tcp://10.0.0.1:7070", "TURNPIKE_SERVICE_HOST=10.0.0.1", "TURNPIKE_GATEWAY_SERVICE_PORT_HTTP=7070", "TURNPIKE_GATEWAY_PORT_7070_TCP_ADDR=10.0.0.1",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"TURNPIKE_SLOT": "TURNPIKE_SLOTS", "TURNPIKE_NATS_ULR": "TURNPIKE_NATS_URL", "TURNPIKE_SOMETHING_ELSE": "", "TURNPIKE_DRAIM": "TURNPIKE_DRAIN"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("unknown variables:\n%s", diff)
	}
	findings := VariableFindings([]string{"TURNPIKE_REDISURL=x", "TURNPIKE_SLOTS=5"})
	if len(findings) != 1 || findings[0].OK || findings[0].Name != "variable: TURNPIKE_REDISURL" || !strings.Contains(findings[0].Remedy, "did you mean TURNPIKE_REDIS_URL?") {
		t.Errorf("findings: %+v", findings)
	}
}

// A worker with no slots is refused: it would take no turns.
func TestSlots(t *testing.T) {
	t.Parallel()
	for slots, ok := range map[int]bool{-4: false, 0: false, 1: true} {
		var cfg WorkerConfig
		k, err := kong.New(&cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Parse([]string{"--slots=" + strconv.Itoa(slots)}); err != nil {
			t.Fatal(err)
		}
		if _, err := cfg.Worker(); (err == nil) != ok {
			t.Errorf("%d slots: %v", slots, err)
		}
	}
}

// An unresponsive Redis is reported by its caller, and not by its client library as well.
func TestQuietRedis(t *testing.T) {
	var out lines
	QuietRedis(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: 3, MinIdleConns: 2})
	defer c.Close() //nolint:errcheck // it never connected
	if err := c.Ping(t.Context()).Err(); err == nil {
		t.Fatal("a server without a listener answered")
	}
	out.Lock()
	defer out.Unlock()
	if len(out.all) == 0 || slices.ContainsFunc(out.all, func(line string) bool { return !strings.Contains(line, `"level":"DEBUG"`) }) {
		t.Errorf("the client logs %q, want only lines of level debug", out.all)
	}
}

// lines is a log to which goroutines of the client write.
type lines struct {
	sync.Mutex
	all []string
}

func (l *lines) Write(line []byte) (int, error) {
	l.Lock()
	defer l.Unlock()
	l.all = append(l.all, string(line))
	return len(line), nil
}
