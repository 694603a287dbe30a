package arch

import (
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/notice"
)

// unlinked lists what a process, or a package on which others build theirs, must not link: packages of this
// module and of others, with all subpackages.
var unlinked = map[string][]string{
	"cmd/gateway":     slices.Concat(providers, adapters),
	".":               slices.Concat(apis, adapters, []string{"go.opentelemetry.io/otel/exporters", "github.com/alecthomas/kong"}),
	"internal/deploy": slices.Concat(providers, adapters, []string{"go.opentelemetry.io/otel/exporters", "github.com/alecthomas/kong"}),
	"internal/worker": slices.Concat(providers, adapters),
	"pkg/loop":        slices.Concat(providers, adapters),
	"pkg/agent":       slices.Concat(providers, adapters),
	"examples/demo":   slices.Concat(sdks, adapters, []string{"go.opentelemetry.io/otel/exporters", "google.golang.org/grpc", "github.com/alecthomas/kong"}),
}

var (
	sdks      = []string{"github.com/openai/", "github.com/anthropics/", "google.golang.org/genai", "github.com/aws/", "github.com/Azure/", module + "internal/credential/cloudlogin"}
	apis      = append([]string{module + "pkg/model/openai", module + "pkg/model/anthropic", module + "pkg/model/gemini"}, sdks...)
	providers = append([]string{module + "internal/model/scripted"}, apis...)
	adapters  = []string{
		module + "internal/tool/a2atool", module + "internal/tool/httptool", module + "internal/tool/mcptool", module + "internal/tool/natstool", module + "internal/hook/natshook",
		module + "pkg/standard", "github.com/a2aproject/", "github.com/modelcontextprotocol/", "github.com/nats-io/nats-server/",
	}
)

// Processes link only what they use: forbidden packages are on no import path.
func TestProcessesLinkWhatTheyUse(t *testing.T) {
	t.Parallel()
	imports := map[string][]string{}
	for _, f := range files(t, false) {
		pkg := module + path.Dir(f.name)
		for _, spec := range f.ast.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			imports[pkg] = append(imports[pkg], imp)
		}
	}
	for root, banned := range unlinked {
		if imports[module+root] == nil {
			t.Errorf("%s does not exist", root)
		}
		by := reached(imports, module+root)
		for _, imp := range slices.Sorted(maps.Keys(by)) {
			if root == "examples/demo" && within(imp, "github.com/nats-io/nats-server/v2") {
				continue // it is its own server
			}
			if slices.ContainsFunc(banned, func(b string) bool { return strings.HasPrefix(imp, b) }) {
				t.Errorf("%s links %s, through %s", root, imp, strings.TrimPrefix(by[imp], module))
			}
		}
	}
}

// reached returns the direct and indirect imports of root, each with one importer.
func reached(imports map[string][]string, root string) map[string]string {
	by := map[string]string{}
	for next := []string{root}; len(next) > 0; next = next[1:] {
		for _, imp := range imports[next[0]] {
			if _, seen := by[imp]; !seen {
				by[imp] = next[0]
				next = append(next, imp)
			}
		}
	}
	return by
}

// Each direct dependency has a row with its cost and benefit, and there are no other rows.
func TestDependenciesAreDocumented(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/reference/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	direct := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(string(mod), -1) {
		direct[m[1]] = true
	}
	rows := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9.]+\\.[a-z]+/[^`]+)` \\|").FindAllStringSubmatch(string(doc), -1) {
		rows[m[1]] = true
	}
	for d := range direct {
		if !rows[d] {
			t.Errorf("docs/reference/dependencies.md does not say what %s costs and gives", d)
		}
	}
	for r := range rows {
		if !direct[r] {
			t.Errorf("docs/reference/dependencies.md has a row of %s, which go.mod does not require directly", r)
		}
	}
}

// The notice that the binaries carry names each module that they link. make verify compares all of it.
func TestLinkedModulesHaveLicences(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}`, "./cmd/...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.Compact(slices.Sorted(strings.Lines(string(out))))
	if len(lines) < 20 {
		t.Fatalf("go list names %d modules", len(lines))
	}
	for _, line := range lines {
		if m := strings.TrimSpace(line); m != "" && !strings.Contains(notice.ThirdParty, "  "+m+": ") {
			t.Errorf("internal/notice/third-party.txt does not name %s: go run ./hack/licenses", m)
		}
	}
}
