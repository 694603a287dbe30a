package confine

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Programs run confined by the first method that works, and otherwise not at all.
func TestDecision(t *testing.T) {
	t.Parallel()
	no := errors.New("operation not permitted")
	for name, test := range map[string]struct {
		mode   string
		broken []string
		want   string
		tried  []string
	}{
		"both":                {Auto, nil, Namespaces, []string{Namespaces}},
		"no namespaces":       {Auto, []string{Namespaces}, Landlock, []string{Namespaces, Landlock}},
		"neither":             {Auto, []string{Namespaces, Landlock}, "", []string{Namespaces, Landlock}},
		"namespaces are told": {Namespaces, []string{Namespaces}, "", []string{Namespaces}},
		"Landlock is told":    {Landlock, nil, Landlock, []string{Landlock}},
		"off":                 {Off, []string{Namespaces, Landlock}, Off, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := New(Config{Mode: test.mode, Network: []string{"npx"}})
			if err != nil {
				t.Fatal(err)
			}
			var tried []string
			c.why = "no cgroup is delegated"
			c.try = func(m string) error {
				tried = append(tried, m)
				for _, b := range test.broken {
					if b == m {
						return no
					}
				}
				return nil
			}
			for range 2 { // the method is determined once
				r := c.Report()
				if r.Mode != test.want || (r.Err != nil) != (test.want == "") {
					t.Errorf("report = %+v", r)
				}
				for _, says := range map[string][]string{
					"":         {"the worker does not start them", "operation not permitted", "TURNPIKE_MCP_CONFINEMENT=off"},
					Off:        {"not confined"},
					Namespaces: {"namespaces, no network but for npx, 512 MiB of memory, measured every 200ms (no cgroup is delegated)"},
					Landlock:   {"landlock, no network but for npx"},
				}[test.want] {
					if !strings.Contains(r.String(), says) {
						t.Errorf("it logs %q, not %q", r, says)
					}
				}
				if test.want == "" && !errors.Is(r.Err, ErrRefused) {
					t.Errorf("error = %v", r.Err)
				}
			}
			if diff := cmp.Diff(test.tried, tried); diff != "" {
				t.Errorf("tried:\n%s", diff)
			}
		})
	}
}

// Withheld paths stay withheld, whatever other settings name them; the root is never exposed.
func TestTidy(t *testing.T) {
	t.Parallel()
	at := func(a access, path string) entry { return entry{path, path, a} }
	for name, test := range map[string]struct{ given, want []entry }{
		"below":              {[]entry{at(readOnly, "/a/b"), at(readOnly, "/a")}, []entry{at(readOnly, "/a")}},
		"a sibling":          {[]entry{at(readOnly, "/a"), at(readOnly, "/ab")}, []entry{at(readOnly, "/a"), at(readOnly, "/ab")}},
		"written below":      {[]entry{at(readWrite, "/a/b"), at(readOnly, "/a")}, []entry{at(readOnly, "/a"), at(readWrite, "/a/b")}},
		"read below":         {[]entry{at(readWrite, "/a"), at(readOnly, "/a/b")}, []entry{at(readWrite, "/a")}},
		"withheld below":     {[]entry{at(withheld, "/a/b"), at(readOnly, "/a")}, []entry{at(readOnly, "/a"), at(withheld, "/a/b")}},
		"withheld and shown": {[]entry{at(withheld, "/a"), at(readWrite, "/a")}, []entry{}},
		"shown in withheld":  {[]entry{at(readOnly, "/a"), at(withheld, "/a/b"), at(readWrite, "/a/b/c")}, []entry{at(readOnly, "/a"), at(withheld, "/a/b"), at(readWrite, "/a/b/c")}},
		"the root":           {[]entry{at(readOnly, "/"), at(readOnly, "/a")}, []entry{at(readOnly, "/a")}},
		"over the program":   {[]entry{at(temporary, "/tmp"), at(readOnly, "/tmp/x")}, []entry{at(temporary, "/tmp"), at(readOnly, "/tmp/x")}},
	} {
		if diff := cmp.Diff(test.want, tidy(test.given)); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]Config{
		"TURNPIKE_MCP_CONFINEMENT": {Mode: "sandbox"},
		"TURNPIKE_MCP_MEMORY_MIB":  {Memory: 1 << 20},
		"TURNPIKE_MCP_READ":        {Read: []string{"/is/not/there"}},
		"TURNPIKE_MCP_WRITE":       {Write: []string{"/is/not/there"}},
		"TURNPIKE_MCP_HOME":        {Home: "/dev/null/home"},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v) = %v, want %s in it", cfg, err, want)
		}
	}
}

// A command gets the variables that it needs, unless it sets them itself or there is no value.
func TestEnviron(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		env       []string
		home, tmp string
		want      []string
	}{
		{[]string{"A=1"}, "/home/x", "/tmp", []string{"A=1", "HOME=/home/x", "TMPDIR=/tmp"}},
		{[]string{"HOME=/own", "TMPDIR="}, "/home/x", "/tmp", []string{"HOME=/own", "TMPDIR="}},
		{[]string{"HOMES=/own"}, "", "", []string{"HOMES=/own"}},
		{[]string{"HOMES=/own"}, "/home/x", "", []string{"HOMES=/own", "HOME=/home/x"}},
	} {
		cmd := &exec.Cmd{Env: slices.Clone(test.env)}
		environ(cmd, test.home, test.tmp)
		slices.Sort(cmd.Env)
		slices.Sort(test.want)
		if diff := cmp.Diff(test.want, cmd.Env); diff != "" {
			t.Errorf("%v with HOME %q and TMPDIR %q:\n%s", test.env, test.home, test.tmp, diff)
		}
	}
}
