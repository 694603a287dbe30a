// Command licenses writes the licences of everything that Turnpike ships in its binaries: Go
// modules, Go itself, and the libraries of the page. It fails for a module without a licence file,
// and for a licence that is not on its list of accepted ones: a person must decide about that.
//
//	go run ./hack/licenses
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// out is the file that it writes, from the root of the repository.
const out = "internal/notice/third-party.txt"

// systems are those that releases are built for; each may link modules that the others do not.
var systems = []string{"linux", "darwin"}

// accepted lists the licences that the project ships, each with a text that only it contains. The
// first that matches is the licence's name.
var accepted = []struct{ name, text string }{
	{"Apache-2.0", "Apache License"},
	{"MPL-2.0", "Mozilla Public License Version 2.0"},
	{"Unlicense", "This is free and unencumbered software released into the public domain"},
	{"CC0-1.0", "CC0 1.0 Universal"},
	{"BSD-3-Clause", "Neither the name of"},
	{"BSD-3-Clause", "may not be used to endorse or promote"},
	{"BSD-2-Clause", "Redistributions in binary form must reproduce"},
	{"ISC", "Permission to use, copy, modify, and/or distribute"},
	{"ISC", "Permission to use, copy, modify, and distribute"},
	{"MIT", "Permission is hereby granted, free of charge"},
}

// work is one work of others, with the texts of its licence files.
type work struct {
	name  string
	texts []string
}

func main() {
	log.SetFlags(0)
	text, err := notice()
	if err == nil {
		err = os.WriteFile(out, text, 0o644) //nolint:gosec // for everybody to read
	}
	if err != nil {
		log.Fatal("licenses: ", err)
	}
}

func notice() ([]byte, error) {
	modules, err := linked()
	if err != nil {
		return nil, err
	}
	page, err := vendored("web/vendor")
	if err != nil {
		return nil, err
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	goLicence, err := licence("Go", []string{strings.TrimSpace(string(root))})
	if err != nil {
		return nil, err
	}
	return write(slices.Concat([]work{goLicence}, modules, page))
}

// linked returns the modules whose packages the commands link on any of the systems.
func linked() ([]work, error) {
	dirs := map[string][]string{} // by module and version
	for _, system := range systems {
		list := exec.Command("go", "list", "-deps", "-json=Dir,Module", "./cmd/...")
		list.Env = append(os.Environ(), "GOOS="+system, "CGO_ENABLED=0")
		list.Stderr = os.Stderr
		printed, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("go list on %s: %w", system, err)
		}
		for d := json.NewDecoder(bytes.NewReader(printed)); ; {
			var p struct {
				Dir    string
				Module *struct {
					Path, Version, Dir string
					Main               bool
				}
			}
			if err := d.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			if p.Module == nil || p.Module.Main {
				continue
			}
			name := p.Module.Path + " " + p.Module.Version
			for dir := p.Dir; len(dir) >= len(p.Module.Dir); dir = filepath.Dir(dir) {
				dirs[name] = append(dirs[name], dir)
			}
		}
	}
	var works []work
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		w, err := licence(name, dirs[name])
		if err != nil {
			return nil, err
		}
		works = append(works, w)
	}
	return works, nil
}

// vendored returns the libraries below a directory, each a directory with a licence file.
func vendored(root string) ([]work, error) {
	var works []work
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !isLicence(d.Name()) {
			return err
		}
		name, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		w, err := licence(filepath.ToSlash(name)+" (in the page)", []string{filepath.Dir(path)})
		works = append(works, w)
		return err
	})
	return works, err
}

func isLicence(file string) bool {
	name, _, _ := strings.Cut(strings.ToUpper(file), ".")
	return slices.Contains([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE"}, name)
}

// licence reads the licence files of directories. A NOTICE is kept with them, as Apache-2.0 asks.
func licence(name string, dirs []string) (work, error) {
	w := work{name: name}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		files, err := os.ReadDir(dir)
		if err != nil {
			return work{}, err
		}
		for _, f := range files {
			if f.IsDir() || !isLicence(f.Name()) || strings.HasSuffix(f.Name(), ".go") {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				return work{}, err
			}
			w.texts = append(w.texts, normal(string(text)))
		}
	}
	if len(w.texts) == 0 {
		return work{}, fmt.Errorf("%s has no licence file: look for its licence, and decide whether it may be shipped", name)
	}
	if !slices.ContainsFunc(w.texts, func(text string) bool { return spdx(text) != "" }) {
		return work{}, fmt.Errorf("%s has a licence that is not in the list of hack/licenses: decide whether it may be shipped", name)
	}
	return w, nil
}

// normal removes invisible differences from a text, so that equal licences are written once.
func normal(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " \t")
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n")
}

// spdx returns the name of the licence with a text, or "" if it is not accepted.
func spdx(text string) string {
	words := strings.Join(strings.Fields(text), " ")
	for _, l := range accepted {
		if strings.Contains(strings.ToLower(words), strings.ToLower(l.text)) {
			return l.name
		}
	}
	return ""
}

// write lists all works with the names of their licences, then each text once with its works.
func write(works []work) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("Turnpike's binaries contain the following works of others.\n\n")
	by := map[string][]string{} // works by text
	for _, w := range works {
		var names []string
		for _, text := range w.texts {
			by[text] = append(by[text], w.name)
			if name := spdx(text); name != "" {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		fmt.Fprintf(&b, "  %s: %s\n", w.name, strings.Join(slices.Compact(names), ", "))
	}
	texts := slices.SortedFunc(maps.Keys(by), func(x, y string) int { return cmp.Or(cmp.Compare(by[x][0], by[y][0]), cmp.Compare(x, y)) })
	for _, text := range texts {
		fmt.Fprintf(&b, "\n%s\n\n", strings.Repeat("=", 79))
		for _, name := range slices.Compact(by[text]) {
			fmt.Fprintf(&b, "%s\n", name)
		}
		fmt.Fprintf(&b, "\n%s\n", text)
	}
	return b.Bytes(), nil
}
