package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// MaxDefinition bounds the size of a definition, and of a file of responses, in
// bytes.
const MaxDefinition = 1 << 20

// Parse reads a definition in YAML or JSON. The error joins every mistake that
// can be seen without knowing what the values mean: unknown keys, keys given
// twice, wrong types, each with its place.
func Parse(data []byte) (Definition, error) {
	var def Definition
	if err := decode(data, &def); err != nil {
		return Definition{}, fmt.Errorf("read definition: %w", err)
	}
	return def, nil
}

// Load reads a definition from a file, with the responses that it keeps in
// another file beside it.
func Load(path string) (Definition, error) {
	data, err := readFile(path)
	if err != nil {
		return Definition{}, err
	}
	def, err := Parse(data)
	if err != nil {
		return Definition{}, fmt.Errorf("%s: %w", path, err)
	}
	file := def.Model.ResponsesFile
	if file == "" {
		return def, nil
	}
	if len(def.Model.Responses) > 0 {
		return Definition{}, fmt.Errorf("%s: model: give responses or responses_file, not both", path)
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(filepath.Dir(path), file)
	}
	data, err = readFile(file)
	if err == nil {
		err = decode(data, &def.Model.Responses)
	}
	if err != nil {
		return Definition{}, fmt.Errorf("%s: model.responses_file %s: %w", path, def.Model.ResponsesFile, err)
	}
	def.Model.ResponsesFile = ""
	return def, nil
}

// readFile reads a file, and no more of it than decode needs to see that it is
// too large.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	return io.ReadAll(io.LimitReader(f, MaxDefinition+1))
}

// UnmarshalJSON accepts a rule as text, or a boolean for always or never.
func (a *Approval) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "true":
		*a = approvalAlways
	case "false":
		*a = approvalNever
	default:
		var text string
		if err := json.Unmarshal(b, &text); err != nil {
			return errors.New(`write "always", "never" or a rule such as "args.amount > 100"`)
		}
		*a = Approval(text)
	}
	return nil
}
