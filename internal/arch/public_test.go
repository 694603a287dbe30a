package arch

import (
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// public lists every import path that programs outside this module can use. Each is a compatibility promise:
// any other package belongs below internal.
var public = []string{
	".", "turnpiketest",
	"pkg/agent", "pkg/api", "pkg/budget", "pkg/bus", "pkg/bus/membus", "pkg/bus/natsbus", "pkg/hook", "pkg/loop",
	"pkg/model", "pkg/model/anthropic", "pkg/model/gemini", "pkg/model/openai", "pkg/standard",
	"pkg/state", "pkg/state/memstore", "pkg/state/natsstore", "pkg/state/redisstore", "pkg/tool", "pkg/toolkit",
}

func TestPublicPackages(t *testing.T) {
	t.Parallel()
	var found []string
	for _, f := range files(t, false) {
		dir := path.Dir(f.name)
		// Package clients embeds the files next to it, which is not possible from below internal; it is not a
		// promise.
		programs := f.ast.Name.Name == "main" || within(dir, "examples") || dir == "clients"
		if !programs && !slices.Contains(strings.Split(dir, "/"), "internal") && !slices.Contains(found, dir) {
			found = append(found, dir)
		}
	}
	slices.Sort(found)
	want := slices.Sorted(slices.Values(public))
	if !slices.Equal(found, want) {
		t.Errorf("the public packages are %v, want %v", found, want)
	}
}

// readers may read the environment: the commands, their parts, and the functions that callers ask to read it. A
// library that reads the environment on its own would surprise the programs that embed it.
var readers = []string{
	"cmd", "hack", "examples", "internal/app", "internal/telemetry", "internal/doctor", "internal/measure", "internal/verify",
	"env.go",                                                      // turnpike.FromEnv
	"pkg/toolkit/run.go",                                          // toolkit.FromEnv
	"internal/credential/natslogin",                               // Environment, for toolkit.FromEnv
	"internal/devaddr",                                            // where a `turnpike dev` writes its address
	"internal/tool/mcptool/transport.go", "internal/tool/confine", // the environment of child programs: PATH and the like
	"internal/model/modeltest", // the location of recorded data
}

func TestOnlyCommandsReadTheEnvironment(t *testing.T) {
	t.Parallel()
	for _, f := range files(t, false) {
		if slices.ContainsFunc(readers, func(place string) bool { return within(f.name, place) }) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "os" && slices.Contains([]string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}, sel.Sel.Name) {
				t.Errorf("%s reads the environment with os.%s", f.name, sel.Sel.Name)
			}
			return true
		})
	}
}

// No exported declaration uses an internal type, because a caller outside this module could not name it.
func TestPublicDeclarationsNameNoInternalType(t *testing.T) {
	t.Parallel()
	for _, f := range files(t, false) {
		if !slices.Contains(public, path.Dir(f.name)) {
			continue
		}
		internal := map[string]bool{}
		for _, spec := range f.ast.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(imp, module+"internal/") {
				continue
			}
			name := path.Base(imp)
			if spec.Name != nil {
				name = spec.Name.Name
			}
			internal[name] = true
		}
		for _, decl := range f.ast.Decls {
			for _, e := range signatures(decl) {
				ast.Inspect(e, func(n ast.Node) bool {
					sel, ok := n.(*ast.SelectorExpr)
					if !ok {
						return true
					}
					if x, ok := sel.X.(*ast.Ident); ok && internal[x.Name] {
						t.Errorf("%s: an exported declaration names %s.%s", f.name, x.Name, sel.Sel.Name)
					}
					return true
				})
			}
		}
	}
}

// signatures returns the parts of a declaration that callers see: signatures and types of exported names.
func signatures(decl ast.Decl) []ast.Node {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if !d.Name.IsExported() || d.Recv != nil && !exportedReceiver(d.Recv.List[0].Type) {
			return nil
		}
		return []ast.Node{d.Type}
	case *ast.GenDecl:
		var shown []ast.Node
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() {
					shown = append(shown, shownOf(s.Type)...)
				}
			case *ast.ValueSpec:
				if s.Type != nil && slices.ContainsFunc(s.Names, (*ast.Ident).IsExported) {
					shown = append(shown, s.Type)
				}
			}
		}
		return shown
	}
	return nil
}

// shownOf returns the exported fields of a struct, and any other type as a whole.
func shownOf(e ast.Expr) []ast.Node {
	s, ok := e.(*ast.StructType)
	if !ok {
		return []ast.Node{e}
	}
	var shown []ast.Node
	for _, field := range s.Fields.List {
		if len(field.Names) == 0 || slices.ContainsFunc(field.Names, (*ast.Ident).IsExported) {
			shown = append(shown, field.Type)
		}
	}
	return shown
}

func exportedReceiver(e ast.Expr) bool {
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}
