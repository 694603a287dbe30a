package docs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/internal/eval"
	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// mostCode is the maximum number of lines of a code block: a page shows excerpts, and names the file.
const mostCode = 40

// inspect checks that a block is what its mark says. Commands have been run before.
func inspect(t *testing.T, s *session, b block) {
	t.Helper()
	var err error
	switch b.info {
	case "sh", "text", "mermaid", "html":
	case "console":
		err = s.known(t, b)
	case "yaml":
		err = s.definition(t, b)
	case "yaml part":
		err = s.part(t, b)
	case "yaml prices":
		_, err = model.ParsePrices([]byte(b.text))
	case "yaml rate-limits":
		_, err = model.ParseRateLimits([]byte(b.text))
	case "yaml cases":
		_, err = eval.Parse([]byte(b.text))
	case "yaml hook":
		var data []byte
		if data, err = yaml.YAMLToJSONStrict([]byte(b.text)); err == nil {
			err = api.Decode(data, &api.HookSettings{})
		}
	case "yaml trigger":
		var data []byte
		if data, err = yaml.YAMLToJSONStrict([]byte(b.text)); err == nil {
			err = api.Decode(data, &api.TriggerSettings{})
		}
	case "yaml schedule":
		var data []byte
		if data, err = yaml.YAMLToJSONStrict([]byte(b.text)); err == nil {
			err = api.Decode(data, &api.ScheduleSettings{})
		}
	case "yaml script":
		err = script(t, b)
	case "yaml config":
		err = s.config(t, b)
	case "yaml compose":
		err = yaml.Unmarshal([]byte(b.text), &map[string]any{})
	case "json":
		err = documents(b.text)
	case "json run":
		err = api.Decode([]byte(b.text), &api.SubmitRequest{})
	case "go", "python", "ts":
		if !slices.ContainsFunc(sources(t), func(text string) bool { return strings.Contains(text, plain(b.text)) }) {
			err = errors.New("the block is in no file of examples and in no _test.go file")
		}
		if n := strings.Count(b.text, "\n"); n > mostCode {
			err = fmt.Errorf("the block has %d lines, at most %d are allowed: show only the part that the section describes", n, mostCode)
		}
	default:
		err = errors.New("CONTRIBUTING.md does not define this kind of block")
	}
	if err != nil {
		t.Errorf("%s: ```%s: %v", b.at, b.info, err)
	}
}

// definition saves an agent, as a reader would. A block that says which example it is,
// is that file.
func (s *session) definition(t *testing.T, b block) error {
	t.Helper()
	first, rest, _ := strings.Cut(b.text, "\n")
	if path, is := strings.CutPrefix(first, "# examples/"); is {
		file, err := os.ReadFile(filepath.Join(root, "examples", filepath.FromSlash(path)))
		if err == nil && body(string(file)) != rest {
			err = errors.New("it differs from that file, behind its comment")
		}
		if err != nil {
			return err
		}
	}
	var def struct {
		Name string `json:"name"`
	}
	if err := yaml.Unmarshal([]byte(b.text), &def); err != nil {
		return err
	}
	_, err := s.client.PutAgent(t.Context(), def.Name, []byte(b.text))
	return err
}

// body returns a file without the comment at its head.
func body(text string) string {
	for strings.HasPrefix(text, "#") {
		_, text, _ = strings.Cut(text, "\n")
	}
	return text
}

// part saves a part of a definition, with what it lacks.
func (s *session) part(t *testing.T, b block) error {
	t.Helper()
	def := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(b.text), &def); err != nil {
		return err
	}
	def["name"] = "part"
	if def["model"] == nil {
		def["model"] = map[string]any{"provider": "scripted"}
	}
	data, err := json.Marshal(def)
	if err == nil {
		_, err = s.client.PutAgent(t.Context(), "part", data)
	}
	return err
}

// script reads a script of the model server. Files that it names are its reader's.
func script(t *testing.T, b block) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script.yaml")
	if err := os.WriteFile(path, []byte(b.text), 0o600); err != nil {
		return err
	}
	for _, m := range regexp.MustCompile(`[\w-]+\.jsonl`).FindAllString(b.text, -1) {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), m), []byte(`{"id":"a","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"y"}]}`), 0o600); err != nil {
			return err
		}
	}
	_, err := mockmodel.Load(path)
	return err
}

// config has turnpike read a file of settings.
func (s *session) config(t *testing.T, b block) error {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(b.text), 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(t.Context(), build(t, "./cmd/turnpike"), "ps")
	cmd.Env = append(slices.Clone(s.env), "TURNPIKE_CONFIG="+path)
	if out, err := cmd.CombinedOutput(); err != nil {
		return errors.New(string(out))
	}
	return nil
}

// documents checks that a text is JSON documents, one or more.
func documents(text string) error {
	dec := json.NewDecoder(strings.NewReader(text))
	for {
		var v any
		if err := dec.Decode(&v); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

var (
	command = regexp.MustCompile(`(?:^|[\s(])(?:turnpike|go run \./cmd/turnpike)((?: [a-z][a-z-]*)+)([^|;&)]*)`)
	target  = regexp.MustCompile(`(?:^|\s)make ([a-z-]+)`)
	flag    = regexp.MustCompile(`(?:^|\s)(--[a-z-]+)`)
)

// known checks that turnpike has the commands and flags of a block that is not run, and
// the Makefile its targets.
func (s *session) known(t *testing.T, b block) error {
	t.Helper()
	var faults []error
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range target.FindAllStringSubmatch(b.text, -1) {
		if !bytes.Contains(makefile, []byte("\n"+m[1]+":")) {
			faults = append(faults, errors.New("the Makefile has no target "+m[1]))
		}
	}
	for _, m := range command.FindAllStringSubmatch(strings.ReplaceAll(b.text, "\\\n", " "), -1) {
		words := strings.Fields(m[1])
		help, err := exec.CommandContext(t.Context(), build(t, "./cmd/turnpike"), words[0], "--help").CombinedOutput()
		if err == nil && len(words) > 1 && bytes.Contains(help, []byte("\n  "+words[0]+" "+words[1])) {
			help, err = exec.CommandContext(t.Context(), build(t, "./cmd/turnpike"), words[0], words[1], "--help").CombinedOutput()
		}
		if err != nil {
			faults = append(faults, errors.New("turnpike "+strings.Join(words, " ")+": "+string(help)))
		}
		for _, f := range flag.FindAllStringSubmatch(m[2], -1) {
			if !bytes.Contains(help, []byte(f[1])) {
				faults = append(faults, errors.New("turnpike"+m[1]+" has no flag "+f[1]))
			}
		}
	}
	return errors.Join(faults...)
}

// failures fails the test for every run of the page that failed for a reason of which
// the page does not speak.
func (s *session) failures(t *testing.T, page, printed string) {
	t.Helper()
	list, err := s.client.List(t.Context(), url.Values{"status": {"failed"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range list.Items {
		if !strings.Contains(page, *run.Reason) {
			t.Errorf("a run of %s failed (%s, %+v); the page says nothing of it:\n%s", run.Agent, *run.Reason, run.Error, printed)
		}
	}
}

// texts are those in which the code of pages must stand.
var texts = sync.OnceValues(func() ([]string, error) {
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "node_modules" || strings.HasPrefix(d.Name(), ".") && path != root) {
			return fs.SkipDir
		}
		example := strings.HasPrefix(filepath.ToSlash(path), root+"/examples/")
		if !strings.HasSuffix(path, "_test.go") && (!example || !slices.Contains([]string{".go", ".py", ".ts"}, filepath.Ext(path))) {
			return nil
		}
		text, err := os.ReadFile(path)
		all = append(all, plain(string(text)))
		return err
	})
	return all, err
})

func sources(t *testing.T) []string {
	t.Helper()
	all, err := texts()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// plain is code without its indentation: a page shows a part of a function.
func plain(code string) string {
	var b strings.Builder
	for line := range strings.Lines(code) {
		b.WriteString(strings.TrimSpace(line) + "\n")
	}
	return strings.Trim(b.String(), "\n")
}
