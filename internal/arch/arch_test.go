// Package arch tests the structure of the module rather than its behavior.
package arch

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/turnpike-dev/turnpike/"

// floors lists the packages from the lowest floor up. A package may import its own subtree and any lower floor;
// packages on the same floor do not import each other. A package on no floor fails the test, so the table stays
// complete.
var floors = [][]string{
	{"internal/build", "internal/modelname", "internal/notice", "internal/sse", "internal/turnstile"},
	{"internal/credential", "internal/devaddr", "internal/guard", "internal/state/wire"},
	{"internal/hookin", "internal/keys", "internal/rule", "internal/schedule", "internal/secret", "internal/timelimit", "pkg/toolkit"},
	{"pkg/state"},
	{"internal/jsonschema", "internal/check", "internal/provenance", "internal/state/record", "internal/state/quota", "internal/state/logcache"},
	{"internal/memory", "internal/state/statetest", "pkg/budget", "pkg/hook", "pkg/model", "internal/span", "internal/transcript"},
	{"pkg/state/memstore", "pkg/state/natsstore", "pkg/state/redisstore"},
	{"internal/hook", "pkg/tool"},
	{"internal/tool", "internal/model"},
	{"pkg/agent"},
	{"pkg/loop"},
	{"pkg/bus", "pkg/api", "internal/loop"},
	{"internal/bus", "pkg/standard"},
	{"internal/access", "internal/dispatch", "internal/file", "internal/lookup", "internal/onestore", "internal/policy", "internal/restore", "internal/retention"},
	{"internal/engine/admission", "internal/engine/clock", "internal/engine/random", "internal/engine/series"},
	{"internal/engine/definition", "internal/engine/webhook"},
	{"internal/engine/upkeep"},
	{"internal/engine/effect"},
	{"internal/engine/turn"},
	{"internal/worker"},
	{"internal/service"},
	{"internal/gateway/exchange", "internal/streamin"},
	{"internal/gateway/limit", "internal/gateway/ui"},
	{"internal/gateway/intake", "internal/gateway/login", "internal/gateway/membership", "internal/gateway/resource", "internal/gateway/server", "internal/gateway/stream"},
	{"internal/inprocess"},
	{"internal/gateway"},
	{"internal/deploy"},
	{"."},
	{"turnpiketest"},
	{"internal/arch", "internal/devserver", "internal/mockmodel", "internal/permission", "internal/telemetry"},
	{"internal/app", "internal/doctor", "internal/eval"},
	{"internal/watch"},
	{"internal/demo"},
	{"internal/verify/invariant", "internal/verify/testbed"},
	{"internal/verify/rig"},
	{"internal/measure"},
	{"internal/verify/chaos", "internal/verify/clients", "internal/verify/containers", "internal/verify/degraded", "internal/verify/explore", "internal/verify/linear", "internal/verify/mutants", "internal/verify/rediskinds", "internal/verify/simulation"},
	{"internal/docs", "internal/e2e"},
	{"clients", "examples/demo", "examples", "hack"},
	{"cmd"},
}

// only restricts what the floors allow: of this module, a package here may import only the named subtrees.
var only = map[string][]string{"examples": {"examples", "pkg", ".", "turnpiketest"}}

// sealed lists what pure packages must not import, apart from their adapters in lower directories.
var sealed = []string{
	"net", "net/http", "os", "os/exec", "syscall", "log", "log/slog",
	"math/rand", "math/rand/v2", "crypto/rand",
}

var pure = []string{"pkg/state", "internal/state/record", "internal/state/quota", "pkg/loop", "pkg/budget"}

// vendors lists the packages in which the name of a vendor may appear.
var vendors = map[string][]string{
	"github.com/nats-io/":                  {"pkg/bus/natsbus", "internal/credential/natslogin", "internal/devaddr", "pkg/state/natsstore", "internal/hook/natshook", "internal/tool/natstool", "pkg/toolkit", "pkg/standard", "internal/deploy", ".", "internal", "cmd"},
	"github.com/a2aproject/":               {"internal/tool/a2atool"},
	"github.com/modelcontextprotocol/":     {"internal/tool/mcptool", "internal/verify/testbed"},
	"github.com/anishathalye/porcupine":    {"internal/verify/linear"},
	"github.com/redis/":                    {"pkg/state/redisstore", "internal", "cmd"},
	"github.com/openai/":                   {"pkg/model/openai"},
	"github.com/anthropics/":               {"pkg/model/anthropic"},
	"google.golang.org/genai":              {"pkg/model/gemini"},
	"github.com/aws/":                      {"internal/credential/cloudlogin", "pkg/model/anthropic"},
	"github.com/Azure/":                    {"internal/credential/cloudlogin"},
	"golang.org/x/oauth2/google":           {"internal/credential/cloudlogin", "pkg/model/anthropic"},
	"github.com/testcontainers/":           {"internal/verify/containers"},
	"github.com/chromedp/":                 {"internal/verify/browser"},
	"github.com/stretchr/testify":          {},
	"github.com/alecthomas/kong":           {"internal/app", "cmd"},
	"github.com/rs/zerolog":                {"internal/app", "cmd"}, // elsewhere the log is a *slog.Logger
	"github.com/cenkalti/backoff/v4":       {"cmd/turnpike", "pkg/bus/natsbus", "pkg/model", "internal/tool/natstool"},
	"go.opentelemetry.io/":                 {"internal/span", "internal/engine", "internal/worker", "internal/service", "internal/gateway", "internal/deploy", ".", "internal"},
	"github.com/prometheus/client_golang/": {"internal/engine", "internal/worker", "internal/service", "internal/gateway", "internal/deploy", ".", "internal", "cmd"},
}

// file is one Go file of the module.
type file struct {
	name string
	src  []byte
	ast  *ast.File
}

// files parses the module in this process instead of with "go list": the test cache only tracks files that the
// test itself opens.
func files(t *testing.T, tests bool) []file {
	t.Helper()
	root := os.DirFS("../..")
	var all []file
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if d != nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && name != "." {
				return fs.SkipDir
			}
			return err
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") != tests {
			return nil
		}
		src, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ParseComments)
		if err != nil {
			return err
		}
		all = append(all, file{name, src, f})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	for _, f := range files(t, false) {
		pkg := path.Dir(f.name)
		for _, spec := range f.ast.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			checkImport(t, pkg, imp)
		}
	}
}

func checkImport(t *testing.T, pkg, imp string) {
	t.Helper()
	here, home := locate(pkg)
	if here < 0 {
		t.Errorf("%s is on no floor; add it to the table", pkg)
	}
	if slices.Contains(pure, pkg) && slices.Contains(sealed, imp) {
		t.Errorf("%s imports %s; it must stay pure", pkg, imp)
	}
	for vendor, places := range vendors {
		if strings.HasPrefix(imp, vendor) && !slices.ContainsFunc(places, func(p string) bool { return within(pkg, p) }) {
			t.Errorf("%s imports %s; only %v may", pkg, imp, places)
		}
	}
	if dep, ours := inside(imp); ours {
		if there, house := locate(dep); there > here || there == here && house != home {
			t.Errorf("%s may not import %s", pkg, dep)
		}
		if allowed, narrow := only[home]; narrow && !slices.ContainsFunc(allowed, func(p string) bool { return within(dep, p) }) {
			t.Errorf("%s imports %s; of this module it may import %v", pkg, dep, allowed)
		}
	}
}

// inside returns the directory of a package of this module.
func inside(imp string) (dir string, ours bool) {
	if imp+"/" == module {
		return ".", true
	}
	return strings.CutPrefix(imp, module)
}

// The core, and the packages that gateways link from it, make no outgoing calls on their own: adapters are
// passed to a process. Indirect imports count as well.
func TestCoreLinksNoAdapter(t *testing.T) {
	t.Parallel()
	core := []string{"pkg/agent", "pkg/loop", "internal/worker", "internal/engine/turn", "internal/engine/effect", "internal/service", "internal/gateway", "internal/tool/toolspec", "internal/hook/hookspec"}
	adapters := []string{
		"internal/tool/httptool", "internal/tool/mcptool", "internal/tool/a2atool", "internal/tool/natstool", "internal/hook/natshook",
		"pkg/model/anthropic", "pkg/model/gemini", "pkg/model/openai", "internal/model/scripted",
	}
	sdks := []string{
		"github.com/nats-io/", "github.com/redis/", "github.com/a2aproject/", "github.com/modelcontextprotocol/",
		"github.com/openai/", "github.com/anthropics/", "google.golang.org/genai", "github.com/aws/", "github.com/Azure/",
	}
	imports := map[string][]string{}
	for _, f := range files(t, false) {
		for _, spec := range f.ast.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			imports[path.Dir(f.name)] = append(imports[path.Dir(f.name)], imp)
		}
	}
	for _, name := range append(slices.Clone(core), adapters...) {
		if len(imports[name]) == 0 {
			t.Errorf("the package %s does not exist", name)
		}
	}
	for _, pkg := range core {
		linked := map[string]bool{pkg: true}
		for queue := []string{pkg}; len(queue) > 0; queue = queue[1:] {
			for _, imp := range imports[queue[0]] {
				dep, ours := strings.CutPrefix(imp, module)
				if slices.Contains(adapters, dep) || slices.ContainsFunc(sdks, func(sdk string) bool { return strings.HasPrefix(imp, sdk) }) {
					t.Errorf("%s links %s, by way of %s", pkg, imp, queue[0])
				}
				if ours && !linked[dep] {
					linked[dep] = true
					queue = append(queue, dep)
				}
			}
		}
	}
}

// within reports whether pkg is root or lies below it.
func within(pkg, root string) bool {
	return pkg == root || strings.HasPrefix(pkg, root+"/")
}

// locate returns the floor of a package and the longest name under which it is listed there, or -1.
func locate(pkg string) (floor int, house string) {
	floor = -1
	for i, names := range floors {
		for _, name := range names {
			if within(pkg, name) && len(name) > len(house) {
				floor, house = i, name
			}
		}
	}
	return floor, house
}

// A caller's rights do not depend on the transport of its request: the package that decides imports no
// transport.
func TestServiceKnowsNoTransport(t *testing.T) {
	t.Parallel()
	found := false
	for _, f := range files(t, false) {
		if path.Dir(f.name) != "internal/service" {
			continue
		}
		found = true
		for _, spec := range f.ast.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if imp == "net" || imp == "net/http" || strings.HasPrefix(imp, "github.com/nats-io/") {
				t.Errorf("%s imports %s", f.name, imp)
			}
		}
	}
	if !found {
		t.Error("the package internal/service does not exist")
	}
}

// Pure packages, including the loops, have no clock: the worker's events carry the time (D9).
func TestPurePackagesHaveNoClock(t *testing.T) {
	t.Parallel()
	clock := []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"}
	for _, f := range files(t, false) {
		if !slices.Contains(pure, path.Dir(f.name)) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, sel.Sel.Name) {
				t.Errorf("%s uses time.%s; take the time from events", f.name, sel.Sel.Name)
			}
			return true
		})
	}
}

// Only internal/dispatch creates and publishes turn messages. The root package, turnpiketest and the
// verification packages wrap buses, and publish what they are given.
func TestTurnsAreMadeInOnePlace(t *testing.T) {
	t.Parallel()
	found := 0
	for _, f := range files(t, false) {
		home := path.Dir(f.name)
		if within(home, "internal/bus/bustest") {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			what := ""
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Name.Name == "PublishTurn" {
					return false // a wrapper of a bus
				}
			case *ast.CompositeLit:
				if named(n.Type, "bus", "Turn") && len(n.Elts) > 0 {
					what = "makes a bus.Turn"
				}
			case *ast.CallExpr:
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "PublishTurn" && !within(home, "internal/verify") && !within(home, "turnpiketest") {
					what = "publishes a bus.Turn"
				}
			}
			if what == "" {
				return true
			}
			if found++; home != "internal/dispatch" {
				t.Errorf("%s %s; internal/dispatch does", f.name, what)
			}
			return true
		})
	}
	if found != 2 {
		t.Errorf("turns are created or published at %d places, want one of each", found)
	}
}

// named reports whether an expression is pkg.name.
func named(e ast.Expr, pkg, name string) bool {
	sel, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	return ok && x.Name == pkg && sel.Sel.Name == name
}

func TestEveryPackageHasOneComment(t *testing.T) {
	t.Parallel()
	comments := map[string]int{}
	for _, f := range files(t, false) {
		comments[path.Dir(f.name)] += 0
		if f.ast.Doc != nil {
			comments[path.Dir(f.name)]++
		}
	}
	for pkg, n := range comments {
		if n != 1 {
			t.Errorf("%s has %d package comments, want 1", pkg, n)
		}
	}
}

func TestFilesAndNames(t *testing.T) {
	t.Parallel()
	banned := []string{"util", "utils", "common", "helpers", "types", "manager"}
	for _, f := range append(files(t, false), files(t, true)...) {
		if n := bytes.Count(f.src, []byte("\n")); n > 600 {
			t.Errorf("%s has %d lines, at most 600 are allowed", f.name, n)
		}
		if slices.Contains(banned, f.ast.Name.Name) {
			t.Errorf("%s: the package name %s has no meaning", f.name, f.ast.Name.Name)
		}
	}
}

// Every invariant is named by a test, and docs/reference/invariants.md names only existing tests and suite
// cases.
func TestInvariantsAreTested(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/reference/invariants.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| (I\d+) \|.*\| (.*) \|$`).FindAllStringSubmatch(string(doc), -1)
	if len(rows) < 12 {
		t.Fatalf("docs/reference/invariants.md lists %d invariants, want at least 12", len(rows))
	}
	var b bytes.Buffer
	for _, f := range append(files(t, true), files(t, false)...) {
		if strings.HasSuffix(f.name, "_test.go") || within(f.name, "internal/state/statetest") || within(f.name, "internal/bus/bustest") {
			b.Write(f.src)
		}
	}
	tests := b.String()
	name := regexp.MustCompile(`\b[A-Z][A-Za-z]{4,}\b`)
	for _, row := range rows {
		if !regexp.MustCompile(`\b` + row[1] + `\b`).MatchString(tests) {
			t.Errorf("no test names invariant %s", row[1])
		}
		for _, n := range name.FindAllString(row[2], -1) {
			if !strings.Contains(tests, "func "+n+"(") && !strings.Contains(tests, `"`+n+`"`) {
				t.Errorf("docs/reference/invariants.md: %s names the test %s, which does not exist", row[1], n)
			}
		}
	}
}

// Every behavior is named by a test or a scenario.
func TestBehavioursAreTested(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/reference/behaviours.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| ([DLFAK]\d+) \|`).FindAllStringSubmatch(string(doc), -1)
	if want := 12 + 9 + 6 + 18 + 8; len(rows) != want {
		t.Fatalf("docs/reference/behaviours.md lists %d behaviours, want %d", len(rows), want)
	}
	var b bytes.Buffer
	err = fs.WalkDir(os.DirFS("../.."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if strings.HasSuffix(name, "_test.go") || within(path.Dir(name), "pkg/loop/testdata") || path.Dir(name) == "internal/e2e/testdata/seeds" {
			src, err := os.ReadFile("../../" + name)
			b.Write(src)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if !regexp.MustCompile(`\b` + row[1] + `\b`).Match(b.Bytes()) {
			t.Errorf("no test and no scenario names %s", row[1])
		}
	}
}

// The documented event types are exactly those of the code.
func TestEventsAreDocumented(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("../../pkg/state/log.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/reference/events.md")
	if err != nil {
		t.Fatal(err)
	}
	var want, have []string
	for _, m := range regexp.MustCompile(`EntryType = "([a-z.]+)"`).FindAllStringSubmatch(string(src), -1) {
		want = append(want, m[1])
	}
	for _, row := range regexp.MustCompile("(?m)^\\| (`.*?`) \\|").FindAllStringSubmatch(string(doc), -1) {
		for _, m := range regexp.MustCompile("`([a-z.]+)`").FindAllStringSubmatch(row[1], -1) {
			have = append(have, m[1])
		}
	}
	slices.Sort(want)
	slices.Sort(have)
	if len(want) == 0 || !slices.Equal(want, have) {
		t.Errorf("docs/reference/events.md has %v, the code %v", have, want)
	}
}
