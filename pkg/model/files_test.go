package model

import (
	"fmt"
	"strings"
	"testing"
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
