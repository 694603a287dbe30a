package model_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// The bodies are those that providers and compatible servers send, as reported by their users.
func TestClassify(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		status int
		body   string
		want   model.Class
	}{
		{"openai context", 400, `{"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 200341 tokens. Please reduce the length of the messages.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, model.PromptTooLong},
		{"openai context window", 400, `{"error":{"message":"Your input exceeds the context window of this model. Please adjust your input and try again.","type":"invalid_request_error","param":"input","code":null}}`, model.PromptTooLong},
		{"openai above tokens per minute", 429, `{"error":{"message":"Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 55000. The input or output tokens must be reduced in order to run successfully.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`, model.PromptTooLong},
		{"openai rate", 429, `{"error":{"message":"Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 29500, Requested 1200. Please try again in 1.4s.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`, model.RateLimited},
		{"openai quota", 429, `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`, model.Quota},
		{"openai key", 401, `{"error":{"message":"Incorrect API key provided: sk-abc***xyz.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}`, model.Auth},
		{"openai region", 403, `{"error":{"code":"unsupported_country_region_territory","message":"Country, region, or territory not supported","param":null,"type":"request_forbidden"}}`, model.Auth},
		{"openai model", 404, `{"error":{"message":"The model 'gpt-9' does not exist or you do not have access to it.","type":"invalid_request_error","param":null,"code":"model_not_found"}}`, model.InvalidRequest},
		{"openai unpaired call", 400, `{"error":{"message":"An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.","type":"invalid_request_error","param":"messages","code":null}}`, model.InvalidRequest},
		{"openai overloaded", 503, `{"error":{"message":"The engine is currently overloaded, please try again later","type":"server_error","param":null,"code":null}}`, model.Overloaded},
		{"openai server", 500, `{"error":{"message":"The server had an error while processing your request. Sorry about that!","type":"server_error","param":null,"code":null}}`, model.Overloaded},
		{"openai policy", 400, `{"error":{"message":"Invalid prompt: your prompt was flagged as potentially violating our usage policy.","type":"invalid_request_error","param":null,"code":"invalid_prompt"}}`, model.ContentFilter},
		{"azure filter", 400, `{"error":{"message":"The response was filtered due to the prompt triggering Azure OpenAI's content management policy.","type":null,"param":"prompt","code":"content_filter","status":400}}`, model.ContentFilter},
		{"openai quota in a stream", 200, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`, model.Quota},
		{"openai server in a stream", 200, `{"error":{"message":"The server had an error","type":"server_error"}}`, model.Overloaded},
		{"responses context in a stream", 200, `{"code":"context_length_exceeded","message":"Your input exceeds the context window of this model. Please adjust your input and try again."}`, model.PromptTooLong},
		{"responses rate in a stream", 200, `{"code":"rate_limit_exceeded","message":"Rate limit reached for gpt-5.1 in organization org-x on tokens per min (TPM): Limit 500000, Used 499000, Requested 20000. Please try again in 2.28s."}`, model.RateLimited},
		{"responses server in a stream", 200, `{"code":"server_error","message":"An error occurred while processing your request. You can retry your request."}`, model.Overloaded},
		{"responses quota in a stream", 200, `{"type":"error","sequence_number":2,"error":{"type":"insufficient_quota","code":"insufficient_quota","message":"You exceeded your current quota.","param":null}}`, model.Quota},
		{"responses flat error in a stream", 200, `{"type":"error","sequence_number":2,"code":"server_is_overloaded","message":"Our servers are currently overloaded.","param":null}`, model.Overloaded},
		{"responses prompt refused", 200, `{"code":"invalid_prompt","message":"Invalid prompt: we've limited access to this content for safety reasons."}`, model.ContentFilter},
		{"responses cyber policy", 200, `{"code":"cyber_policy","message":"This content was flagged for possible cybersecurity risk."}`, model.ContentFilter},
		{"responses bio policy", 200, `{"code":"bio_policy","message":"This content was flagged."}`, model.ContentFilter},
		{"responses picture", 200, `{"code":"invalid_image_format","message":"The image is of a format that is not supported."}`, model.InvalidRequest},
		{"responses sealed elsewhere", 400, `{"error":{"message":"The encrypted content gAAA... could not be verified. Reason: Encrypted content could not be decrypted or parsed.","type":"invalid_request_error","param":null,"code":"invalid_encrypted_content"}}`, model.InvalidRequest},
		{"responses unpaired call", 400, `{"error":{"message":"No tool output found for function call call_x.","type":"invalid_request_error","param":"input","code":null}}`, model.InvalidRequest},
		{"responses without a reason", 200, `{"message":"the provider reports that the response failed, without a reason: retry, and check the provider's status"}`, model.Transport},

		{"anthropic context", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 213462 tokens > 200000 maximum"},"request_id":"req_1"}`, model.PromptTooLong},
		{"anthropic context with output", 400, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length or `max_tokens` and try again\"}}", model.PromptTooLong},
		{"anthropic size", 413, `{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}`, model.PromptTooLong},
		{"anthropic output limit", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for claude-haiku-4-5"}}`, model.InvalidRequest},
		{"anthropic rate", 429, `{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit of 50,000 input tokens per minute. Please reduce the prompt length or the maximum tokens requested, or try again later."}}`, model.RateLimited},
		{"anthropic overloaded", 529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, model.Overloaded},
		{"anthropic overloaded in a stream", 200, `{"type":"error","error":{"details":null,"type":"overloaded_error","message":"Overloaded"}}`, model.Overloaded},
		{"anthropic internal", 500, `{"type":"error","error":{"type":"api_error","message":"Internal server error"}}`, model.Overloaded},
		{"anthropic internal in a stream", 200, `{"type":"error","error":{"type":"api_error","message":"Internal server error"}}`, model.Overloaded},
		{"anthropic credit", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}`, model.Quota},
		{"anthropic spend limit", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."}}`, model.Quota},
		{"anthropic billing", 402, `{"type":"error","error":{"type":"billing_error","message":"There is an issue with your payment."}}`, model.Quota},
		{"anthropic key", 401, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}`, model.Auth},
		{"anthropic permission", 403, `{"type":"error","error":{"type":"permission_error","message":"Your API key does not have permission to use the specified resource."}}`, model.Auth},
		{"anthropic filter", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"}}`, model.ContentFilter},
		{"anthropic timeout", 504, `{"type":"error","error":{"type":"timeout_error","message":"Request timed out"}}`, model.Timeout},
		{"anthropic unpaired call", 400, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"messages.2: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1.\"}}", model.InvalidRequest},

		{"vllm", 400, `{"object":"error","message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.","type":"BadRequestError","param":null,"code":400}`, model.PromptTooLong},
		{"llama.cpp", 400, `{"error":{"code":400,"message":"the request exceeds the available context size, try increasing it","type":"exceed_context_size_error"}}`, model.PromptTooLong},
		{"groq", 400, `{"error":{"message":"Please reduce the length of the messages or completion.","type":"invalid_request_error"}}`, model.PromptTooLong},
		{"together", 422, `{"error":{"message":"The input (9000 tokens) is longer than the model's context length (8192 tokens)."}}`, model.PromptTooLong},
		{"bedrock throttles", 400, `{"message":"ThrottlingException: Too many tokens, please wait before trying again."}`, model.RateLimited},
		{"ollama", 500, `{"error":"no user query found in messages"}`, model.Overloaded},
		{"fastapi", 422, `{"detail":"Unprocessable"}`, model.InvalidRequest},
		{"proxy page", 502, "<html>\n<head><title>502 Bad Gateway</title></head>\n<body><h1>502 Bad Gateway</h1></body></html>", model.Overloaded},
		{"cloudflare", 524, "error code: 524", model.Overloaded},
		{"proxy time-out", 504, "", model.Timeout},
		{"request time-out", 408, "", model.Timeout},
		{"moved", 301, "", model.Transport},
		{"nothing", 400, "", model.InvalidRequest},
		{"gemini rate", 429, `{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details. Please retry in 47.4s.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"GenerateContentPaidTierInputTokensPerModelPerMinute"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"47s"}]}}`, model.RateLimited},
		{"gemini day", 429, `{"error":{"code":429,"message":"Quota exceeded for quota metric 'Gemini 2.5 Pro Requests' and limit 'Gemini 2.5 Pro Requests per day'","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"RATE_LIMIT_EXCEEDED","metadata":{"quota_limit":"Gemini25ProRequestsPerDay"}}]}}`, model.Quota},
		{"gemini in a list", 429, `[{"error":{"code":429,"message":"Resource exhausted. Please try again later.","status":"RESOURCE_EXHAUSTED"}}]`, model.RateLimited},
		{"gemini key", 400, `{"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]}}`, model.Auth},
		{"gemini too long in a stream", 200, `{"error":{"code":400,"message":"The input token count (1200034) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}`, model.PromptTooLong},
		{"gemini overloaded in a stream", 200, `{"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}`, model.Overloaded},
		{"openai long message", 400, `{"error":{"message":"Invalid 'messages[3].content': string too long. Expected a string with maximum length 1048576, but got a string with length 1500000 instead.","type":"invalid_request_error","param":"messages[3].content","code":"string_above_max_length"}}`, model.PromptTooLong},
		{"openai long description", 400, `{"error":{"message":"Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024.","type":"invalid_request_error","param":"tools[0].function.description","code":"string_above_max_length"}}`, model.InvalidRequest},
		{"anthropic disabled", 400, `{"type":"error","error":{"type":"invalid_request_error","message":"This organization has been disabled."}}`, model.Auth},
		{"gemini prepaid", 429, `{"error":{"code":429,"message":"Your prepayment credits are depleted. Please go to AI Studio to manage your project and billing.","status":"RESOURCE_EXHAUSTED"}}`, model.Quota},
		{"gemini cap", 429, `{"error":{"code":429,"message":"Your project has exceeded its monthly spending cap.","status":"RESOURCE_EXHAUSTED"}}`, model.Quota},
		{"xai credits", 429, `{"code":"Some resource has been exhausted","error":"Your team has either used all available credits or reached its monthly spending limit."}`, model.Quota},
		{"xai length", 400, `{"code":"Client specified an invalid argument","error":"This model's maximum prompt length is 131072 but the request contains 537812 tokens."}`, model.PromptTooLong},
		{"xai filter", 403, `{"code":"The caller does not have permission to execute the specified operation","error":"Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_BIO"}`, model.ContentFilter},
		{"deepseek filter", 400, `{"error":{"message":"Content Exists Risk","type":"invalid_request_error","param":null,"code":"invalid_request_error"}}`, model.ContentFilter},
		{"deepseek balance", 402, `{"error":{"message":"Insufficient Balance","type":"unknown_error","param":null,"code":"invalid_request_error"}}`, model.Quota},
		{"qwen filter", 400, `{"error":{"code":"data_inspection_failed","message":"Output data may contain inappropriate content.","type":"data_inspection_failed"}}`, model.ContentFilter},
		{"kimi overloaded", 429, `{"error":{"message":"The engine is currently overloaded, please try again later","type":"engine_overloaded_error"}}`, model.Overloaded},
		{"kimi quota", 429, `{"error":{"message":"Your account is suspended, please check your plan and billing details","type":"exceeded_current_quota_error"}}`, model.Quota},
		{"kimi length", 400, `{"error":{"message":"Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)","type":"invalid_request_error"}}`, model.PromptTooLong},
		{"groq size", 413, `{"error":{"message":"Request too large for model llama-3.1-8b-instant in organization org_x on tokens per minute (TPM): Limit 6000, Requested 8170, please reduce your message size and try again.","type":"tokens","code":"rate_limit_exceeded"}}`, model.PromptTooLong},
		{"mistral length", 400, `{"object":"error","message":"Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length","type":"invalid_request_error","param":null,"code":"3051"}`, model.PromptTooLong},
		{"mistral capacity", 429, `{"object":"error","message":"Service tier capacity exceeded for this model.","type":"service_tier_capacity_exceeded","param":null,"code":"3505"}`, model.RateLimited},
		{"mistral field", 422, `{"object":"error","message":{"detail":[{"type":"extra_forbidden","loc":["body","seed"],"msg":"Extra inputs are not permitted"}]},"type":"invalid_request_error","param":null,"code":null}`, model.InvalidRequest},
		{"openrouter length", 400, `{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"This model's maximum context length is 128000 tokens.\"}}","provider_name":"Azure"}}}`, model.PromptTooLong},
		{"vllm prompt", 400, `{"error":{"message":"The decoder prompt (length 9000) is longer than the maximum model length of 4096.","type":"BadRequestError","param":null,"code":400}}`, model.PromptTooLong},
		{"tgi", 422, "{\"error\":\"Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and 100 `max_new_tokens`\",\"error_type\":\"validation\"}", model.PromptTooLong},
		{"lm studio", 400, `{"error":"Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens."}`, model.PromptTooLong},
		{"cohere", 400, `{"message":"too many tokens: total number of tokens in the prompt cannot exceed 4081"}`, model.PromptTooLong},
		{"litellm", 400, `{"error":{"message":"litellm.ContextWindowExceededError: AnthropicException - prompt is too long: 213462 tokens > 200000 maximum","type":null,"param":null,"code":"400"}}`, model.PromptTooLong},
		{"unknown in a stream", 200, "garbage", model.Transport},
		// Some servers send only numbers in a stream.
		{"openrouter in a stream", 200, `{"id":"gen-1","object":"chat.completion.chunk","error":{"code":502,"message":"Provider returned error"},"choices":[{"index":0,"delta":{"content":""},"finish_reason":"error"}]}`, model.Overloaded},
		{"openrouter rate in a stream", 200, `{"error":{"code":429,"message":"Provider returned error","metadata":{"provider_name":"Chutes"}}}`, model.RateLimited},
		{"openrouter credits in a stream", 200, `{"error":{"code":402,"message":"This request requires more credits, or fewer max_tokens."}}`, model.Quota},
		{"openrouter key in an answer", 200, `{"error":{"message":"User not found.","code":401}}`, model.Auth},
		{"vllm in a stream", 200, `{"error":{"object":"error","message":"The decoder prompt contains an image that cannot be read","type":"BadRequestError","param":null,"code":400}}`, model.InvalidRequest},
		{"vllm fails in a stream", 200, `{"error":{"object":"error","message":"EngineCore encountered an issue. See stack trace (above) for the root cause.","type":"InternalServerError","param":null,"code":500}}`, model.Overloaded},
		{"azure rate in a stream", 200, `{"error":{"code":"429","message":"Requests to the ChatCompletions_Create Operation under Azure OpenAI API have exceeded the token limit. Please retry after 6 seconds."}}`, model.RateLimited},
		{"a code that is no status", 200, `{"error":{"code":20012,"message":"odd"}}`, model.Transport},
	} {
		e := model.Classify(model.Failure{Provider: "p", Status: test.status, Body: []byte(test.body)})
		if e.Class != test.want || e.Message == "" || e.Provider != "p" || test.status != 200 && e.Status != test.status {
			t.Errorf("%s: %+v, want class %s", test.name, e, test.want)
		}
		if strings.ContainsAny(e.Message, "<>") && strings.HasPrefix(test.body, "<") {
			t.Errorf("%s: message %q has mark-up", test.name, e.Message)
		}
	}
}

// The provider's reason for a refused request is shown, in any form of the body.
func TestMessages(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"detail":[{"loc":["body","seed"],"msg":"Extra inputs are not permitted"}]}`:                   `[{"loc":["body","seed"],"msg":"Extra inputs are not permitted"}]`,
		`{"object":"error","message":{"detail":"odd"},"type":"invalid_request_error"}`:                  `{"detail":"odd"}`,
		`{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"no tools here"}}}`: "Provider returned error: no tools here",
		`{"error":{"message":null,"type":"odd","code":null}}`:                                           "odd",
		`{"error":"odd"}`: "odd",
	} {
		if e := model.Classify(model.Failure{Status: 400, Body: []byte(body)}); e.Message != want {
			t.Errorf("%s: %q, want %q", body, e.Message, want)
		}
	}
}

// Retry-After is read in all its forms (A17).
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		header  http.Header
		message string
		want    time.Duration
	}{
		{http.Header{"Retry-After": {"2"}}, "", 2 * time.Second},
		{http.Header{"Retry-After": {"0.5"}}, "", 500 * time.Millisecond},
		{http.Header{"Retry-After": {"2"}, "Retry-After-Ms": {"1500"}}, "", 1500 * time.Millisecond},
		{http.Header{"Retry-After": {"Fri, 20 Nov 2026 10:01:00 GMT"}, "Date": {"Fri, 20 Nov 2026 10:00:00 GMT"}}, "", time.Minute},
		{http.Header{"Retry-After": {"Fri, 20 Nov 2026 09:00:00 GMT"}, "Date": {"Fri, 20 Nov 2026 10:00:00 GMT"}}, "", 0},
		{http.Header{"Retry-After": {"-3"}}, "", 0},
		{http.Header{"Retry-After": {"NaN"}}, "", 0},
		{http.Header{"Retry-After": {"1e300"}}, "", 24 * time.Hour},
		{http.Header{"Retry-After": {"soon"}}, "", 0},
		{nil, "Please try again in 6m0s.", 6 * time.Minute},
		{nil, "Please try again in 1.4s. Visit us", 1400 * time.Millisecond},
		{nil, "Please try again in 250ms", 250 * time.Millisecond},
		{nil, "Please retry after 6 seconds.", 6 * time.Second},
		{nil, "Try again in 20 minutes", 20 * time.Minute},
		{nil, "Please retry in 58.9s.", 58900 * time.Millisecond},
		{nil, "Please try again later", 0},
	} {
		body := `{"error":{"code":"rate_limit_exceeded","message":"` + test.message + `"}}`
		e := model.Classify(model.Failure{Status: 429, Header: test.header, Body: []byte(body)})
		if e.Class != model.RateLimited || e.RetryAfter != test.want {
			t.Errorf("%v %q: %s after %s, want %s", test.header, test.message, e.Class, e.RetryAfter, test.want)
		}
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	got := model.Redact("key hunter2-hunter2 and sk-proj-abcdef123456 and sk-ab***yz99 and AIzaSyB-123456_x, not risk-taking", "hunter2-hunter2")
	if want := "key [redacted] and [redacted] and [redacted] and [redacted], not risk-taking"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if long := model.Redact(strings.Repeat("ä", 5000), ""); len(long) > 1010 || !strings.HasSuffix(long, "ä…") {
		t.Errorf("a long message has %d bytes and ends in %q", len(long), long[len(long)-8:])
	}
}

func FuzzClassify(f *testing.F) {
	f.Add(400, []byte(`{"error":{"message":"x","type":"t","code":1}}`), "1")
	f.Add(200, []byte(`{"error":"x"}`), "Fri, 20 Nov 2026 10:01:00 GMT")
	f.Add(0, []byte(`<html>`), "")
	f.Fuzz(func(t *testing.T, status int, body []byte, after string) {
		e := model.Classify(model.Failure{Provider: "p", Secret: "topsecret", Status: status, Header: http.Header{"Retry-After": {after}}, Body: body})
		if e.Class == "" || e.Message == "" || e.RetryAfter < 0 || strings.Contains(e.Message, "topsecret") {
			t.Fatalf("%+v", e)
		}
	})
}
