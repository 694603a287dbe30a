package effect

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The estimate of a request has all that is sent: also the images and files within results, and the tools.
func TestEstimateOfARequest(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 400) // 100 tokens
	file := func(mediaType string, bytes int64) state.Part {
		return state.Part{Type: state.PartFile, MediaType: mediaType, Bytes: bytes}
	}
	result := func(p state.Part) state.Part {
		p.Type = state.PartToolResult
		return p
	}
	for name, c := range map[string]struct {
		part state.Part
		want int64
	}{
		"text":                  {state.Part{Type: state.PartText, Text: text}, 100},
		"thinking":              {state.Part{Type: state.PartThinking, Text: text, Opaque: json.RawMessage(text)}, 100},
		"call":                  {state.Part{Type: state.PartToolCall, Arguments: text}, 100},
		"result":                {result(state.Part{Content: text}), 100},
		"provider's tool":       {state.Part{Type: state.PartProviderTool, Content: text, Arguments: text}, 200},
		"provider's tool, seal": {state.Part{Type: state.PartProviderTool, Content: "x", Opaque: json.RawMessage(text)}, 100},
		"image":                 {state.Part{Type: state.PartImage, Data: text}, tokensPerImage},
		"images of a result":    {result(state.Part{Images: make([]state.Image, 3)}), 3 * tokensPerImage},
		"text file":             {file("text/plain", 400), 100},
		"PDF":                   {file("application/pdf", 0), tokensPerPage},
		"PDF of two pages":      {file("application/pdf", 60<<10), 2 * tokensPerPage},
		"audio":                 {file("audio/wav", 32<<10), 64},
		"short audio":           {file("audio/wav", 1), 32},
		"image file":            {file("image/png", 9<<20), tokensPerImage},
		"empty text file":       {file("text/plain", 0), 1},
		"files of a result":     {result(state.Part{Content: text, Files: []state.Part{file("text/plain", 400), file("application/pdf", 1)}}), 200 + tokensPerPage},
	} {
		r := model.Request{Messages: []state.Message{{Parts: []state.Part{c.part}}, {}, {Parts: []state.Part{c.part}}}}
		if got := estimateInput(&r); got != 2*c.want {
			t.Errorf("%s twice: %d tokens, want %d", name, got, 2*c.want)
		}
	}
	r := model.Request{
		Tools:         []model.ToolSpec{{Name: text, Description: text, Schema: json.RawMessage(text)}, {Name: text}},
		ProviderTools: []model.ProviderTool{{Name: text, Settings: json.RawMessage(text)}},
	}
	if got := estimateInput(&r); got != 600+bytesPerProviderTool/bytesPerToken {
		t.Errorf("tools: %d tokens", got)
	}
}

// The estimate of an answer is the last one of the run. The first is bounded by the limit of the request.
func TestEstimateOfAnAnswer(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int64]int64{0: firstAnswer, 7: 7, 9 * firstAnswer: firstAnswer} {
		if got := expectedAnswer(&model.Request{MaxOutputTokens: limit}, nil); got != want {
			t.Errorf("limit %d: %d tokens, want %d", limit, got, want)
		}
	}
	log := []state.Entry{
		{Type: state.EntryModel, Usage: &state.Usage{OutputTokens: 3}}, {Type: state.EntryModel, Usage: &state.Usage{OutputTokens: 900}}, {Type: state.EntryModel}, {Type: state.EntryTransition, Usage: &state.Usage{}},
	}
	if got := expectedAnswer(&model.Request{MaxOutputTokens: 7}, log); got != 900 {
		t.Errorf("after an answer: %d tokens, want 900", got)
	}
}
