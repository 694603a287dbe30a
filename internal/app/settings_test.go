package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/turnpike-dev/turnpike/internal/credential"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Flags override variables, variables the file, and the file the defaults.
func TestSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.yaml")
	text := "nats-url: nats://file:4222\nredis_url: redis://file\nprefix: file\nslots: 7\nlease: 3s\nevent-feed: on\nhttp-allow: [10.0.0.1:80, 10.1.0.0/16]\naddr: 127.0.0.1:1\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TURNPIKE_NATS_URL", "nats://variable:4222")
	t.Setenv("TURNPIKE_PREFIX", "variable")
	f, err := readFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Config
		WorkerConfig
	}
	k, err := kong.New(&got, kong.Resolvers(f))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Parse([]string{"--prefix", "flag"}); err != nil {
		t.Fatal(err)
	}
	if got.NATSURL != "nats://variable:4222" || got.RedisURL != "redis://file" || got.Prefix != "flag" || got.Replicas != 1 {
		t.Errorf("got %+v", got.Config)
	}
	if !bool(got.Feed.EventFeed) || !got.Deployment().EventFeed {
		t.Error("the event feed is off")
	}
	if got.Slots != 7 || got.Lease != 3*time.Second || strings.Join(got.HTTPAllow, " ") != "10.0.0.1:80 10.1.0.0/16" {
		t.Errorf("got %d slots, lease %s, allow %q", got.Slots, got.Lease, got.HTTPAllow)
	}
}

// A variable that is set, even to nothing, overrides the settings file; a key of the file may have _ in place of -.
func TestEmptyVariableOverridesFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "turnpike.yaml")
	if err := os.WriteFile(path, []byte("redis_url: redis://file\nnats-domain: file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TURNPIKE_REDIS_URL", "")
	f, err := readFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got Config
	k, err := kong.New(&got, kong.Resolvers(f))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Parse(nil); err != nil || got.RedisURL != "" || got.Domain != "file" {
		t.Errorf("Redis at %q, domain %q, %v; want none, and the domain of the file", got.RedisURL, got.Domain, err)
	}
}

func TestSettingsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, c := range map[string]struct{ text, want string }{
		"unknown key": {"nats-ulr: nats://x\n", `unknown key "nats-ulr"`},
		"help":        {"help: true\n", `unknown key "help"`},
		"hidden flag": {"mock-responses: '[]'\n", `unknown key "mock-responses"`},
		"no map":      {"- a\n", "read settings"},
		"key twice":   {"prefix: a\nprefix: b\n", "prefix"},
		"two forms":   {"nats-url: a\nnats_url: b\n", "nats-url occurs twice"},
		"wrong type":  {"slots: many\n", "slots"},
		"no switch":   {"event-feed: maybe\n", "maybe is not valid: write on or off"},
		"no file":     {"", "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
			if c.text != "" {
				if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			f, err := readFile(path)
			if err == nil {
				var into struct {
					Config
					WorkerConfig
				}
				k, kerr := kong.New(&into, kong.Resolvers(f))
				if kerr != nil {
					t.Fatal(kerr)
				}
				_, err = k.Parse(nil)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got error %v, want one with %q", err, c.want)
			}
		})
	}
}

// A file of prices adds to the built-in prices and overrides them one by one. A mistake names the variable or the file.
func TestPricesAreAdded(t *testing.T) {
	t.Parallel()
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const own, overridden, builtIn = "my-model", "claude-haiku-4-5", "gpt-5"
	before := model.DefaultPrices()
	got, err := loadPrices(write("prices.yaml", own+": {input: 1, output: 2}\n"+overridden+": {input: 77, output: 78}\n"))
	if err != nil {
		t.Fatal(err)
	}
	million := state.Usage{InputTokens: 1_000_000}
	cost := func(prices model.Prices, name string) state.MicroUSD {
		c := prices.Cost(name, million)
		if c == nil {
			t.Fatalf("%s has no price", name)
		}
		return *c
	}
	if cost(got, own) != 1_000_000 || cost(got, overridden) != 77_000_000 || cost(got, builtIn) != cost(before, builtIn) || len(got) != len(before)+1 {
		t.Errorf("the prices of a million tokens are %d, %d and %d, in a list of %d", cost(got, own), cost(got, overridden), cost(got, builtIn), len(got))
	}
	if cost(model.DefaultPrices(), overridden) == 77_000_000 {
		t.Error("the file has changed the built-in prices")
	}
	if none, err := loadPrices(""); err != nil || len(none) != len(before) {
		t.Errorf("without a file: %d prices, %v", len(none), err)
	}
	for name, load := range map[string]func(string) error{
		"TURNPIKE_PRICES":      func(path string) error { _, err := loadPrices(path); return err },
		"TURNPIKE_RATE_LIMITS": func(path string) error { _, err := loadRateLimits(path); return err },
	} {
		if err := load(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s names no file: %v", name, err)
		}
		path := write("bad.yaml", "- a\n")
		if err := load(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s names a file that is not valid: %v", name, err)
		}
	}
	if none, err := loadRateLimits(""); err != nil || len(none) > 0 {
		t.Errorf("without a file: the rate limits %v, %v", none, err)
	}
}

// The event feed is off unless a flag or a variable enables it.
func TestEventFeedSetting(t *testing.T) {
	for _, c := range []struct {
		env  string
		args []string
		want bool
	}{
		{"", nil, false},
		{"on", nil, true},
		{"off", nil, false},
		{"off", []string{"--event-feed=on"}, true},
		{"on", []string{"--event-feed", "off"}, false},
	} {
		if c.env != "" {
			t.Setenv("TURNPIKE_EVENT_FEED", c.env)
		}
		var got Config
		k, err := kong.New(&got)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Parse(c.args); err != nil || got.Deployment().EventFeed != c.want {
			t.Errorf("%q %q: %v, %v; want %v", c.env, c.args, got.Feed.EventFeed, err, c.want)
		}
	}
}

// Credentials for NATS and Redis come from variables, or from files named by variables.
func TestLoginSettings(t *testing.T) {
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range []string{"NATS_CREDS", "NATS_NKEY", "NATS_USER", "NATS_PASSWORD", "NATS_CA", "NATS_CERT", "NATS_KEY",
		"REDIS_USER", "REDIS_PASSWORD", "REDIS_SENTINEL_USER", "REDIS_SENTINEL_PASSWORD", "REDIS_CA", "REDIS_CERT", "REDIS_KEY"} {
		names = append(names, "TURNPIKE_"+n)
	}
	for _, form := range []string{"", "_FILE"} {
		want := "as it is"
		for _, name := range names {
			if form == "" {
				t.Setenv(name, want)
			} else {
				t.Setenv(name, "")
				t.Setenv(name+form, path)
				want = "from a file"
			}
		}
		var got Config
		k, err := kong.New(&got)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Parse(nil); err != nil {
			t.Fatal(err)
		}
		d := got.Deployment()
		n, r := d.NATSLogin, d.RedisLogin
		values := []credential.Value{n.Creds, n.NKey, n.User, n.Password, n.TLS.CA, n.TLS.Cert, n.TLS.Key,
			credential.Value(r.User), credential.Value(r.Password), credential.Value(r.SentinelUser), credential.Value(r.SentinelPassword),
			credential.Value(r.TLS.CA), credential.Value(r.TLS.Cert), credential.Value(r.TLS.Key)}
		for i, v := range values {
			if text, err := v.Read(); err != nil || text != want || v.Name != names[i] {
				t.Errorf("%s%s is %q, %v, by the name %s; want %q", names[i], form, text, err, v.Name, want)
			}
		}
	}
}

func TestHelpIsAskedInWords(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{"help": "--help", "help run": "run --help", "run help": "run help", "ps": "ps"} {
		if got := strings.Join(asked(strings.Fields(said)), " "); got != want {
			t.Errorf("%s: got %q, want %q", said, got, want)
		}
	}
}

func TestMistakesNameCommands(t *testing.T) {
	t.Parallel()
	var c struct {
		Run struct {
			Agent string `arg:""`
		} `cmd:""`
	}
	k, err := kong.New(&c, kong.Name("turnpike"))
	if err != nil {
		t.Fatal(err)
	}
	for said, want := range map[string]string{
		"rnu":     "turnpike: there is no command rnu, did you mean \"run\"?\nrun turnpike --help for the usage",
		"run a b": "turnpike: unexpected argument b\nrun turnpike run --help for the usage",
	} {
		_, err := k.Parse(strings.Fields(said))
		wrong, ok := errors.AsType[*kong.ParseError](err)
		if !ok {
			t.Fatalf("%s: %v", said, err)
		}
		if got := mistake("turnpike", wrong.Context, err.Error()); got != want {
			t.Errorf("%s: got %q, want %q", said, got, want)
		}
	}
}

// A command that fails because of a mistake in its usage has another exit code than others, and points to the help.
func TestFail(t *testing.T) {
	t.Parallel()
	var c struct {
		Run struct{} `cmd:""`
	}
	k, err := kong.New(&c, kong.Name("turnpike"))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := k.Parse([]string{"run"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		err  error
		code int
		want string
	}{
		{errors.New("x"), 1, "turnpike: words\n"},
		{fmt.Errorf("run: %w", Usagef("x")), 80, "turnpike: words\nrun turnpike run --help for the usage\n"},
	} {
		var out strings.Builder
		if code := Fail(&out, parsed, tt.err, "words"); code != tt.code || out.String() != tt.want {
			t.Errorf("%v: code %d, %q; want %d, %q", tt.err, code, &out, tt.code, tt.want)
		}
	}
}
