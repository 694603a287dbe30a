package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// checker type-checks packages for another system from their sources: compiling them, as go vet would, takes
// minutes.
type checker struct {
	fset  *token.FileSet
	known map[string]*types.Package
}

// listed is the output of go list for a package.
type listed struct {
	Dir, ImportPath string
	GoFiles         []string
	ImportMap       map[string]string
	Standard        bool
}

// importer resolves the imports of one package.
type importer struct {
	checker *checker
	of      listed
}

func (i importer) Import(path string) (*types.Package, error) {
	if to := i.of.ImportMap[path]; to != "" {
		path = to
	}
	if p := i.checker.known[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("%s imports %s, which is not in the output of go list", i.of.ImportPath, path)
}

// check returns the errors of a package of this module. It skips the bodies of functions in other packages.
func (c *checker) check(p listed, arch string) (errs []error) {
	if p.ImportPath == "unsafe" {
		c.known["unsafe"] = types.Unsafe
		return nil
	}
	own := strings.HasPrefix(p.ImportPath+"/", module)
	var files []*ast.File
	for _, name := range p.GoFiles {
		f, err := parser.ParseFile(c.fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return []error{err}
		}
		files = append(files, f)
	}
	cfg := types.Config{
		Importer: importer{c, p}, Sizes: types.SizesFor("gc", arch), IgnoreFuncBodies: !own, FakeImportC: true,
		Error: func(err error) { errs = append(errs, err) },
	}
	c.known[p.ImportPath], _ = cfg.Check(p.ImportPath, c.fset, files, nil)
	if !own {
		return nil
	}
	return errs
}

// The commands compile for macOS, on which these tests do not run.
func TestOtherSystems(t *testing.T) {
	t.Parallel()
	const system, arch = "darwin", "arm64"
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=Dir,ImportPath,GoFiles,ImportMap,Standard", "./cmd/...")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c, own := &checker{token.NewFileSet(), map[string]*types.Package{}}, 0
	for d := json.NewDecoder(out); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(p.ImportPath+"/", module) {
			own++
		}
		for _, err := range c.check(p, arch) {
			t.Errorf("on %s: %v", system, err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if own < 50 {
		t.Errorf("go list listed %d packages of this module", own)
	}
}
