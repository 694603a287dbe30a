package redisstore

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// lists is the content of names.go: the fields of each hash, by field, and the places of each reply, in order.
// Both have the names used in scripts.
type lists struct {
	run, agent map[string]string
	replies    map[string][]string
}

// lowerFirst turns a constant's name without its prefix into the name in a script.
func lowerFirst(s string) string {
	if s == "" {
		return ""
	}
	return string(unicode.ToLower(rune(s[0]))) + s[1:]
}

func readLists(t *testing.T) lists {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := lists{run: map[string]string{}, agent: map[string]string{}, replies: map[string][]string{}}
	for _, d := range file.Decls {
		block, ok := d.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST {
			continue
		}
		reply := ""
		for i, spec := range block.Specs {
			v := spec.(*ast.ValueSpec) //nolint:forcetypeassert // of a const block
			name := v.Names[0].Name
			if typ, ok := v.Type.(*ast.Ident); ok && i == 0 {
				reply = strings.TrimSuffix(typ.Name, "Place")
			}
			if reply != "" {
				l.replies[reply] = append(l.replies[reply], lowerFirst(strings.TrimPrefix(name, reply)))
				continue
			}
			field := strings.Trim(v.Values[0].(*ast.BasicLit).Value, `"`) //nolint:forcetypeassert // a field is a literal
			if rest, ok := strings.CutPrefix(name, "agentField"); ok {
				l.agent[field] = lowerFirst(rest)
			} else if rest, ok := strings.CutPrefix(name, "field"); ok {
				l.run[field] = lowerFirst(rest)
			} else {
				t.Errorf("names.go: %s is neither a field nor a place", name)
			}
		}
	}
	return l
}

// lint collects the deviations of a script from the lists.
type lint struct {
	lists

	name, src string
	problems  []string
	fields    map[string]bool // used fields of runs and agents, by hash and field
	places    map[string]bool // replies that are returned
}

func (l *lint) add(format string, args ...any) {
	l.problems = append(l.problems, l.name+": "+fmt.Sprintf(format, args...))
}

// arguments splits the text between the opening bracket src[from] and its end.
func arguments(src string, from int) (args []string) {
	depth, start, quote := 0, from+1, byte(0)
	for i := from; i < len(src); i++ {
		c := src[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '(' || c == '{' || c == '[':
			depth++
		case c == ')' || c == '}' || c == ']':
			if depth--; depth == 0 {
				return append(args, strings.TrimSpace(src[start:i]))
			}
		case c == ',' && depth == 1:
			args, start = append(args, strings.TrimSpace(src[start:i])), i+1
		}
	}
	return nil
}

var (
	comment  = regexp.MustCompile(`--[^\n]*`)
	command  = regexp.MustCompile(`redis\.call\(`)
	literal  = regexp.MustCompile(`^'([^']*)'`)
	assigned = regexp.MustCompile(`(?:^|\n) *(?:local )?([\w, ]+) = unpack\(\s*$`)
	returned = regexp.MustCompile(`(?:return|reply =) ?\{|reply = ARGV\[3\], \{`)
	constant = regexp.MustCompile(`^(?:'[^']*'|\d+)$`)
	variable = regexp.MustCompile(`^(\w+)(?: or (?:''|0))?$`)
	promised = regexp.MustCompile(`returns ([^\n]*)`)
	word     = regexp.MustCompile(`\w+`)
	bucket   = regexp.MustCompile(`\bb\.(\w+)`)
	charged  = regexp.MustCompile(`charge\('(\w+)', '(\w+)'`)
)

// known returns the fields of the hash in a variable, and whether names.go lists that hash. It does not list
// the fields of the counts, which are statuses and tenants, of the journal, which are calls, nor of documents
// and timers, which are names.
func (l *lint) known(hash string) (fields map[string]string, listed bool) {
	switch hash {
	case "R":
		return l.run, true
	case "A":
		return l.agent, true
	}
	return nil, false
}

// checkCommands checks each command on a hash.
func (l *lint) checkCommands(src string) {
	for _, at := range command.FindAllStringIndex(src, -1) {
		args := arguments(src, at[1]-1)
		m := literal.FindStringSubmatch(args[0])
		if m == nil {
			l.add("a command that is no constant: %s", args[0])
			continue
		}
		op := m[1]
		if !strings.HasPrefix(op, "H") {
			continue
		}
		hash, rest := args[1], args[2:]
		known, listed := l.known(hash)
		if !listed {
			if !slices.Contains([]string{"C", "T", "J", "B", "D", "E", "Z", "K"}, hash) {
				l.add("%s of %s, which is no hash that a test knows", op, hash)
			}
			continue
		}
		step := 1
		if op == "HSET" {
			step = 2
		}
		if op == "HINCRBY" || op == "HSETNX" || op == "HGET" {
			rest = rest[:1]
		}
		for i := 0; i < len(rest); i += step {
			f := literal.FindStringSubmatch(rest[i])
			if f == nil {
				l.add("%s of a field that is no constant: %s", op, rest[i])
				continue
			}
			if _, ok := known[f[1]]; !ok {
				l.add("%s of field %q, which names.go lacks", op, f[1])
			}
			l.fields[hash+" "+f[1]] = true
		}
		if op == "HMGET" {
			l.checkRead(src[:at[0]], rest, known)
		}
	}
}

// checkRead checks the variables into which fields are read.
func (l *lint) checkRead(before string, fields []string, known map[string]string) {
	into := assigned.FindStringSubmatch(before)
	if into == nil {
		l.add("HMGET of %v is not read into variables", fields)
		return
	}
	names := strings.Split(into[1], ", ")
	if len(names) != len(fields) {
		l.add("%d fields are read into %d variables", len(fields), len(names))
		return
	}
	for i, f := range fields {
		if want := known[strings.Trim(f, "'")]; names[i] != want {
			l.add("field %s is read into %s, want %s", f, names[i], want)
		}
	}
}

// checkReplies checks each reply. It must be one of those that the script's first lines declare, and its places
// must be filled from variables of their names, or with constants.
func (l *lint) checkReplies(src string) {
	var mine []string
	for _, p := range promised.FindAllStringSubmatch(l.src, -1) {
		for _, w := range word.FindAllString(regexp.MustCompile(`\{[^}]*\}|\([^)]*\)`).ReplaceAllString(p[1], ""), -1) {
			if l.replies[w] != nil {
				mine = append(mine, w)
			} else if w != "or" {
				l.add("returns %s, which names.go lacks", w)
			}
		}
	}
	for _, at := range returned.FindAllStringIndex(src, -1) {
		given := arguments(src, at[1]-1)
		if i := slices.IndexFunc(mine, func(reply string) bool { return fits(given, l.replies[reply]) }); i < 0 {
			l.add("returns %v, which is none of %v", given, mine)
		} else {
			for _, place := range l.replies[mine[i]][:len(given)] {
				l.places[mine[i]+" "+place] = true
			}
		}
	}
}

// fits reports whether the given values fill the places, or the first of them.
func fits(given, places []string) bool {
	if len(given) > len(places) {
		return false
	}
	for i, g := range given {
		if v := variable.FindStringSubmatch(g); !constant.MatchString(g) && (v == nil || v[1] != places[i]) {
			return false
		}
	}
	return true
}

// checkBucket checks the fields of a rate limit's bucket.
func (l *lint) checkBucket(src string) {
	used := map[string]bool{}
	for _, m := range bucket.FindAllStringSubmatch(src, -1) {
		used[m[1]] = true
	}
	for _, m := range charged.FindAllStringSubmatch(src, -1) {
		used[m[1]], used[m[2]] = true, true
	}
	for _, f := range slices.Sorted(maps.Keys(used)) {
		if !slices.Contains(bucketFields, f) {
			l.add("field %q of a bucket, which names.go lacks", f)
		}
	}
	for _, f := range bucketFields {
		if !used[f] {
			l.add("nothing uses field %q of a bucket", f)
		}
	}
}

// check checks one script.
func (l *lint) check(name, src string) {
	l.name, l.src = name, src
	src = comment.ReplaceAllString(src, "")
	l.checkCommands(src)
	switch name {
	case "lib.lua":
	case "quota.lua":
		l.checkBucket(src)
		fallthrough
	default:
		l.checkReplies(src)
	}
}

func newLint(t *testing.T) *lint {
	t.Helper()
	return &lint{lists: readLists(t), fields: map[string]bool{}, places: map[string]bool{}}
}

// Scripts and names.go name the same fields and places.
func TestScripts(t *testing.T) {
	t.Parallel()
	l := newLint(t)
	files, err := filepath.Glob("scripts/*.lua")
	if err != nil || len(files) < 10 {
		t.Fatalf("scripts: %v, %v", files, err)
	}
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		l.check(filepath.Base(f), string(src))
	}
	for _, p := range l.problems {
		t.Error(p)
	}
	for f := range l.run {
		if !l.fields["R "+f] {
			t.Errorf("no script uses field %q of a run", f)
		}
	}
	// Versions of an agent are read without a script.
	read := []string{"stored", "logged", "latest", "definition"}
	for reply, places := range l.replies {
		for _, p := range places {
			if !slices.Contains(read, reply) && !l.places[reply+" "+p] {
				t.Errorf("no script fills place %s of reply %s", p, reply)
			}
		}
	}
}

// TestScripts detects each kind of disagreement.
func TestScriptsThatDisagree(t *testing.T) {
	t.Parallel()
	const head = "-- returns commit, verdict {'fenced'}\n"
	for src, want := range map[string]string{
		"redis.call('HSET', R, 'st', 1, 'xyz', 2)":                        `field "xyz"`,
		"redis.call('HINCRBY', R, 'zz', 1)":                               `field "zz"`,
		"local n = redis.call('HGET', R, 'nn')":                           `field "nn"`,
		"redis.call('HSET', R, name, 1)":                                  "no constant",
		"redis.call('HSET', Q, 'st', 1)":                                  "no hash",
		"redis.call(op, R, 'st', 1)":                                      "no constant",
		"redis.call('HSET', A, 'oldest', 1)":                              `field "oldest"`,
		"local status, lane = unpack(redis.call('HMGET', R, 'st', 'x'))":  `field "x"`,
		"local lane, status = unpack(redis.call('HMGET', R, 'st', 'ln'))": "is read into lane",
		"local status = unpack(redis.call('HMGET', R, 'st', 'ln'))":       "into 1 variables",
		"local h = redis.call('HMGET', R, 'st', 'ln')":                    "not read into variables",
		"return {'ok', version, status}":                                  "none of",
		"return {'ok', status, version, 1, 0, 1, 1}":                      "none of",
		"return {'ok', h[2]}":                                             "none of",
		"return {'closed', status, name}":                                 "none of",
	} {
		l := newLint(t)
		if l.check("x.lua", head+src); len(l.problems) == 0 || !strings.Contains(strings.Join(l.problems, "\n"), want) {
			t.Errorf("%s: found %q, want %q", src, l.problems, want)
		}
	}
	l := newLint(t)
	l.check("x.lua", "-- returns nobody\n")
	l.check("quota.lua", "-- returns take\nb.zz = 1\n")
	if got := strings.Join(l.problems, "\n"); !strings.Contains(got, "nobody") || !strings.Contains(got, `"zz"`) {
		t.Errorf("found %q", got)
	}
}

// Go code reads the places of replies and the fields of hashes by their names.
func TestPlacesHaveNames(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	reads := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := c.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			from := map[string]int{"str": 0, "num": 0, "list": 0, "flag": 0, "HGet": 2, "HMGet": 2, "HSet": 2}
			at, ok := from[f.Sel.Name]
			if !ok || len(c.Args) <= at {
				return true
			}
			reads++
			if _, lit := c.Args[at].(*ast.BasicLit); lit {
				t.Errorf("%s: names.go has no name for this", set.Position(c.Pos()))
			}
			return true
		})
	}
	if reads < 40 {
		t.Errorf("%d places are read: the test does not see them", reads)
	}
}
