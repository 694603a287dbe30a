package model

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-dev/turnpike/internal/modelname"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// FileKind is a kind of file, which decides how a provider receives it.
type FileKind string

// The kinds. FileOther is every other kind.
const (
	FilePDF   FileKind = "PDF"
	FileText  FileKind = "text"
	FileImage FileKind = "image"
	FileAudio FileKind = "audio"
	FileOther FileKind = "other"
)

// textTypes are media types of texts that do not begin with text/.
var textTypes = []string{
	"application/json", "application/ld+json", "application/x-ndjson", "application/xml", "application/yaml", "application/x-yaml", "application/toml",
	"application/javascript", "application/x-sh", "application/sql", "application/x-python",
}

// FileKindOf returns the kind of a file. mediaType must be in lower case and without parameters: see MediaType.
func FileKindOf(mediaType string) FileKind {
	switch {
	case mediaType == "application/pdf":
		return FilePDF
	case strings.HasPrefix(mediaType, "image/"):
		return FileImage
	case strings.HasPrefix(mediaType, "audio/"):
		return FileAudio
	case strings.HasPrefix(mediaType, "text/") || slices.Contains(textTypes, mediaType):
		return FileText
	default:
		return FileOther
	}
}

// TakenFile is a kind of file that models of a provider accept. docs/reference/models.md has a table of those of the
// built-in providers, generated from the lists in this file.
type TakenFile struct {
	Kind  FileKind
	Types []string // media types; nil means all of the kind
	API   API      // the API that accepts it; empty means all of the provider
	As    string   // the field of the request, for the docs
	URL   bool     // whether a URL is accepted instead of data
	Not   []Exception

	// Result is the place of a file in a tool result in the request, for the docs.
	Result string
}

// blind matches the families of models of OpenAI that take no images. Some of their builds have a month and a day
// in their names.
var blind = regexp.MustCompile(`^(gpt-3\.5|gpt-4(-32k)?(-\d{4})?$|o1-mini$|o3-mini$)`)

var (
	beforeVision = Exception{
		Models: "gpt-3.5, gpt-4, o1-mini and o3-mini", Text: "this model takes none: use gpt-4o or a later one",
		Refuses: func(c Choice) bool { return blind.MatchString(modelname.Family(c.Model)) },
	}
	beforePDF = Exception{
		Models: "Claude 2 and 3", Text: "this model takes none: use a later one",
		Refuses: func(c Choice) bool { return older(modelname.Claude(c.Model), 3, 5) },
	}
	deaf = Exception{
		Models: "models of OpenAI without `audio` in their names", Text: "this model takes none: use one with audio in its name",
		Refuses: func(c Choice) bool { return modelname.OpenAI(c.Model) && !strings.Contains(c.Model, "audio") },
	}
)

// Places of files in tool results.
const (
	inResult      = "in the result"
	afterResults  = "in a user message after the results"
	inResultFrom3 = "data in the result from Gemini 3 on, else after the results"
)

// Files that the built-in providers accept.
var (
	anthropicFiles = []TakenFile{
		{Kind: FilePDF, As: "`document`, base64 or URL", URL: true, Not: []Exception{beforePDF}, Result: inResult},
		{Kind: FileText, As: "`document` of plain text", Result: inResult},
		{Kind: FileImage, Types: []string{"image/png", "image/jpeg", "image/gif", "image/webp"}, As: "`image`", URL: true, Result: inResult},
	}
	openAIFiles = []TakenFile{
		{Kind: FilePDF, API: APIResponses, As: "`input_file`, base64 or URL", URL: true, Not: []Exception{beforeVision}, Result: inResult},
		{Kind: FileText, API: APIResponses, As: "`input_file`, base64 or URL", URL: true, Result: inResult},
		{Kind: FileImage, API: APIResponses, Types: []string{"image/png", "image/jpeg", "image/gif", "image/webp"}, As: "`input_image`", URL: true, Result: inResult},
		{Kind: FilePDF, API: APIChat, As: "`file`, base64", Not: []Exception{beforeVision}, Result: afterResults},
		{Kind: FileText, API: APIChat, As: "`text`, below a line with the name", Result: "in the text of the result"},
		{Kind: FileImage, API: APIChat, Types: []string{"image/png", "image/jpeg", "image/gif", "image/webp"}, As: "`image_url`", URL: true, Result: afterResults},
		{Kind: FileAudio, API: APIChat, Types: []string{"audio/wav", "audio/mpeg"}, As: "`input_audio`", Not: []Exception{deaf}, Result: afterResults},
	}
	geminiFiles = []TakenFile{
		{Kind: FilePDF, As: "`inlineData` or `fileData`", URL: true, Result: inResultFrom3},
		{Kind: FileText, As: "`inlineData` of plain text, or `fileData`", URL: true, Result: inResultFrom3 + "; before it, data is in the text of the result"},
		{Kind: FileImage, Types: []string{"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}, As: "`inlineData` or `fileData`", URL: true, Result: inResultFrom3},
		{
			Kind: FileAudio, Types: []string{"audio/wav", "audio/mpeg", "audio/aiff", "audio/aac", "audio/ogg", "audio/flac"},
			As: "`inlineData` or `fileData`", URL: true, Result: afterResults,
		},
	}
)

// Maximum number of bytes of all files of one request, before base64. Anthropic accepts requests of 32 MB, in which
// base64 adds a third; the other providers limit the files themselves.
const (
	anthropicFileBytes = 23_000_000
	openAIFileBytes    = 50_000_000
	geminiFileBytes    = 50_000_000
)

// aliases maps names of media types to those that providers know.
var aliases = map[string]string{
	"image/jpg": "image/jpeg", "audio/mp3": "audio/mpeg", "audio/x-wav": "audio/wav", "audio/wave": "audio/wav", "audio/vnd.wave": "audio/wav",
	"audio/x-aiff": "audio/aiff", "audio/x-flac": "audio/flac", "application/x-pdf": "application/pdf",
}

// MediaType returns a media type in the form that histories have: in lower case, without parameters, and with the name
// that providers know.
func MediaType(given string) string {
	name, _, _ := strings.Cut(given, ";")
	name = strings.ToLower(strings.TrimSpace(name))
	if known := aliases[name]; known != "" {
		return known
	}
	return name
}

// CheckFiles returns the reason why a model does not accept the files of a message, or "". It ignores parts of other
// types. A provider with a nil Spec.Files accepts all.
func (s Spec) CheckFiles(c Choice, parts ...state.Part) string {
	if s.Files == nil {
		return ""
	}
	c = s.withAPI(c)
	size := int64(0)
	for _, p := range parts {
		if p.Type != state.PartFile {
			continue
		}
		if text := s.refusesFile(c, p); text != "" {
			return text
		}
		size += p.Bytes
	}
	if s.FileBytes > 0 && size > s.FileBytes {
		return fmt.Sprintf("the files have %d bytes in total, %s accepts at most %d in a request: use fewer or smaller files", size, c.Provider, s.FileBytes)
	}
	return ""
}

// refusesFile returns the reason why a model does not accept a file, or "".
func (s Spec) refusesFile(c Choice, p state.Part) string {
	kind := FileKindOf(p.MediaType)
	refused := fmt.Sprintf("%s takes no %s", c.Provider, p.MediaType)
	var elsewhere API
	for _, t := range s.Files {
		switch {
		case t.Kind != kind:
			continue
		case t.API != "" && t.API != c.API:
			elsewhere = t.API
			continue
		case t.Types != nil && !slices.Contains(t.Types, p.MediaType):
			return fmt.Sprintf("%s: its models take %s, so convert the file", refused, strings.Join(t.Types, ", "))
		case p.URL != "" && !t.URL:
			return fmt.Sprintf("%s takes no url of a file of type %s: upload the file, or send its data", c.Provider, p.MediaType)
		}
		for _, e := range t.Not {
			if e.Refuses(c) {
				return fmt.Sprintf("%s takes no %s: %s", c.Model, p.MediaType, e.Text)
			}
		}
		return ""
	}
	if elsewhere != "" {
		return fmt.Sprintf("the API %s of %s takes no %s: write api: %s in the model of the agent", c.API, c.Provider, p.MediaType, elsewhere)
	}
	kinds := []string{}
	for _, t := range s.Files {
		if k := string(t.Kind); (t.API == "" || t.API == c.API) && !slices.Contains(kinds, k) {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) == 0 {
		return refused + ": its models take no files, so leave the file out"
	}
	return fmt.Sprintf("%s: its models take files of the kinds %s, so convert the file", refused, strings.Join(kinds, ", "))
}

// refusedFile returns the error of a call with a file that an adapter cannot send.
func refusedFile(provider string, p state.Part, reason string) *Error {
	name := p.Name
	if name == "" {
		name = p.FileID
	}
	return &Error{Class: InvalidRequest, Provider: provider, Message: fmt.Sprintf("the file %q of type %s cannot be sent: %s", name, p.MediaType, reason)}
}

// FileName returns the name of a file part, or a default name by its kind: some providers require a name.
func FileName(p state.Part) string {
	if p.Name != "" {
		return p.Name
	}
	switch FileKindOf(p.MediaType) {
	case FilePDF:
		return "file.pdf"
	case FileText:
		return "file.txt"
	default:
		return "file"
	}
}

// sendFile checks that an adapter can send a file part to a model. It returns an image as an image part, and gives a
// text with data its content as Text. The error is an *Error.
func (s Spec) sendFile(c Choice, p state.Part) (state.Part, error) {
	p.MediaType = MediaType(p.MediaType)
	if p.FileID != "" && p.Data == "" {
		return p, refusedFile(c.Provider, p, "the file's content was not loaded (Data is empty): report this bug in Turnpike, or set Data if your program makes the request")
	}
	if text := s.refusesFile(s.withAPI(c), p); text != "" {
		return p, refusedFile(c.Provider, p, text)
	}
	switch FileKindOf(p.MediaType) {
	case FileImage:
		return state.Part{Type: state.PartImage, MediaType: p.MediaType, Data: p.Data, URL: p.URL}, nil
	case FileText:
		if p.URL != "" {
			return p, nil
		}
		data, err := base64.StdEncoding.DecodeString(p.Data)
		if err != nil || !utf8.Valid(data) {
			return p, refusedFile(c.Provider, p, "the file's data is not UTF-8 text in base64: convert the data")
		}
		p.Text = string(data)
	default:
	}
	return p, nil
}

// sendResult returns a tool result with files that an adapter can send. A file that is an image becomes one of the
// result's images. A file that the model does not accept, or whose content the worker has left out because the history
// has too much, becomes a remark: it must not end the run, because a tool chose it.
func (s Spec) sendResult(c Choice, p state.Part) state.Part {
	files := p.Files
	p.Files, p.Images = nil, slices.Clip(p.Images)
	for _, f := range files {
		label := strings.Trim(f.FileLabel(), "[]")
		if f.FileID != "" && f.Data == "" {
			p.Content += fmt.Sprintf("\n[%s left out: the files of the history are larger than %s takes in a request]", label, c.Provider)
			continue
		}
		sent, err := s.sendFile(c, f)
		switch {
		case err != nil:
			p.Content += fmt.Sprintf("\n[%s left out: %s]", label, reasonOf(err))
		case sent.Type == state.PartImage:
			p.Images = append(p.Images, sent.Image())
		default:
			p.Files = append(p.Files, sent)
		}
	}
	return p
}

// reasonOf returns the text of an error about a file, without the name and type of the file.
func reasonOf(err error) string {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err.Error()
	}
	if _, reason, found := strings.Cut(e.Message, "cannot be sent: "); found {
		return reason
	}
	return e.Message
}

// TextOfFile returns a text file as text, below a line with its name, for adapters that send it within another text.
func TextOfFile(p state.Part) string { return "File " + FileName(p) + ":\n" + p.Text }

// SendFiles converts file parts to the form that the adapter of a built-in provider sends: an image file
// becomes an image part, and a text file with Data also gets its content as Text. If a file of a message
// cannot be sent, the error is an *Error. If a file of a tool result cannot be sent, a remark in the text of
// the result replaces it. SendFiles does not modify in, but may return it.
func SendFiles(c Choice, in []state.Message) ([]state.Message, error) {
	isFile := func(p state.Part) bool { return p.Type == state.PartFile || len(p.Files) > 0 }
	if !slices.ContainsFunc(in, func(m state.Message) bool { return slices.ContainsFunc(m.Parts, isFile) }) {
		return in, nil
	}
	spec, out := builtin[c.Provider], slices.Clone(in)
	for i, m := range in {
		if !slices.ContainsFunc(m.Parts, isFile) {
			continue
		}
		out[i].Parts = slices.Clone(m.Parts)
		for k, p := range m.Parts {
			if len(p.Files) > 0 {
				out[i].Parts[k] = spec.sendResult(c, p)
				continue
			}
			if !isFile(p) {
				continue
			}
			sent, err := spec.sendFile(c, p)
			if err != nil {
				return nil, err
			}
			out[i].Parts[k] = sent
		}
	}
	return out, nil
}
