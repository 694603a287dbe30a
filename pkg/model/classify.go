package model

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/secret"
)

// rule is one row of the table below: an answer that matches all fields that the row sets has its class.
type rule struct {
	status int            // of HTTP; 0 matches any
	words  []string       // error.type or error.code is one of these
	text   *regexp.Regexp // matches error.message
	detail *regexp.Regexp // matches the names in the details of errors of Google
	class  Class
}

// rules classifies every failure that a provider reports itself: by a status, or by an error event in a stream that
// began with status 200. The first row that matches applies. Specific words such as context_length_exceeded precede
// texts, texts precede general words such as invalid_request_error, and most statuses come last, because proxies and
// compatible servers choose statuses freely. Rules for rate limits, also by status 429, precede most texts about
// lengths, because "too many tokens" may mean either.
//
// The words of the formats of OpenAI, Anthropic and Google do not collide, so one table serves them and every server
// that imitates them. A finish reason of Gemini that is a failure is classified as if it were the code of an error.
var rules = []rule{
	{words: []string{"script_exhausted"}, class: Exhausted}, // the mock model server

	{words: []string{"context_length_exceeded", "request_too_large", "exceed_context_size_error", "model_context_window_exceeded"}, class: PromptTooLong},
	{words: []string{"insufficient_quota", "billing_error", "billing_hard_limit_reached", "billing_not_active", "credit_balance_too_low", "access_terminated", "exceeded_current_quota_error"}, class: Quota},
	{words: []string{"content_filter", "content_policy_violation", "invalid_prompt", "data_inspection_failed"}, class: ContentFilter},
	{words: []string{"cyber_policy", "cyber_policy_violation", "bio_policy", "misalignment_policy_violation", "image_content_policy_violation"}, class: ContentFilter}, // OpenAI's Responses

	// Gemini reports every limit as a quota. A daily limit, or billing that is off, is a Quota. A limit per
	// minute, or with a delay, is a rate limit. Rows below decide about the others by their text.
	{words: []string{"RESOURCE_EXHAUSTED"}, detail: regexp.MustCompile(`PerDay|BILLING_DISABLED`), class: Quota},
	{words: []string{"RESOURCE_EXHAUSTED"}, detail: regexp.MustCompile(`RetryInfo|PerMinute|RATE_LIMIT_EXCEEDED`), class: RateLimited},
	{words: []string{"prompt_blocked"}, class: ContentFilter},

	// A request above the limit of tokens a minute never fits, however long one waits.
	{text: regexp.MustCompile(`(?i)request too large for .*tokens per min`), class: PromptTooLong},
	{text: regexp.MustCompile(`(?i)credit balance is too low|exceeded your current quota|reached your specified api usage limits|insufficient (credits|balance|funds|quota)`), class: Quota},
	{text: regexp.MustCompile(`(?i)used all available credits|monthly spending (cap|limit)|prepayment (credits?|funds) (is|are) depleted`), class: Quota}, // xAI, Google
	{words: []string{"overloaded_error", "server_is_overloaded", "slow_down", "engine_overloaded", "engine_overloaded_error"}, class: Overloaded},
	{words: []string{"rate_limit_error", "rate_limit_exceeded", "rate_limit_reached", "too_many_requests", "tokens", "requests", "RESOURCE_EXHAUSTED"}, class: RateLimited},
	{text: regexp.MustCompile(`(?i)rate limit|too many requests|throttl`), class: RateLimited},
	{status: http.StatusTooManyRequests, class: RateLimited},

	{text: regexp.MustCompile(`(?i)(prompt|input|request|conversation) is too long`), class: PromptTooLong},                               // Anthropic, Bedrock
	{text: regexp.MustCompile(`(?i)input length and .?max_tokens.? exceed context limit`), class: PromptTooLong},                          // Anthropic
	{text: regexp.MustCompile(`(?i)exceeds? the (model.s )?context (window|length)`), class: PromptTooLong},                               // OpenAI
	{text: regexp.MustCompile(`(?i)maximum (context|prompt|input) length`), class: PromptTooLong},                                         // OpenAI, vLLM, OpenRouter, xAI
	{text: regexp.MustCompile(`(?i)maximum allowed input length`), class: PromptTooLong},                                                  // OpenRouter
	{text: regexp.MustCompile(`(?i)input token count .*exceeds`), class: PromptTooLong},                                                   // Gemini
	{text: regexp.MustCompile(`(?i)reduce the length of the (messages|prompt|input)`), class: PromptTooLong},                              // Groq
	{text: regexp.MustCompile(`(?i)longer than the model.s context length`), class: PromptTooLong},                                        // Together
	{text: regexp.MustCompile(`(?i)exceeds the available context size|greater than the context length`), class: PromptTooLong},            // llama.cpp, LM Studio
	{text: regexp.MustCompile(`(?i)(prompt token count of \d+|context window) exceeds|exceeded model token limit`), class: PromptTooLong}, // Copilot, MiniMax, Kimi
	{text: regexp.MustCompile(`(?i)prompt too long`), class: PromptTooLong},                                                               // Ollama
	{text: regexp.MustCompile(`(?i)longer than the maximum model length`), class: PromptTooLong},                                          // vLLM
	{text: regexp.MustCompile("(?i)`inputs`( tokens \\+ `max_new_tokens`)? must (be <=|have less than)"), class: PromptTooLong},           // TGI
	{text: regexp.MustCompile(`(?i)when context the overflows|too many tokens|token limit exceeded`), class: PromptTooLong},               // LM Studio, Cohere, others
	{text: regexp.MustCompile(`(?i)invalid '(messages|input)\b[^']*': (string|array) too long`), class: PromptTooLong},                    // OpenAI
	{status: http.StatusRequestEntityTooLarge, class: PromptTooLong},

	{text: regexp.MustCompile(`(?i)content (filtering|management) policy|violating our usage policy|flagged as potentially violating`), class: ContentFilter},
	{text: regexp.MustCompile(`(?i)content violates usage guidelines|^content exists risk`), class: ContentFilter}, // xAI, DeepSeek

	{words: []string{"authentication_error", "permission_error", "invalid_api_key", "invalid_authentication", "account_deactivated", "unsupported_country_region_territory"}, class: Auth},
	{words: []string{"UNAUTHENTICATED", "PERMISSION_DENIED"}, class: Auth},
	{detail: regexp.MustCompile(`API_KEY_INVALID`), class: Auth}, // Google, with status 400
	{text: regexp.MustCompile(`(?i)user location is not supported|organization has been disabled`), class: Auth},
	{words: []string{"DEADLINE_EXCEEDED"}, class: Timeout},
	{words: []string{"UNAVAILABLE", "INTERNAL", "UNKNOWN", "ABORTED", "CANCELLED"}, class: Overloaded},
	{words: []string{"MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "OTHER", "NO_IMAGE", "IMAGE_OTHER"}, class: Overloaded}, // Gemini failed; another try may not
	{words: []string{"LANGUAGE", "MISSING_THOUGHT_SIGNATURE", "CONTINUATION"}, class: InvalidRequest},
	{words: []string{"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "OUT_OF_RANGE", "UNIMPLEMENTED"}, class: InvalidRequest, status: http.StatusOK},
	{words: []string{"throttlingException"}, class: RateLimited}, // Bedrock, in a stream
	{words: []string{"modelTimeoutException"}, class: Timeout},
	{words: []string{"serviceUnavailableException", "internalServerException", "modelStreamErrorException"}, class: Overloaded},
	{words: []string{"validationException"}, class: InvalidRequest, status: http.StatusOK},
	{words: []string{"timeout_error", "vector_store_timeout"}, class: Timeout},
	{words: []string{"api_error", "server_error", "internal_server_error", "internal_error"}, class: Overloaded},
	{words: []string{"invalid_request_error", "not_found_error", "model_not_found", "unsupported_parameter", "unsupported_value", "invalid_value"}, class: InvalidRequest, status: http.StatusOK},
	{words: []string{"data_residency_mismatch", "invalid_encrypted_content", "previous_response_not_found", "unsupported_image_media_type", "empty_image_file", "failed_to_download_image"}, class: InvalidRequest, status: http.StatusOK},
	{words: []string{"invalid_image", "invalid_image_format", "invalid_base64_image", "invalid_image_url", "invalid_image_mode", "image_too_large", "image_too_small", "image_parse_error", "image_file_too_large", "image_file_not_found"}, class: InvalidRequest, status: http.StatusOK},

	{status: http.StatusUnauthorized, class: Auth},
	{status: http.StatusForbidden, class: Auth},
	{status: http.StatusPaymentRequired, class: Quota},
	{status: http.StatusRequestTimeout, class: Timeout},
	{status: http.StatusGatewayTimeout, class: Timeout},
	{status: http.StatusConflict, class: Overloaded},
}

// Failure is a provider's answer to a call that failed.
type Failure struct {
	Provider string
	Secret   string // the API key; Classify removes it from the message
	Status   int
	Header   http.Header // may be nil
	Body     []byte      // of the response, or the data of an error event
}

// Classify converts a failure to an error without the secret. If the class is RateLimited or Overloaded, the error has
// the delay that the provider asks for. The table in this file has all rules. A failure that matches no row is
// Overloaded with a status from 500 on, Transport below 400 and InvalidRequest in between.
func Classify(f Failure) *Error {
	// Redact first: parsing may split the key and leave a part of it.
	said := parseBody([]byte(secret.Redact(string(f.Body), f.Secret)))
	if f.Status < http.StatusMultipleChoices && said.Status != 0 {
		f.Status = said.Status // the stream's own says nothing
	}
	e := &Error{Provider: f.Provider, Status: f.Status, Class: said.class(f.Status)}
	if e.Class == RateLimited || e.Class == Overloaded {
		e.RetryAfter = retryAfter(f.Header, said.Delay, said.Message)
	}
	text := said.Message
	if text == "" {
		text = strings.TrimSpace(http.StatusText(f.Status))
	}
	if text == "" {
		text = "no message"
	}
	e.Message = Redact(text, f.Secret)
	return e
}

// said is the part of an error body that all formats share.
type said struct {
	Type    string
	Code    string
	Status  int // of HTTP, if the code is one
	Message string
	Detail  string // names in the details of Google: types, reasons and quotas
	Delay   string // delay of Google, such as "30s"
}

func (s said) class(status int) Class {
	for _, r := range rules {
		if r.matches(status, s) {
			return r.class
		}
	}
	switch {
	case status >= http.StatusInternalServerError:
		return Overloaded
	case status >= http.StatusBadRequest:
		return InvalidRequest
	default:
		return Transport
	}
}

func (r rule) matches(status int, s said) bool {
	if r.status != 0 && r.status != status {
		return false
	}
	if r.text != nil && !r.text.MatchString(s.Message) {
		return false
	}
	if r.detail != nil && !r.detail.MatchString(s.Detail) {
		return false
	}
	if r.words == nil {
		return true
	}
	for _, w := range r.words {
		if w == s.Type || w == s.Code {
			return true
		}
	}
	return false
}

// parseBody reads {"error": {type, code, message}}, the error object alone, an error
// that is a string, or {"message"} and {"detail"}, which other servers send. Google's
// errors have a number as code and the word in status, and may be in a list. Any other
// body is the message itself.
func parseBody(body []byte) said {
	type fields struct {
		Type     any             `json:"type"`
		Code     any             `json:"code"`
		Message  json.RawMessage `json:"message"`
		Status   any             `json:"status"`
		Detail   json.RawMessage `json:"detail"`
		Details  json.RawMessage `json:"details"`
		Error    json.RawMessage `json:"error"`
		Metadata struct {
			Raw json.RawMessage `json:"raw"`
		} `json:"metadata"`
	}
	var list []json.RawMessage
	if json.Unmarshal(body, &list) == nil && len(list) > 0 {
		body = list[0]
	}
	var f fields
	if json.Unmarshal(body, &f) != nil {
		return said{Message: plain(string(body))}
	}
	if len(f.Error) > 0 {
		if f.Error[0] == '"' {
			f.Message = f.Error
		} else {
			var inner fields
			if json.Unmarshal(f.Error, &inner) == nil {
				f = inner
			}
		}
	}
	s := said{Type: text(f.Type), Code: text(f.Code), Status: number(f.Code), Message: words(f.Message)}
	if s.Code == "" {
		s.Code = text(f.Status)
	}
	s.readDetails(f.Details)
	if s.Message == "" {
		s.Message = words(f.Detail)
	}
	if s.Message == "" {
		s.Message = strings.TrimSpace(s.Type + " " + s.Code)
	}
	if raw := words(f.Metadata.Raw); raw != "" {
		s.Message += ": " + raw // what the provider said to OpenRouter
	}
	return s
}

// readDetails reads the details of an error of Google: google.rpc.ErrorInfo, QuotaFailure and RetryInfo.
func (s *said) readDetails(raw json.RawMessage) {
	var details []struct { // names in camel case match without a tag
		Type       string `json:"@type"`
		Reason     string `json:"reason"`
		RetryDelay string
		Violations []struct {
			QuotaID string
		} `json:"violations"`
		Metadata struct {
			QuotaLimit string `json:"quota_limit"`
		} `json:"metadata"`
	}
	if json.Unmarshal(raw, &details) != nil {
		return
	}
	var names []string
	for _, d := range details {
		names = append(names, d.Type[strings.LastIndexByte(d.Type, '.')+1:], d.Reason, d.Metadata.QuotaLimit)
		for _, v := range d.Violations {
			names = append(names, v.QuotaID)
		}
		if d.RetryDelay != "" {
			s.Delay = d.RetryDelay
		}
	}
	s.Detail = strings.Join(names, " ")
}

// words returns the text of a JSON string, and any other value as JSON: some servers list the mistakes of a request
// there.
func words(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text // null, too
	}
	return string(raw)
}

// text returns v if it is a string, else "".
func text(v any) string {
	s, _ := v.(string)
	return s
}

// number returns v, a number or a text, if it is a status from 400 to 599, else 0.
func number(v any) int {
	n, ok := v.(float64)
	if !ok {
		i, _ := strconv.Atoi(text(v)) // 0 is none
		n = float64(i)
	}
	if n < http.StatusBadRequest || n >= 600 {
		return 0
	}
	return int(n)
}

var tags = regexp.MustCompile(`(?s)<(script|style).*?</(script|style)>|<[^>]*>`)

// plain removes the mark-up from an error page of a proxy.
func plain(s string) string {
	return strings.Join(strings.Fields(tags.ReplaceAllString(s, " ")), " ")
}
