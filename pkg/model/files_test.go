package model

import (
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The docs have a row for each kind of file, with each provider's treatment.
func TestFilesDoc(t *testing.T) {
	t.Parallel()
	specs := BuiltinSpecs()
	cell := func(provider string, api API, kind FileKind, inResult bool) string {
		for _, f := range specs[provider].Files {
			if f.Kind != kind || f.API != "" && f.API != api {
				continue
			}
			if inResult {
				return f.Result
			}
			text := f.As
			var except []string
			for _, n := range f.Not {
				except = append(except, n.Models)
			}
			if len(f.Types) > 0 {
				var types []string
				for _, name := range f.Types {
					_, short, _ := strings.Cut(name, "/")
					types = append(types, short)
				}
				text += ": " + strings.Join(types, ", ")
			}
			if len(except) > 0 {
				text += "; not " + strings.Join(except, ", ")
			}
			return text
		}
		return ""
	}
	var table strings.Builder
	table.WriteString("| file | anthropic | openai, Responses | openai, chat | gemini |\n|---|---|---|---|---|\n")
	for _, inResult := range []bool{false, true} {
		for _, kind := range []FileKind{FilePDF, FileText, FileImage, FileAudio} {
			title := string(kind)
			if inResult {
				title += " in a tool result"
			}
			fmt.Fprintf(&table, "| %s | %s | %s | %s | %s |\n", title,
				cell("anthropic", "", kind, inResult), cell("openai", APIResponses, kind, inResult), cell("openai", APIChat, kind, inResult), cell("gemini", "", kind, inResult))
		}
	}
	size := func(provider string) string { return fmt.Sprintf("%d MB", specs[provider].FileBytes/1_000_000) }
	fmt.Fprintf(&table, "| all of a request, before base64 | %s | %s | %s | %s |\n", size("anthropic"), size("openai"), size("openai"), size("gemini"))
	section(t, "files", table.String())
}

// The table names every family of models that refuses a file, and all builds of such a family refuse it.
func TestFilesOfOldModels(t *testing.T) {
	t.Parallel()
	pdf := state.Part{Type: state.PartFile, MediaType: "application/pdf", Data: "JVBERg=="}
	for family, builds := range map[string][]string{
		"gpt-3.5": {"gpt-3.5-turbo", "gpt-3.5-turbo-0125", "gpt-3.5-turbo-1106", "gpt-3.5-turbo-16k"},
		"gpt-4":   {"gpt-4", "gpt-4-0613", "gpt-4-0314", "gpt-4-32k", "gpt-4-32k-0613", "openai/gpt-4"},
		"o1-mini": {"o1-mini", "o1-mini-2024-09-12"},
		"o3-mini": {"o3-mini", "o3-mini-2025-01-31"},
		"":        {"gpt-4o", "gpt-4o-2024-08-06", "gpt-4-turbo", "gpt-4-turbo-2024-04-09", "gpt-4.1", "gpt-5", "gpt-5-mini", "o1", "o3", "o4-mini"},
	} {
		if family != "" && !strings.Contains(beforeVision.Models, family) {
			t.Errorf("the docs name %q as models without files, which lacks %s", beforeVision.Models, family)
		}
		for _, name := range builds {
			for _, api := range []API{APIResponses, APIChat} {
				refusal := BuiltinSpecs()["openai"].CheckFiles(Choice{Provider: "openai", Model: name, API: api}, pdf)
				if (refusal != "") != (family != "") {
					t.Errorf("%s over %s: %q", name, api, refusal)
				}
			}
		}
	}
}
