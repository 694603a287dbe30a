// Command dependencies measures what each direct dependency costs: packages that no
// process would compile without it, the processor time of compiling them, and their part
// of the binary. It writes the table of docs/reference/dependencies.md.
//
//	go run ./hack/dependencies
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

var processes = []string{"./cmd/gateway", "./cmd/worker", "./cmd/turnpike", "./examples/demo"}

func main() {
	log.SetFlags(0)
	graph := flag.String("graph", "", "action graph of an earlier cold build, instead of one now")
	flag.Parse()
	if err := run(*graph, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(graph string, out io.Writer) error {
	dir, err := os.MkdirTemp("", "dependencies-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	build := append([]string{"build", "-o", dir + "/"}, processes...)
	if graph == "" {
		graph = filepath.Join(dir, "graph.json")
		if _, err := command([]string{"GOCACHE=" + filepath.Join(dir, "cache")}, slices.Insert(build, 1, "-debug-actiongraph="+graph)...); err != nil {
			return err
		}
	} else if _, err := command(nil, build...); err != nil {
		return err
	}
	seconds, err := compileTimes(graph)
	if err != nil {
		return err
	}
	var measured []*process
	for _, path := range processes {
		p, err := measure(path, filepath.Join(dir, filepath.Base(path)), seconds)
		if err != nil {
			return err
		}
		measured = append(measured, p)
	}
	return write(out, measured)
}

// command runs the go command and returns what it printed.
func command(env []string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	b, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", args[0], err)
	}
	return b, nil
}

// compileTimes returns the processor time of each package in seconds.
func compileTimes(graph string) (map[string]float64, error) {
	b, err := os.ReadFile(graph)
	if err != nil {
		return nil, err
	}
	var actions []struct {
		Mode, Package   string
		CmdUser, CmdSys int64 // nanoseconds
	}
	if err := json.Unmarshal(b, &actions); err != nil {
		return nil, fmt.Errorf("read action graph: %w", err)
	}
	seconds := map[string]float64{}
	for _, a := range actions {
		if a.Mode == "build" {
			seconds[a.Package] += float64(a.CmdUser+a.CmdSys) / 1e9
		}
	}
	return seconds, nil
}

// pkg is a package as go list says it.
type pkg struct {
	ImportPath string
	Imports    []string
	ImportMap  map[string]string
	Module     *struct {
		Path           string
		Main, Indirect bool
	}
}

// cost is that of some packages.
type cost struct {
	packages  int
	seconds   float64
	megabytes float64
}

func (c *cost) add(seconds, megabytes float64) {
	c.packages++
	c.seconds += seconds
	c.megabytes += megabytes
}

// process is one command with the costs of its direct dependencies, by module.
type process struct {
	name    string
	total   cost
	modules map[string]cost
}

func measure(path, binary string, seconds map[string]float64) (*process, error) {
	list, err := command(nil, "list", "-deps", "-json=ImportPath,Imports,ImportMap,Module", path)
	if err != nil {
		return nil, err
	}
	packages := map[string]pkg{}
	direct := map[string]bool{}
	root := ""
	for dec := json.NewDecoder(bytes.NewReader(list)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("read go list: %w", err)
		}
		packages[p.ImportPath] = p
		root = p.ImportPath // the last one
		if p.Module != nil && !p.Module.Main && !p.Module.Indirect {
			direct[p.Module.Path] = true
		}
	}
	megabytes, err := sizes(binary)
	if err != nil {
		return nil, err
	}
	p := &process{name: filepath.Base(path), modules: map[string]cost{}}
	for path := range packages {
		p.total.add(seconds[path], megabytes[path])
	}
	for module := range direct {
		kept := map[string]bool{}
		reach(packages, root, module, kept)
		var c cost
		for path := range packages {
			if !kept[path] {
				c.add(seconds[path], megabytes[path])
			}
		}
		p.modules[module] = c
	}
	return p, nil
}

// reach marks what path needs if a module is not there.
func reach(packages map[string]pkg, path, without string, kept map[string]bool) {
	p := packages[path]
	if kept[path] || p.Module != nil && p.Module.Path == without {
		return
	}
	kept[path] = true
	for _, imp := range p.Imports {
		if mapped, ok := p.ImportMap[imp]; ok {
			imp = mapped
		}
		if _, ok := packages[imp]; ok {
			reach(packages, imp, without, kept)
		}
	}
}

// sizes shares the size of a binary out among packages, by the sizes of their code.
func sizes(binary string) (map[string]float64, error) {
	info, err := os.Stat(binary)
	if err != nil {
		return nil, err
	}
	symbols, err := command(nil, "tool", "nm", "-size", binary)
	if err != nil {
		return nil, err
	}
	bytesOf := map[string]float64{}
	all := 0.0
	for line := range strings.Lines(string(symbols)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[2] != "T" && f[2] != "t" { // data may be memory that is not in the file
			continue
		}
		n, err := strconv.ParseFloat(f[1], 64)
		if path := owner(f[3]); err == nil && path != "" {
			bytesOf[path] += n
			all += n
		}
	}
	for path := range bytesOf {
		bytesOf[path] *= float64(info.Size()) / all / 1e6
	}
	return bytesOf, nil
}

// owner returns the package of a symbol; "" for those that the linker makes.
func owner(symbol string) string {
	name, _, _ := strings.Cut(symbol, "(")
	name, _, _ = strings.Cut(name, "[")
	slash := strings.LastIndex(name, "/") + 1
	last, _, ok := strings.Cut(name[slash:], ".")
	if !ok {
		return ""
	}
	return strings.ReplaceAll(name[:slash]+last, "%2e", ".")
}

// write prints a row for each process and for each direct dependency, the dearest first.
func write(out io.Writer, all []*process) error {
	var b strings.Builder
	b.WriteString("| process | packages | CPU s | MB |\n|---|---:|---:|---:|\n")
	modules := map[string]cost{}
	linked := map[string][]string{}
	for _, p := range all {
		fmt.Fprintf(&b, "| `%s` | %d | %.0f | %.0f |\n", p.name, p.total.packages, p.total.seconds, p.total.megabytes)
		for module, c := range p.modules {
			linked[module] = append(linked[module], p.name)
			if c.seconds >= modules[module].seconds {
				modules[module] = c
			}
		}
	}
	b.WriteString("\n| dependency | gives | linked by | packages | CPU s | MB |\n|---|---|---|---:|---:|---:|\n")
	names := slices.SortedFunc(maps.Keys(modules), func(x, y string) int {
		return cmp.Or(cmp.Compare(modules[y].seconds, modules[x].seconds), cmp.Compare(x, y))
	})
	for _, m := range names {
		c := modules[m]
		by := strings.Join(linked[m], ", ")
		if len(linked[m]) == len(all) {
			by = "all"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %d | %.1f | %.1f |\n", m, gives[m], by, c.packages, c.seconds, c.megabytes)
	}
	for _, m := range slices.Sorted(maps.Keys(gives)) {
		if _, ok := modules[m]; !ok {
			fmt.Fprintf(&b, "| `%s` | %s | tests | | | |\n", m, gives[m])
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}
