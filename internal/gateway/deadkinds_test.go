package gateway_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// parsed returns the syntax tree of a Go file of the module.
func parsed(t *testing.T, path string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The comment of api.DeadLetter and the OpenAPI document list exactly the kinds of dead letters that the bus
// has.
func TestKindsOfDeadLetters(t *testing.T) {
	t.Parallel()
	var kinds, commented []string
	ast.Inspect(parsed(t, "../../pkg/bus/bus.go"), func(n ast.Node) bool {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Values) == 1 {
			typeName, _ := v.Type.(*ast.Ident)
			text, _ := v.Values[0].(*ast.BasicLit)
			if typeName != nil && typeName.Name == "DeadKind" && text != nil {
				kind, err := strconv.Unquote(text.Value)
				if err != nil {
					t.Error(err)
				}
				kinds = append(kinds, kind)
			}
		}
		return true
	})
	ast.Inspect(parsed(t, "../../pkg/api/dead.go"), func(n ast.Node) bool {
		if f, ok := n.(*ast.Field); ok && len(f.Names) == 1 && f.Names[0].Name == "Kind" {
			commented = regexp.MustCompile(`\b[a-z]+(_[a-z]+)*\b`).FindAllString(f.Doc.Text()+f.Comment.Text(), -1)
			commented = slices.DeleteFunc(commented, func(word string) bool { return word == "is" || word == "or" })
		}
		return true
	})
	raw, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas struct {
				DeadLetter struct {
					Properties struct{ Kind struct{ Enum []string } }
				}
			}
		}
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	listed := doc.Components.Schemas.DeadLetter.Properties.Kind.Enum
	for _, list := range [][]string{kinds, commented, listed} {
		slices.Sort(list)
	}
	if len(kinds) == 0 || !slices.Equal(commented, kinds) || !slices.Equal(listed, kinds) {
		t.Errorf("the bus has the kinds %v, the comment lists %v and the document %v", kinds, commented, listed)
	}
}
