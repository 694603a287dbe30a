package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// MaxDefinition bounds the size of a definition, in bytes.
const MaxDefinition = 1 << 20

// Parse reads a definition in YAML or JSON. An unknown key, a wrong type or
// trailing data is an error that names the place.
func Parse(data []byte) (Definition, error) {
	if len(data) > MaxDefinition {
		return Definition{}, fmt.Errorf("read definition: it has %d bytes, at most %d are allowed", len(data), MaxDefinition)
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return Definition{}, fmt.Errorf("read definition: %w", err)
	}
	var def Definition
	if err := strict(asJSON, &def); err != nil {
		return Definition{}, fmt.Errorf("read definition: %w", err)
	}
	return def, nil
}

// Load reads a definition from a file, with the responses that it keeps in
// another file beside it.
func Load(path string) (Definition, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Definition{}, err
	}
	def, err := Parse(data)
	if err != nil {
		return Definition{}, fmt.Errorf("%s: %w", path, err)
	}
	if file := def.Model.ResponsesFile; file != "" {
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(path), file)
		}
		if def.Model.Responses, err = loadResponses(file); err != nil {
			return Definition{}, fmt.Errorf("%s: model.responses_file: %w", path, err)
		}
		def.Model.ResponsesFile = ""
	}
	return def, nil
}

func loadResponses(path string) ([]model.Scripted, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var responses []model.Scripted
	if err := strict(asJSON, &responses); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return responses, nil
}

func strict(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one document")
	}
	return nil
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
			return errors.New(`approval: write "always", "never" or a rule such as "args.amount > 100"`)
		}
		*a = Approval(text)
	}
	return nil
}
