package agent

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

func (c *checker) model(place string, m Model) {
	spec, known := c.known.Providers[m.Provider]
	if !known {
		names := c.known.Providers.Names()
		text := fmt.Sprintf("%q is not a provider of this build: write one of %s", m.Provider, strings.Join(names, ", "))
		if m.Provider == "" {
			text = "it is missing: write one of " + strings.Join(names, ", ")
		}
		if _, ok := c.known.Providers["openai"]; ok {
			text += "; for a server with an API like that of OpenAI, such as Ollama or vLLM, write openai and set base_url"
		}
		c.fault(place+".provider", "%s%s", text, meant(m.Provider, names))
	}
	if known && !spec.Scripted {
		if m.Name == "" {
			c.fault(place+".name", "it is missing: give the model's name")
		}
		if len(m.Responses) > 0 || m.ResponsesFile != "" {
			c.fault(place+".responses", "only the provider scripted takes responses and responses_file: remove them, or use that provider")
		}
	}
	if m.ResponsesFile != "" {
		c.fault(place+".responses_file", "only the turnpike command reads responses_file, and only that of model: write the content of the file as responses")
	}
	if m.BaseURL != "" {
		if u, err := url.Parse(m.BaseURL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			c.fault(place+".base_url", "%q is not an http or https URL: write one such as https://example.com/v1", m.BaseURL)
		}
		if strings.Contains(m.BaseURL, secretScheme) {
			c.fault(place+".base_url", "it contains a secret, which only api_key may: move it there")
		}
		c.cloud(place, m)
	}
	switch {
	case m.API == "":
	case len(spec.APIs) == 0:
		c.fault(place+".api", "only the provider %s has a choice of APIs: remove it", strings.Join(c.choosers(), ", "))
	case !slices.Contains(spec.APIs, m.API):
		c.fault(place+".api", "it is %q: write one of %s", m.API, strings.Trim(strings.ReplaceAll(fmt.Sprint(spec.APIs), " ", ", "), "[]"))
	}
	if m.APIKey != "" && !secretPattern.MatchString(m.APIKey) {
		// The key itself must not get into an error.
		c.fault(place+".api_key", "it is not a reference: write one such as secret://OPENAI_API_KEY, never the key itself")
	}
	if m.MaxOutputTokens < 0 {
		c.fault(place+".max_output_tokens", "%d is negative: write 0 or more", m.MaxOutputTokens)
	}
	c.settings(place, m, spec)
	if m.Timeout < 0 {
		c.fault(place+".timeout", "%s is negative: write a duration such as 30s", time.Duration(m.Timeout))
	}
	for i, f := range m.Fallback {
		inner := fmt.Sprintf("%s.fallback[%d]", place, i)
		if len(f.Fallback) > 0 {
			c.fault(inner+".fallback", "a fallback cannot have its own fallback: list all of them in the model's fallback, in order")
			f.Fallback = nil
		}
		c.model(inner, f)
	}
	for i, r := range m.Responses {
		c.response(fmt.Sprintf("%s.responses[%d]", place, i), r)
	}
}

// cloud checks the address and the credentials of a model that a cloud serves.
func (c *checker) cloud(place string, m Model) {
	at, err := model.CloudAt(m.Provider, m.BaseURL)
	if err != nil {
		c.fault(place+".base_url", "%v", err)
	}
	if at.Cloud != "" && m.APIKey == "" {
		c.fault(place+".api_key", "a model of %s needs credentials: write a reference such as secret://CLOUD", at.Cloud)
	}
}

// settings checks the settings of a model against those that its provider accepts.
func (c *checker) settings(place string, m Model, spec model.Spec) {
	if m.Reasoning != "" && !slices.Contains(model.Efforts(), m.Reasoning) {
		c.fault(place+".reasoning", "it is %q: write none, low, medium, high, xhigh or max", m.Reasoning)
	}
	choice := model.Choice{Provider: m.Provider, Model: m.Name, API: m.API, BaseURL: m.BaseURL, Reasoning: m.Reasoning, Settings: m.Settings}
	for _, r := range slices.Concat(spec.Check(choice), c.known.ModelExtra.CheckExtra(m.Provider, spec, m.Extra)) {
		c.fault(place+"."+r.Key, "%s", r.Text)
	}
}

// toolChoices checks the tool settings of the models against the agent's tools.
func (c *checker) toolChoices(a *Agent) {
	for i := 0; a.ModelAt(i) != nil; i++ {
		m, place := a.ModelAt(i), "model"
		if i > 0 {
			place = fmt.Sprintf("model.fallback[%d]", i-1)
		}
		chosen := m.ToolChoice
		switch {
		case chosen.IsZero() && m.ParallelToolCalls == nil:
			continue
		case a.Loop.Type == loopTwoPhase:
			c.fault(place+".tool_choice", "the loop two_phase describes tools to the model in its prompt, where this setting has no effect: remove it, and parallel_tool_calls")
		case slices.ContainsFunc(a.hosted, func(h Source) bool { return h.hosted().Name == chosen.Tool }):
			c.fault(place+".tool_choice", "the provider runs %s, so the model cannot be made to call it: write auto, none, any or the name of a tool of another kind", chosen.Tool)
		case len(a.specs)+len(a.sources) == 0 && (chosen.Forced() || m.ParallelToolCalls != nil):
			key := ".tool_choice"
			if !chosen.Forced() {
				key = ".parallel_tool_calls"
			}
			c.fault(place+key, "the agent has no tools that the model could call: remove tool_choice and parallel_tool_calls")
		case chosen.Tool != "" && !a.mayHave(chosen.Tool):
			c.fault(place+".tool_choice", "the agent has no tool %q: write auto, none, any or the name of one of %s", chosen.Tool, strings.Join(a.ToolNames(), ", "))
		}
	}
}

// choosers returns the providers that have several APIs.
func (c *checker) choosers() []string {
	var names []string
	for _, name := range c.known.Providers.Names() {
		if len(c.known.Providers[name].APIs) > 0 {
			names = append(names, name)
		}
	}
	return names
}

func (c *checker) response(place string, r model.Scripted) {
	switch r.Error {
	case "", model.RateLimited, model.Overloaded, model.PromptTooLong, model.InvalidRequest, model.Auth, model.Transport:
	default:
		c.fault(place+".error", "it is %q: write rate_limited, overloaded, prompt_too_long, invalid_request, auth or transport", r.Error)
	}
	switch r.Stop {
	case "", model.StopMaxOutputTokens, model.StopRefusal:
	default:
		c.fault(place+".stop", "it is %q: write max_output_tokens or refusal", r.Stop)
	}
	if r.Show != "" && r.Show != model.ShowSettings {
		c.fault(place+".show", "%q is not valid: write settings, or remove it", r.Show)
	}
	if r.Delay < 0 {
		c.fault(place+".delay", "%s is negative: write a duration such as 30s", time.Duration(r.Delay))
	}
	if r.RetryAfter < 0 {
		c.fault(place+".retry_after", "%s is negative: write a duration such as 30s", time.Duration(r.RetryAfter))
	}
	if u := r.Usage; u != nil && (u.InputTokens < 0 || u.OutputTokens < 0) {
		c.fault(place+".usage", "input_tokens is %d and output_tokens %d, but neither may be negative: write 0 or more", u.InputTokens, u.OutputTokens)
	}
	for i, use := range r.ProviderTools {
		if !model.IsProviderTool(use.Name) {
			c.fault(fmt.Sprintf("%s.provider_tools[%d].name", place, i), "it is %.80q: write one of %s", use.Name, strings.Join(model.ProviderTools(), ", "))
		}
	}
	for i, call := range r.ToolCalls {
		if call.Name == "" {
			c.fault(fmt.Sprintf("%s.tool_calls[%d].name", place, i), "it is missing: name a tool")
		}
	}
}
