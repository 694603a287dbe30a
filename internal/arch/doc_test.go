package arch

import (
	"go/ast"
	"go/doc/comment"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strings"
	"testing"
)

// roots are the public packages outside pkg.
var roots = []string{".", "turnpiketest"}

// The doc.go of a public package has its purpose, main types, an example, and its guarantees. Every name in it
// exists. The packages below have a doc.go as well.
func TestPublicPackagesAreDescribed(t *testing.T) {
	t.Parallel()
	exported := map[string]map[string]bool{} // names by package
	var described []file
	public := map[string]bool{} // packages without a doc.go so far; true: it needs an example and guarantees
	for _, f := range files(t, false) {
		dir := path.Dir(f.name)
		if !within(dir, "pkg") && !slices.Contains(roots, dir) {
			continue
		}
		names := exported[f.ast.Name.Name]
		if names == nil {
			names = map[string]bool{}
			exported[f.ast.Name.Name] = names
		}
		collect(f.ast, names)
		public[dir] = strings.Count(dir, "/") == 1 || slices.Contains(roots, dir)
		if path.Base(f.name) == "doc.go" {
			described = append(described, f)
		}
	}
	for _, f := range described {
		dir := path.Dir(f.name)
		if public[dir] {
			describe(t, f, exported)
		} else if f.ast.Doc == nil {
			t.Errorf("%s says nothing", f.name)
		}
		delete(public, dir)
	}
	for dir := range public {
		t.Errorf("%s has no doc.go", dir)
	}
	if len(described) < 20 {
		t.Errorf("%d packages are described, want more", len(described))
	}
}

// collect adds the exported names of a file, those of methods and fields as Type.Name.
func collect(f *ast.File, names map[string]bool) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names[d.Name.Name] = true
				continue
			}
			names[receiver(d.Recv.List[0].Type)+"."+d.Name.Name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				for _, id := range declared(s) {
					names[id.Name] = true
				}
				if ts, ok := s.(*ast.TypeSpec); ok {
					for _, id := range declared(ts.Type) {
						names[ts.Name.Name+"."+id.Name] = true
					}
				}
			}
		}
	}
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

func describe(t *testing.T, f file, exported map[string]map[string]bool) {
	t.Helper()
	own := f.ast.Name.Name
	examples, guarantees := 0, false
	reader := comment.Parser{
		LookupSym:     func(string, string) bool { return true },
		LookupPackage: func(name string) (string, bool) { return name, exported[name] != nil },
	}
	links := func(texts []comment.Text) {
		for _, text := range texts {
			link, ok := text.(*comment.DocLink)
			if !ok {
				continue
			}
			pkg, name := link.ImportPath, link.Name
			if pkg == "" {
				pkg = own
			}
			if link.Recv != "" {
				name = link.Recv + "." + name
			}
			if !exported[pkg][name] {
				t.Errorf("%s: %s.%s does not exist", f.name, pkg, name)
			}
		}
	}
	for _, block := range reader.Parse(f.ast.Doc.Text()).Content {
		switch block := block.(type) {
		case *comment.Heading:
			guarantees = guarantees || len(block.Text) == 1 && block.Text[0] == comment.Plain("Guarantees")
		case *comment.Code:
			if code := statements(block.Text); code != nil {
				examples++
				named := map[string]bool{}
				ast.Inspect(code, func(n ast.Node) bool {
					if sel, ok := n.(*ast.SelectorExpr); ok {
						if x, ok := sel.X.(*ast.Ident); ok && exported[x.Name] != nil && sel.Sel.IsExported() {
							named[x.Name+"."+sel.Sel.Name] = exported[x.Name][sel.Sel.Name]
						}
					}
					return true
				})
				for name, known := range named {
					if !known {
						t.Errorf("%s: the example names %s, which does not exist", f.name, name)
					}
				}
				if len(named) == 0 {
					t.Errorf("%s: the example uses nothing of this module", f.name)
				}
			}
		case *comment.Paragraph:
			links(block.Text)
		case *comment.List:
			for _, item := range block.Items {
				for _, b := range item.Content {
					if p, ok := b.(*comment.Paragraph); ok {
						links(p.Text)
					}
				}
			}
		}
	}
	if examples == 0 {
		t.Errorf("%s has no example in Go", f.name)
	}
	if !guarantees {
		t.Errorf("%s has nothing under the heading Guarantees", f.name)
	}
}

// statements parses code as declarations or statements; nil if it is neither.
func statements(code string) ast.Node {
	for _, wrapped := range []string{"package p\n" + code, "package p\nfunc _() {\n" + code + "\n}"} {
		if f, err := parser.ParseFile(token.NewFileSet(), "", wrapped, 0); err == nil {
			return f
		}
	}
	return nil
}
