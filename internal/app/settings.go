package app

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"sigs.k8s.io/yaml"
)

// Parse reads a process's settings from the command line, the environment and the file that TURNPIKE_CONFIG names, in
// this order of precedence. On a mistake it prints the mistake and how to get the usage, and ends the process with
// code 80.
func Parse(into any, name, description string, options ...kong.Option) *kong.Context {
	options = append([]kong.Option{kong.Name(name), kong.Description(description)}, options...)
	if path := os.Getenv("TURNPIKE_CONFIG"); path != "" {
		f, err := readFile(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, name+":", err)
			os.Exit(exitUsage)
		}
		options = append(options, kong.Resolvers(f))
	}
	k := kong.Must(into, options...)
	if len(os.Args) == 1 && len(k.Model.Children) > 0 {
		// Without arguments, show the help.
		k.Stdout, k.Exit = os.Stderr, func(int) { os.Exit(exitUsage) }
		_, err := k.Parse([]string{"--help"})
		k.FatalIfErrorf(err)
	}
	parsed, err := k.Parse(asked(os.Args[1:]))
	if err != nil {
		var context *kong.Context
		if e, ok := errors.AsType[*kong.ParseError](err); ok {
			context = e.Context
		}
		fmt.Fprintln(os.Stderr, mistake(name, context, err.Error()))
		os.Exit(exitUsage)
	}
	return parsed
}

// asked turns "help COMMAND" into "COMMAND --help": people say both.
func asked(args []string) []string {
	if len(args) > 0 && args[0] == "help" {
		return append(slices.Clone(args[1:]), "--help")
	}
	return args
}

// exitUsage is the exit code after a mistake in the command line, a variable or a
// settings file.
const exitUsage = 80

// Fail prints the error of a command as words, and returns the exit code. A [UsageError] has an
// exit code of its own, and a line that points to the help.
func Fail(out io.Writer, parsed *kong.Context, err error, words string) int {
	code := exitCode(err)
	if name := parsed.Model.Name; code == exitUsage {
		words = mistake(name, parsed, words)
	} else {
		words = name + ": " + words
	}
	fmt.Fprintln(out, words)
	return code
}

// mistake returns the text of a mistake, with a line that points to the help.
func mistake(name string, context *kong.Context, text string) string {
	command := name
	if context != nil {
		for _, p := range context.Path {
			if p.Command != nil {
				command += " " + p.Command.Name
			}
		}
		if command == name && len(context.Model.Children) > 0 {
			text = strings.Replace(text, "unexpected argument ", "there is no command ", 1)
		}
	}
	text = noChoice.Replace(text)
	return fmt.Sprintf("%s: %s\nrun %s --help for the usage", name, text, command)
}

// noChoice removes the empty value from kong's lists of choices.
var noChoice = strings.NewReplacer(`one of "",`, "one of ", `,"" but`, " but")

// file has the values of a settings file, by the names of flags.
type file struct {
	path   string
	values map[string]any
}

func readFile(path string) (*file, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read settings: %w: set TURNPIKE_CONFIG to a file that this process can read, or unset it", err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(data, &values); err != nil {
		return nil, fmt.Errorf("read settings %s: %w: correct the file", path, err)
	}
	f := &file{path: path, values: map[string]any{}}
	for key, v := range values {
		name := strings.ReplaceAll(key, "_", "-")
		if _, twice := f.values[name]; twice {
			return nil, fmt.Errorf("read settings %s: the key %s occurs twice, once written with - and once with _: remove one", path, name)
		}
		f.values[name] = v
	}
	return f, nil
}

// Validate refuses keys that no process has: a setting that is misspelt would be
// one that is not made. One file may serve them all.
func (f *file) Validate(process *kong.Application) error {
	known := map[string]bool{}
	services, err := kong.New(&struct {
		Config
		GatewayConfig
		TenantConfig
		DrainConfig
		AdminConfig
		WorkerConfig
	}{})
	if err != nil {
		return err
	}
	for _, n := range []*kong.Node{process.Node, services.Model.Node} {
		_ = kong.Visit(n, func(v kong.Visitable, next kong.Next) error {
			if n, ok := v.(*kong.Node); ok {
				for _, flag := range n.Flags {
					known[flag.Name] = !flag.Hidden
				}
			}
			return next(nil)
		})
	}
	delete(known, "help")
	delete(known, "version")
	for _, name := range slices.Sorted(maps.Keys(f.values)) {
		if !known[name] {
			return fmt.Errorf("settings %s: unknown key %q: use the names of flags that --help lists", f.path, name)
		}
	}
	return nil
}

// Resolve returns the value of a flag that is on neither the command line nor in the
// environment.
func (f *file) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, name := range flag.Envs {
		if _, ok := os.LookupEnv(name); ok {
			return nil, nil //nolint:nilnil // kong: not said here
		}
	}
	return f.values[flag.Name], nil
}
