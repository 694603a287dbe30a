package agent

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// MaxDefinition bounds the size of a definition, and of a file of responses, in bytes.
const MaxDefinition = 1 << 20

// Load reads a definition from a file as Known.Load does, without any kinds of tools and hooks.
func Load(path string) (Definition, error) { return Known{}.Load(path) }

// Load reads a definition from a file, with the scripted responses in its ResponsesFile, which is relative to the
// directory of the file. It returns mistakes as InFile does.
func (known Known) Load(path string) (Definition, error) {
	data, err := readFile(path)
	if err != nil {
		return Definition{}, err
	}
	def, err := known.Parse(data)
	if err != nil {
		return Definition{}, InFile(path, data, err)
	}
	file := def.Model.ResponsesFile
	if file == "" {
		return def, nil
	}
	if len(def.Model.Responses) > 0 {
		return Definition{}, fmt.Errorf("%s: model has both responses and responses_file: remove one of them", path)
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(path), file)
	}
	if data, err = readFile(file); err != nil {
		err = fmt.Errorf("%w: name a file that can be read", err)
	} else {
		err = Known{}.decode(data, &def.Model.Responses)
	}
	if err != nil {
		return Definition{}, fmt.Errorf("%s: model.responses_file %s: %w", path, def.Model.ResponsesFile, err)
	}
	def.Model.ResponsesFile = ""
	return def, nil
}

// readFile reads a file, but only up to one byte more than MaxDefinition, so that decode can refuse a larger one.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	return io.ReadAll(io.LimitReader(f, MaxDefinition+1))
}
