package arch

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// word is a retired word with its replacement: a row of docs/reference/glossary.md. Many are plain English
// elsewhere, so two patterns give the exceptions: one for names, as words joined by _, and one for prose.
type word struct {
	retired, inUse string
	name, prose    string
}

var words = []word{
	{"kept turn, keep (of a claim)", "eager claim", `kept`, `kept turns?|keep(s|ing)? (a|the|its) claims?`},
	{"vouched, proof, announced (as a count)", "published offset", `vouch\w*|proofs?|announced`, `vouch\w*`},
	{"tell, told, telling, announce", "publish, flush", `tell|tells|told|telling|announc\w*`, `tells?|told|telling|announc\w*`},
	{"mourn", "run failure hooks", `mourn\w*`, `mourn\w*`},
	{"hand back, decline", "release, reject", `hand(s|ed)?_back|declin\w*`, `hand(s|ed|ing)? back|declin\w*`},
	{"suspects, put off", "quarantine, defer", `suspects?|put_off`, `suspects?|put(s|ting)? off`},
	{"crowd, crowded (tenant)", "noisy tenant; fair queuing", `crowd\w*`, `crowd\w*`},
	{"crowded (prompt)", "context window full", `crowded`, `crowded`},
	{"settle, help", "finalize, republish", `settl\w*|help(s|ed)?`, `settl\w*`},
	{"joint, together (scripts)", "batcher, script pipelining", `joint\w*|together`, `joint(ly)?|travels? together`},
	{"pass, place (rate limits)", "reservation", `pass|places?`, `places? in the queue`},
	{"room (of the collector)", "GC headroom; elsewhere capacity, buffer, limit", `rooms?`, `room`},
	{"hiding", "redaction", `hid(e|es|er|den|ing)`, `hid(e|es|den|ing)`},
	{"site", "deployment", `sites?`, `sites?`},
	{"grace (of a due run)", "redelivery delay", `grace`, `grace`},
	{"beats, presence", "heartbeats, membership", `beats?|presence`, `beats?|presence`},
	{"second writing", "reimplementation", `second_writing`, `second writing`},
	{"under way", "in flight", `under_way`, `under way`},
	{"entrance (metric label)", "source", `entrances?`, `entrances?`},
	{"away, silent, gone (of a worker)", "unreachable, dead", `away|silent|gone`, `silent|(workers?|gateways?|servers?) (that )?(is|are|was|were) (away|gone)`},
	{"held (a batch's run)", "pending in batch", `held`, `held (runs?|by (a|its|the) batch)`},
	{"loopdata", "loop state", `loop_?data`, `loop ?data`},
}

// exempt are names with another meaning, or names that others depend on.
var exempt = map[string]string{
	"ShutdownGrace": "the common word for it, and TURNPIKE_SHUTDOWN_GRACE",
	"TellGuidance":  "tell_guidance in definitions of agents",
}

func all(part func(word) string, format string) *regexp.Regexp {
	var list []string
	for _, w := range words {
		list = append(list, part(w))
	}
	return regexp.MustCompile(strings.Replace(format, "WORDS", strings.Join(list, "|"), 1))
}

var (
	retiredName  = all(func(w word) string { return w.name }, `(^|_)(WORDS)(_|$)`)
	retiredProse = all(func(w word) string { return w.prose }, `(?i)\b(WORDS)\b`)
	camel        = regexp.MustCompile(`([a-z0-9])([A-Z])`)
)

// speaksOf returns the retired word in a name, or "".
func speaksOf(name string) string {
	if exempt[name] != "" {
		return ""
	}
	return strings.Trim(retiredName.FindString(strings.ToLower(camel.ReplaceAllString(name, "${1}_$2"))), "_")
}

func TestSpeaksOf(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"SendHeartbeat": "", "BeatEvery": "beat", "HeldTokens": "held", "Withheld": "", "RoomFor": "room", "LoopData": "loop_data", "ShutdownGrace": "", "Grace": "grace",
	} {
		if got := speaksOf(name); got != want {
			t.Errorf("%s contains %q, want %q", name, got, want)
		}
	}
}

// The glossary has the list of retired words of this test.
func TestGlossaryHasTheRetiredWords(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../docs/reference/glossary.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("<!-- retired words: begin -->\n| retired | in use |\n|---|---|\n")
	for _, w := range words {
		want.WriteString("| " + w.retired + " | " + w.inUse + " |\n")
	}
	want.WriteString("<!-- retired words: end -->\n")
	if !strings.Contains(string(b), want.String()) {
		t.Errorf("docs/reference/glossary.md must contain:\n%s", want.String())
	}
}

// Retired words appear only in the glossary. Code and names in backticks may be those of the wire format.
func TestPagesUseTheWords(t *testing.T) {
	t.Parallel()
	for _, p := range pages(t) {
		if !p.strict() || p.name == "docs/reference/glossary.md" {
			continue
		}
		for i, line := range p.prose() {
			line = regexp.MustCompile("`[^`]*`").ReplaceAllString(linkPattern.ReplaceAllString(line, "]"), "")
			if m := retiredProse.FindString(line); m != "" {
				t.Errorf("%s:%d says %q, a retired word: see docs/reference/glossary.md", p.name, i+1, m)
			}
		}
	}
}

func TestExportedNamesUseTheWords(t *testing.T) {
	t.Parallel()
	for _, f := range files(t, false) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			for _, id := range declared(n) {
				if m := speaksOf(id.Name); id.IsExported() && m != "" {
					t.Errorf("%s: %s has the retired word %q: see docs/reference/glossary.md", f.name, id.Name, m)
				}
			}
			return true
		})
	}
}

// declared returns the names that a node declares, those of parameters apart.
func declared(n ast.Node) (names []*ast.Ident) {
	switch n := n.(type) {
	case *ast.FuncDecl:
		names = []*ast.Ident{n.Name}
	case *ast.TypeSpec:
		names = []*ast.Ident{n.Name}
	case *ast.ValueSpec:
		names = n.Names
	case *ast.StructType:
		for _, f := range n.Fields.List {
			names = append(names, f.Names...)
		}
	case *ast.InterfaceType:
		for _, f := range n.Methods.List {
			names = append(names, f.Names...)
		}
	}
	return names
}

// Names, labels and descriptions of metrics.
func TestMetricsUseTheWords(t *testing.T) {
	t.Parallel()
	found := 0
	for _, f := range files(t, false) {
		if !slices.ContainsFunc(f.ast.Imports, func(s *ast.ImportSpec) bool { return strings.Contains(s.Path.Value, "client_golang/prometheus") }) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !slices.ContainsFunc(texts(call), func(s string) bool { return strings.HasPrefix(s, "turnpike_") }) {
				return true
			}
			found++
			for _, s := range texts(call) {
				if m := speaksOf(s) + retiredProse.FindString(s); m != "" {
					t.Errorf("%s: a metric says %q, a retired word, in %q", f.name, m, s)
				}
			}
			return true
		})
	}
	if found == 0 {
		t.Error("no metric was found")
	}
}

// texts returns the string literals below n.
func texts(n ast.Node) (list []string) {
	ast.Inspect(n, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				list = append(list, s)
			}
		}
		return true
	})
	return list
}

func literals(args []ast.Expr) (list []string) {
	for _, arg := range args {
		list = append(list, texts(arg)...)
	}
	return list
}

// What an operator reads in the log uses the words, and a warning or an error says in the
// field hint what to do, or which page of the docs does.
func TestLogMessages(t *testing.T) {
	t.Parallel()
	docs := map[string]map[string]bool{}
	for _, p := range pages(t) {
		docs[p.name] = p.anchors()
	}
	found := 0
	for _, f := range files(t, false) {
		if within(f.name, "internal/verify") || within(f.name, "internal/measure") {
			continue // nobody operates them
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			line, ok := logged(call)
			if !ok {
				return true
			}
			found++
			for _, s := range []string{line.message, line.hint} {
				if m := retiredProse.FindString(s); m != "" {
					t.Errorf("%s: a log message says %q, a retired word, in %q", f.name, m, s)
				}
			}
			if line.level == "Debug" || line.level == "Info" {
				return true
			}
			if !line.hinted {
				t.Errorf("%s: %q is logged as %s without a hint: add the attribute \"hint\" with what to do", f.name, line.message, line.level)
			}
			for _, m := range regexp.MustCompile(`(docs/\S+?\.md)(?:#([\w-]+))?`).FindAllStringSubmatch(line.hint, -1) {
				if anchors, ok := docs[m[1]]; !ok || m[2] != "" && !anchors[m[2]] {
					t.Errorf("%s: the hint of %q points at %s, which does not exist", f.name, line.message, m[0])
				}
			}
			return true
		})
	}
	if found < 40 {
		t.Errorf("%d log messages were found, want many more", found)
	}
}

// logLine is a call like log.Warn("…", "error", err, "hint", "…"), or log(slog.LevelWarn, "…").
type logLine struct {
	level, message, hint string
	hinted               bool
}

var loggers = regexp.MustCompile(`(?i:log|logger)$`)

// logged returns the line of a call that logs.
func logged(call *ast.CallExpr) (line logLine, ok bool) {
	args := call.Args
	switch fun := call.Fun.(type) {
	case *ast.SelectorExpr:
		line.level = fun.Sel.Name
		if !loggers.MatchString(lastName(fun.X)) {
			return line, false
		}
	case *ast.Ident:
		if !loggers.MatchString(fun.Name) || len(args) == 0 {
			return line, false
		}
		line.level = strings.TrimPrefix(lastName(args[0]), "Level")
		args = args[1:]
	}
	if !slices.Contains([]string{"Debug", "Info", "Warn", "Error"}, line.level) || len(args) == 0 {
		return line, false
	}
	line.message = strings.Join(literals(args[:1]), "")
	for pair := range slices.Chunk(args[1:], 2) {
		if slices.Equal(literals(pair[:1]), []string{"hint"}) {
			line.hinted, line.hint = true, strings.Join(literals(pair[1:]), "")
		}
	}
	return line, true
}

// lastName returns the last name in an expression such as w.log or w.runLog(id).
func lastName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.CallExpr:
		return lastName(e.Fun)
	}
	return ""
}
