package memory

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Root is the directory that every path is in.
const Root = "/memories"

const (
	// MaxBytes bounds a memory, and DefaultBytes is the bound of a definition that has none.
	MaxBytes     = 256 << 10
	DefaultBytes = 64 << 10

	// MaxFiles is the number of files of a memory.
	MaxFiles = 1000

	maxPath = 256 // bytes
)

// Refusal is the text of an error for the model, or for the caller that requested the change.
type Refusal string

func (r Refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return Refusal(fmt.Sprintf(format, args...)) }

// CheckPath returns an error, for the model, unless a path is Root or below it, in its only spelling.
func CheckPath(path string) error {
	if len(path) > maxPath {
		return refuse("Error: the path has %d bytes, at most %d are allowed: use a shorter one", len(path), maxPath)
	}
	rest, ok := strings.CutPrefix(path, Root)
	if !ok || rest != "" && rest[0] != '/' {
		return refuse("Error: the path %s is not in %s: begin it with that directory", path, Root)
	}
	for _, part := range strings.Split(rest, "/")[1:] {
		if part == "" || part == "." || part == ".." || part != strings.TrimSpace(part) || !printable(part, "") {
			return refuse("Error: the path %q has a part that is empty, is . or .., has white space at an end, or has control characters: use another path", path)
		}
	}
	return nil
}

// printable reports whether a text is UTF-8 without control characters other than those in allowed.
func printable(text, allowed string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune(allowed, r) })
}

// tree returns the paths of the file at path, or of the files below the directory at path, sorted.
func (d *Directory) tree(path string) []string {
	var all []string
	for p := range d.Files {
		if p == path || strings.HasPrefix(p, path+"/") {
			all = append(all, p)
		}
	}
	slices.Sort(all)
	return all
}

// Latest returns the latest version among the file at a path and the files below it; 0 without any.
func (d *Directory) Latest(path string) int64 {
	latest := int64(0)
	for _, p := range d.tree(path) {
		latest = max(latest, d.Files[p].Version)
	}
	return latest
}

// isDirectory reports whether files are below path.
func (d *Directory) isDirectory(path string) bool {
	files := d.tree(path)
	return path == Root || len(files) > 0 && files[len(files)-1] != path
}

// Size returns the bytes of all paths and contents.
func (d *Directory) Size() int {
	n := 0
	for p, f := range d.Files {
		n += len(p) + len(f.Content)
	}
	return n
}

// place returns an error, for the model, if no file can be at path.
func (d *Directory) place(path string) error {
	if path == Root || d.isDirectory(path) {
		return refuse("Error: %s is a directory: name a file in it, such as %s/notes.md, or another path", path, path)
	}
	for p := path; p != Root; {
		p = p[:strings.LastIndexByte(p, '/')]
		if _, taken := d.Files[p]; taken {
			return refuse("Error: %s is a file, not a directory: use a path that is not below it, or delete the file first", p)
		}
	}
	return nil
}

// Put writes a file in a new version. The caller must have checked the path with CheckPath. An error is a text for the
// model; d is then unchanged. Put refuses a path that conflicts with a file or a directory, a text with control
// characters or that is not UTF-8, a file beyond MaxFiles, and a change after which the paths and contents of all files
// have more than limit bytes, and more than before.
func (d *Directory) Put(path string, f File, limit int) error {
	if err := d.place(path); err != nil {
		return err
	}
	if !printable(f.Content, "\t\n\r") {
		return refuse("Error: the text for %s has control characters or is not UTF-8: remove them", path)
	}
	was, exists := d.Files[path]
	if !exists && len(d.Files) >= MaxFiles {
		return refuse("Error: the memory has %d files, at most %d are allowed: delete or merge some", len(d.Files), MaxFiles)
	}
	before := d.Size()
	size := before - len(was.Content) + len(f.Content)
	if !exists {
		size += len(path)
	}
	if size > limit && size > before {
		return refuse("Error: the memory would have %d bytes, at most %d are allowed: delete or shorten files", size, limit)
	}
	d.Version++
	f.Version = d.Version
	d.Files[path] = f
	return nil
}

// Remove deletes the file at path, or the files below it, as one change. It reports whether there were
// any.
func (d *Directory) Remove(path string) bool {
	files := d.tree(path)
	for _, p := range files {
		delete(d.Files, p)
	}
	if len(files) > 0 {
		d.Version++
	}
	return len(files) > 0
}
