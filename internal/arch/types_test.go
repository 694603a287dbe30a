package arch

import (
	"go/ast"
	"path"
	"strings"
	"testing"
)

const (
	mostMethods = 25
	mostFields  = 15
)

// A type with many methods or fields gives the reason in its doc comment.
func TestLargeTypesSayWhy(t *testing.T) {
	t.Parallel()
	type size struct {
		methods, fields int
		doc, file       string
	}
	sizes := map[string]*size{} // by directory and name
	of := func(file, name string) *size {
		key := path.Dir(file) + "." + name
		if sizes[key] == nil {
			sizes[key] = &size{file: file}
		}
		return sizes[key]
	}
	for _, f := range files(t, false) {
		file := f.name
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					of(file, receiver(d.Recv.List[0].Type)).methods++
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					ts, ok := spec.(*ast.TypeSpec)
					if !ok {
						continue
					}
					s := of(file, ts.Name.Name)
					s.file, s.doc = file, d.Doc.Text()+ts.Doc.Text()
					if st, ok := ts.Type.(*ast.StructType); ok && !isRecord(st) {
						s.fields = st.Fields.NumFields()
					}
				}
			}
		}
	}
	large := 0
	for name, s := range sizes {
		if s.methods <= mostMethods && s.fields <= mostFields {
			continue
		}
		large++
		if !strings.Contains(strings.Join(strings.Fields(s.doc), " "), "because") {
			t.Errorf("%s: %s has %d methods and %d fields: divide it, or give the reason in its doc comment for more than %d or %d (because …)", s.file, name, s.methods, s.fields, mostMethods, mostFields)
		}
	}
	if large == 0 {
		t.Error("no type is large: the test finds none")
	}
}

// isRecord reports whether all fields are exported: such a type is a format or a set of settings, with a
// field for each.
func isRecord(st *ast.StructType) bool {
	for _, f := range st.Fields.List {
		for _, name := range f.Names {
			if !name.IsExported() {
				return false
			}
		}
	}
	return true
}
