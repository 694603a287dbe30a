package effect

import (
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// wasted returns the cost of a failed call: the part that the provider has reported, plus an estimate of the rest if
// that report is missing or incomplete. A call that the provider refused has no cost. wasted also counts the tokens
// in the metrics.
func (c *modelCall) wasted(e *model.Error) state.Usage {
	u := c.resp.Usage
	reported := u != (state.Usage{})
	if !reported && !(c.sent && e.Served()) {
		return state.Usage{}
	}
	if !reported || u.Estimated {
		if u.Estimated = true; u.InputTokens == 0 {
			u.InputTokens = estimateInput(&c.req)
		}
		output := int64(max(e.Received, len(e.Partial)) / bytesPerToken)
		if c.blind || e.Class == model.Timeout {
			output = max(output, expectedAnswer(&c.req, c.t.Run.Log)) // it may have been thinking all the time
		}
		u.OutputTokens = max(u.OutputTokens, output) // a total so far lacks the rest
	}
	u.ModelCalls = 1
	u = c.priced(c.resp.Model, u)
	c.metrics.spent(u)
	return u
}

// maxTokens bounds each count in the usage of one call: a server that reports more, or less than nothing, must not
// overflow the sums of its tenant or reduce what a limit counts.
const maxTokens = 1_000_000_000

// priced returns the usage of a call, within bounds, with its cost, and with the tokens that it had to send again
// because the provider's cache had dropped them.
func (c *modelCall) priced(answered string, u state.Usage) state.Usage {
	for _, n := range []*int64{
		&u.InputTokens, &u.OutputTokens, &u.CacheReadTokens, &u.CacheWriteTokens, &u.CacheHourTokens, &u.WebSearches, &u.WebFetches, &u.CodeExecutions,
	} {
		*n = min(max(*n, 0), maxTokens)
	}
	name := c.cfg.Prices.NameOf(c.of.Provider, c.of.BaseURL, c.req.Model, answered)
	u.CostUSD = c.cfg.Prices.Cost(name, u)
	if !u.Estimated {
		u.CacheExpiredTokens = state.CacheExpired(c.t.Run.Log, answered, u)
		u.CacheExpiredCostUSD = c.cfg.Prices.CacheExpired(name, u)
	}
	return u
}

// said returns the text of the last response that broke off; "" for a summary, which has no readers.
func (c *modelCall) said() string {
	if c.last == nil || c.purpose != loop.ForTurn {
		return ""
	}
	return asModelError(c.last).Partial
}

// lose moves the last failed try to the list of lost ones, if it has text or a cost.
func (c *modelCall) lose() {
	if l := (loop.Lost{Text: c.said(), Spent: c.spent}); l != (loop.Lost{}) {
		c.lost = append(c.lost, l)
	}
	c.last, c.spent = nil, state.Usage{}
}

// Lost returns the estimated cost of n calls like the given one whose outcome is in no journal, and counts
// their tokens in the metrics.
func (p *Performer) Lost(t *Turn, a *agent.Agent, call *loop.CallModel, n int64) state.Usage {
	ms, m := &p.models, modelOf(a, t.Run)
	req := model.Request{Model: m.Name, Messages: call.Messages, Tools: call.Tools, MaxOutputTokens: m.MaxOutputTokens}
	u := state.Usage{InputTokens: n * estimateInput(&req), OutputTokens: n * expectedAnswer(&req, t.Run.Log), ModelCalls: n, Estimated: true}
	u.CostUSD = ms.cfg.Prices.Cost(ms.cfg.Prices.NameOf(m.Provider, m.BaseURL, m.Name, ""), u)
	ms.metrics.spent(u)
	return u
}

// Guesses of sizes, in bytes and tokens. The worker corrects them after the call.
const (
	bytesPerToken  = 4
	tokensPerImage = 1000
	tokensPerPage  = 2500
	firstAnswer    = 512

	bytesPerProviderTool = 2000 // of the description that the provider adds
)

// estimateInput estimates the tokens of a request.
func estimateInput(req *model.Request) int64 {
	size, images := 0, 0
	for _, m := range req.Messages {
		for _, p := range m.Parts {
			size += len(p.Text) + len(p.Arguments)
			if p.Type == state.PartProviderTool {
				size += max(len(p.Content), len(p.Opaque))
			} else {
				size += len(p.Content)
			}
			images += len(p.Images)
			for _, f := range p.Files {
				size += bytesPerToken * tokensOfFile(f)
			}
			switch p.Type {
			case state.PartImage:
				images++
			case state.PartFile:
				size += bytesPerToken * tokensOfFile(p)
			default:
			}
		}
	}
	for _, t := range req.Tools {
		size += len(t.Name) + len(t.Description) + len(t.Schema)
	}
	for _, t := range req.ProviderTools {
		size += len(t.Name) + len(t.Settings) + bytesPerProviderTool
	}
	return int64(size/bytesPerToken + images*tokensPerImage)
}

// tokensOfFile estimates the tokens of a file by its size: a text like other texts; audio by seconds of 16 KiB, at 32
// tokens each; a PDF, or any other file, by pages of 50 KiB, each with its text and its image. An image counts the
// same at any size. A file of unknown size has size 0, and counts as one token, one second or one page.
func tokensOfFile(p state.Part) int {
	size := int(p.Bytes)
	switch model.FileKindOf(p.MediaType) {
	case model.FileText:
		return max(size/bytesPerToken, 1)
	case model.FileImage:
		return tokensPerImage
	case model.FileAudio:
		return max(size/(16<<10)*32, 32)
	default:
		return (size/(50<<10) + 1) * tokensPerPage
	}
}

// expectedAnswer estimates the tokens of a response: as many as the run's last one has, or firstAnswer if there
// is none.
func expectedAnswer(req *model.Request, log []state.Entry) int64 {
	answer := int64(firstAnswer)
	if req.MaxOutputTokens > 0 {
		answer = min(answer, req.MaxOutputTokens)
	}
	if last := loop.LastAnswer(log); last != nil {
		answer = *last
	}
	return answer
}
