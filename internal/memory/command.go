package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Schema is the JSON Schema of a Command, and Purpose says, for the model, what the commands are for.
const (
	Schema = `{"type":"object","properties":{` +
		`"command":{"type":"string","enum":["view","create","str_replace","insert","delete","rename"]},` +
		`"path":{"type":"string","description":"A file or directory, such as /memories/notes.md. All commands but rename need it."},` +
		`"view_range":{"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":2,"description":"view: the first and the last line to show; -1 is the end."},` +
		`"file_text":{"type":"string","description":"create: the text of the file."},` +
		`"old_str":{"type":"string","description":"str_replace: the text to replace, which must occur once."},` +
		`"new_str":{"type":"string","description":"str_replace: the new text; without it the old text is deleted."},` +
		`"insert_line":{"type":"integer","description":"insert: the line after which to insert; 0 is the start."},` +
		`"insert_text":{"type":"string","description":"insert: the text to insert."},` +
		`"old_path":{"type":"string","description":"rename: the file or directory to move."},` +
		`"new_path":{"type":"string","description":"rename: where to move it to."},` +
		`"version":{"type":"integer","description":"Fail if the file has changed since this version, which results name."}` +
		`},"required":["command"]}`

	Purpose = "Files that stay after this conversation, in the directory " + Root + ". View the directory before you begin: earlier conversations may have left notes. " +
		"Write down what later conversations need, and keep it short and current. Other conversations may change the same files at the same time."

	// lookFirst is the remedy for a path that does not exist.
	lookFirst = "view " + Root + ", and send a path that exists"
)

// Command is the arguments of a call.
type Command struct {
	Command    string  `json:"command"`
	Path       string  `json:"path"`
	ViewRange  []whole `json:"view_range"`
	FileText   *string `json:"file_text"`
	OldStr     string  `json:"old_str"`
	NewStr     string  `json:"new_str"`
	InsertLine *whole  `json:"insert_line"`
	InsertText *string `json:"insert_text"`
	OldPath    string  `json:"old_path"`
	NewPath    string  `json:"new_path"`
	Version    *whole  `json:"version"` // of the file at Path or OldPath that the model has in mind
}

// whole is a whole number; models also write 2.0.
type whole int64

// maxWhole is the greatest whole number up to which a float64 represents all of them.
const maxWhole = 1 << 53

// UnmarshalJSON implements json.Unmarshaler.
func (w *whole) UnmarshalJSON(data []byte) error {
	f, err := strconv.ParseFloat(string(data), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > maxWhole {
		return refuse("Error: %.40s is not a whole number from %d to %d: send one", data, -maxWhole, maxWhole)
	}
	*w = whole(f)
	return nil
}

// ParseCommand returns the command in the arguments of a call. The error is for the model.
func ParseCommand(arguments json.RawMessage) (Command, error) {
	var c Command
	if err := json.Unmarshal(arguments, &c); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
			return Command{}, refuse("Error: %s has the type %s: send the type that the schema of the tool requires", wrong.Field, wrong.Value)
		}
		if refusal, ok := errors.AsType[Refusal](err); ok {
			return Command{}, refusal
		}
		return Command{}, refuse("Error: the arguments are not a JSON object: send one")
	}
	return c, c.check()
}

func (c *Command) check() error {
	c.Path, c.OldPath, c.NewPath = trimmed(c.Path), trimmed(c.OldPath), trimmed(c.NewPath)
	missing := ""
	switch c.Command {
	case "view", "delete":
	case "create":
		if c.FileText == nil {
			missing = "file_text"
		}
	case "str_replace":
		if c.OldStr == "" {
			missing = "old_str"
		}
	case "insert":
		if c.InsertText == nil {
			missing = "insert_text"
		} else if c.InsertLine == nil {
			missing = "insert_line"
		}
	case "rename":
		if c.OldPath == "" || c.NewPath == "" {
			return refuse("Error: rename needs old_path and new_path: send both")
		}
		if err := CheckPath(c.OldPath); err != nil {
			return err
		}
		return CheckPath(c.NewPath)
	default:
		return refuse("Error: command is %.40q: use view, create, str_replace, insert, delete or rename", c.Command)
	}
	if c.Path == "" {
		missing = "path"
	}
	if missing != "" {
		return refuse("Error: the command %s needs %s: send it", c.Command, missing)
	}
	return CheckPath(c.Path)
}

// trimmed returns a path without the slash at its end, which Claude writes after directories.
func trimmed(path string) string { return strings.TrimSuffix(path, "/") }

// Views reports whether the command changes nothing.
func (c *Command) Views() bool { return c.Command == "view" }

// target returns the path that the command is about.
func (c *Command) target() string {
	if c.Command == "rename" {
		return c.OldPath
	}
	return c.Path
}

// Writer identifies the author of a change.
type Writer struct {
	Run    state.RunID
	Key    string // the idempotency key of the call
	At     state.Time
	Origin state.Origin // the least trusted source of what the run has read
	Limit  int          // bytes of the memory

	// Seen has the versions of files that the run has seen last: see Seen.
	Seen map[string]int64
}

// Change is one change of a memory by a command, for [Memories.Change].
type Change struct {
	c      Command
	w      Writer
	result string
}

// NewChange returns the change that a command makes on behalf of a writer.
func NewChange(c Command, w Writer) *Change { return &Change{c: c, w: w} }

// Result returns the result of the change, for the model, once Apply has returned nil.
func (ch *Change) Result() string { return ch.result }

// Apply makes the change. An error is a text for the model; d must then be discarded. If the command names a version,
// the change fails if the file or directory has another. If it names none and is not create, the change fails if a run
// other than this one, or a person, has written the file since this run saw it. If one of the latest changes
// (maxChanges) has the same key, Apply makes none, and the result names the version that the earlier one has made.
func (ch *Change) Apply(d *Directory) error {
	if version, ok := d.Changed(ch.w.Key); ok {
		ch.result = ch.c.said(d, version)
		return nil
	}
	if err := ch.conflict(d); err != nil {
		return err
	}
	snippet, err := ch.c.apply(d, ch.w)
	if err != nil {
		return err
	}
	d.note(ch.w.Key)
	ch.result = ch.c.said(d, d.Version) + snippet
	return nil
}

// conflict returns an error, for the model, if another writer has changed what the command is about.
func (ch *Change) conflict(d *Directory) error {
	target := ch.c.target()
	if ch.c.Version != nil {
		expected, latest := int64(*ch.c.Version), d.Latest(target)
		if latest == 0 && expected != 0 {
			return refuse("Error: The path %s does not exist, so it does not have version %d: view %s, then decide again", target, expected, Root)
		}
		return changed(target, expected, latest)
	}
	if ch.c.Command == "create" {
		return nil
	}
	for _, path := range d.tree(target) {
		f, seen := d.Files[path], ch.w.Seen[path]
		if seen == 0 || f.Run == ch.w.Run {
			continue
		}
		if err := changed(path, seen, f.Version); err != nil {
			return err
		}
	}
	return nil
}

func changed(path string, expected, latest int64) error {
	if latest == expected {
		return nil
	}
	return refuse("Error: %s has version %d, not %d as you expect: view it, then decide again", path, latest, expected)
}

// said returns the result of a change that has made a version of d.
func (c *Command) said(d *Directory, version int64) string {
	text := ""
	switch c.Command {
	case "create":
		text = "File created successfully at: " + c.Path
	case "str_replace":
		text = "The memory file has been edited."
	case "insert":
		text = fmt.Sprintf("The file %s has been edited.", c.Path)
	case "delete":
		return "Successfully deleted " + c.Path
	case "rename":
		text = fmt.Sprintf("Successfully renamed %s to %s", c.OldPath, c.NewPath)
	}
	var from state.Origin
	if f := d.Files[c.Path]; f.Version == version {
		from = f.Origin
	}
	return text + " " + marked(version, from)
}

// apply changes the directory. After str_replace, snippet shows the lines around the change.
func (c *Command) apply(d *Directory, w Writer) (snippet string, err error) {
	switch c.Command {
	case "create":
		if _, exists := d.Files[c.Path]; exists {
			return "", refuse("Error: File %s already exists: change it with str_replace or insert, or send another path", c.Path)
		}
		return "", d.Put(c.Path, w.file(*c.FileText, ""), w.Limit)
	case "str_replace":
		return c.replace(d, w)
	case "insert":
		return "", c.insert(d, w)
	case "delete":
		if c.Path == Root {
			return "", refuse("Error: the directory %s itself cannot be deleted: delete what is in it", Root)
		}
		if !d.Remove(c.Path) {
			return "", refuse("Error: The path %s does not exist: %s", c.Path, lookFirst)
		}
		return "", nil
	default:
		return "", c.rename(d, w)
	}
}

// file returns a file that a writer makes of one with an origin.
func (w Writer) file(content string, before state.Origin) File {
	return File{Content: content, Run: w.Run, At: w.At, Origin: before.Farther(w.Origin)}
}

// edited returns the file at path, or an error for the model if the file does not exist.
func (d *Directory) edited(path string) (File, error) {
	f, ok := d.Files[path]
	if !ok && d.isDirectory(path) {
		return File{}, refuse("Error: %s is a directory: view it, and send the path of a file in it", path)
	}
	if !ok {
		return File{}, refuse("Error: The path %s does not exist: %s", path, lookFirst)
	}
	return f, nil
}

func (c *Command) replace(d *Directory, w Writer) (snippet string, err error) {
	f, err := d.edited(c.Path)
	if err != nil {
		return "", err
	}
	const maxLines = 10 // that the error names
	var lines []string
	first, occurrences := -1, 0
	for from := 0; ; {
		i := strings.Index(f.Content[from:], c.OldStr)
		if i < 0 {
			break
		}
		if from += i; first < 0 {
			first = from
		}
		if occurrences++; occurrences > 10*maxLines {
			break
		}
		if line := fmt.Sprint(1 + strings.Count(f.Content[:from], "\n")); len(lines) < maxLines && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
		from += len(c.OldStr)
	}
	switch {
	case first < 0:
		return "", refuse("No replacement was performed, old_str `%.1000s` did not appear verbatim in %s. View the file, and send text that occurs in it once", c.OldStr, c.Path)
	case occurrences > 1:
		return "", refuse("No replacement was performed. Multiple occurrences of old_str `%.1000s` in lines: %s. Please ensure it is unique", c.OldStr, strings.Join(lines, ", "))
	}
	content := f.Content[:first] + c.NewStr + f.Content[first+len(c.OldStr):]
	if err := d.Put(c.Path, w.file(content, f.Origin), w.Limit); err != nil {
		return "", err
	}
	const around = 4
	line := 1 + strings.Count(content[:first], "\n")
	return "\n" + numbered(content, line-around, line+strings.Count(c.NewStr, "\n")+around), nil
}

func (c *Command) insert(d *Directory, w Writer) error {
	f, err := d.edited(c.Path)
	if err != nil {
		return err
	}
	lines := linesOf(f.Content)
	at := int64(*c.InsertLine)
	if at < 0 || at > int64(len(lines)) {
		return refuse("Error: Invalid `insert_line` parameter: %d. It should be within the range of lines of the file: [0, %d]", at, len(lines))
	}
	added, last := strings.TrimSuffix(*c.InsertText, "\n"), len(lines)
	content := strings.Join(slices.Insert(lines, int(at), added), "\n")
	if f.Content == "" || strings.HasSuffix(f.Content, "\n") || int(at) == last && strings.HasSuffix(*c.InsertText, "\n") {
		content += "\n"
	}
	return d.Put(c.Path, w.file(content, f.Origin), w.Limit)
}

func (c *Command) rename(d *Directory, w Writer) error {
	files := d.tree(c.OldPath)
	switch {
	case c.OldPath == Root:
		return refuse("Error: the directory %s itself cannot be renamed: rename what is in it", Root)
	case len(files) == 0:
		return refuse("Error: The path %s does not exist: %s", c.OldPath, lookFirst)
	case c.NewPath == Root || len(d.tree(c.NewPath)) > 0:
		return refuse("Error: The destination %s already exists: send another new_path", c.NewPath)
	case strings.HasPrefix(c.NewPath, c.OldPath+"/"):
		return refuse("Error: %s cannot be moved into itself: send another new_path", c.OldPath)
	}
	moved := map[string]File{}
	for _, p := range files {
		moved[c.NewPath+p[len(c.OldPath):]] = d.Files[p]
		delete(d.Files, p)
	}
	version := d.Version + 1
	for p, f := range moved {
		if err := CheckPath(p); err != nil {
			return err
		}
		if err := d.Put(p, w.file(f.Content, f.Origin), math.MaxInt); err != nil {
			return err
		}
		f = d.Files[p]
		f.Version = version // one change, whatever the number of files
		d.Files[p] = f
	}
	d.Version = version
	if size := d.Size(); size > w.Limit && len(c.NewPath) > len(c.OldPath) {
		return refuse("Error: the memory would have %d bytes, at most %d are allowed: delete or shorten files", size, w.Limit)
	}
	return nil
}

// versioned is the version and the origin in a result, as marked writes them.
var versioned = regexp.MustCompile(`^[^\n]*\(version ([0-9]+)(?:, origin (agent|web))?\)`)

// marked returns the version of a file as results show it, with its origin if that is less trusted than
// any result of a tool.
func marked(version int64, o state.Origin) string {
	if o == state.OriginAgent || o == state.OriginWeb {
		return fmt.Sprintf("(version %d, origin %s)", version, o)
	}
	return fmt.Sprintf("(version %d)", version)
}

// Seen returns, by path, the versions of files that a run has seen last, and the least trusted origin of
// what it has read in files: both stand in the results of its calls of a tool.
func Seen(log []state.Entry, name string) (versions map[string]int64, from state.Origin) {
	versions = map[string]int64{}
	calls := map[string]Command{} // by the id of the call
	look := func(m *state.Message) {
		for i := range m.Parts {
			p := &m.Parts[i]
			switch {
			case p.Type == state.PartToolCall && p.Name == name:
				calls[p.ID], _ = ParseCommand(json.RawMessage(p.Arguments))
			case p.Type == state.PartToolCall:
				delete(calls, p.ID) // a model may use an id again
			case p.Type == state.PartToolResult && !p.IsError:
				c, ok := calls[p.CallID]
				found := versioned.FindStringSubmatch(p.Content)
				if !ok || found == nil {
					continue
				}
				path := c.Path
				if c.Command == "rename" {
					path = c.NewPath
				}
				versions[path], _ = strconv.ParseInt(found[1], 10, 64)
				from = from.Farther(state.Origin(found[2]))
			}
		}
	}
	if c := state.CheckpointOf(log); c != nil {
		if known, ok := c.Files[name]; ok {
			maps.Copy(versions, known)
			from = c.FilesFrom[name]
		} else {
			for m := range c.Messages {
				look(&c.Messages[m])
			}
		}
	}
	for i := range log {
		if log[i].Message != nil {
			look(log[i].Message)
		}
		for m := range log[i].Messages {
			look(&log[i].Messages[m])
		}
	}
	return versions, from
}

// View returns what a view command shows, or an error for the model.
func (c *Command) View(d *Directory) (string, error) {
	f, ok := d.Files[c.Path]
	if !ok {
		if !d.isDirectory(c.Path) {
			return "", refuse("The path %s does not exist. Please provide a valid path.", c.Path)
		}
		return d.listing(c.Path), nil
	}
	last := len(linesOf(f.Content))
	from, to := 1, last
	if len(c.ViewRange) > 0 {
		if len(c.ViewRange) != 2 || c.ViewRange[0] < 1 || int(c.ViewRange[0]) > max(last, 1) || c.ViewRange[1] != -1 && c.ViewRange[1] < c.ViewRange[0] {
			return "", refuse("Error: Invalid `view_range` parameter: %.60s. The file has %d lines: send the first and the last line to show, or -1 as the last for the end", fmt.Sprint(c.ViewRange), last)
		}
		if from = int(c.ViewRange[0]); c.ViewRange[1] != -1 {
			to = int(min(c.ViewRange[1], whole(last)))
		}
	}
	return fmt.Sprintf("Here's the content of %s with line numbers %s:\n%s", c.Path, marked(f.Version, f.Origin), numbered(f.Content, from, to)), nil
}

// linesOf returns the lines of a text. A line feed ends a line and begins none.
func linesOf(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// numbered returns lines of a text, each after its number: six characters and a tab.
func numbered(text string, from, to int) string {
	var b strings.Builder
	lines := linesOf(text)
	for i := max(from, 1); i <= min(to, len(lines)); i++ {
		fmt.Fprintf(&b, "%6d\t%s\n", i, lines[i-1])
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// listing shows a directory up to two levels deep.
func (d *Directory) listing(path string) string {
	sizes := map[string]int{path: 0}
	for p, f := range d.Files {
		rest, below := strings.CutPrefix(p, path+"/")
		if !below {
			continue
		}
		sizes[path] += len(f.Content)
		parts := strings.Split(rest, "/")
		if slices.ContainsFunc(parts, func(part string) bool { return strings.HasPrefix(part, ".") || part == "node_modules" }) {
			continue
		}
		for level := 1; level <= min(2, len(parts)); level++ {
			sizes[path+"/"+strings.Join(parts[:level], "/")] += len(f.Content)
		}
	}
	var paths []string
	for p := range sizes {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	var b strings.Builder
	fmt.Fprintf(&b, "Here're the files and directories up to 2 levels deep in %s, excluding hidden items and node_modules:", path)
	for _, p := range paths {
		fmt.Fprintf(&b, "\n%.1fK\t%s", float64(sizes[p])/1024, p)
	}
	return b.String()
}
