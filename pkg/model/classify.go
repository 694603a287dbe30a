package model

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// markers are the words by which providers tell what an HTTP status does not. The
// first row that fits decides; a row with a status fits that status only.
var markers = []struct {
	status int
	words  string
	class  Class
}{
	{0, "insufficient_quota", Quota},
	{0, "billing", Quota},
	{0, "context_length_exceeded", PromptTooLong},
	{0, "prompt is too long", PromptTooLong},
	{0, "maximum context length", PromptTooLong},
	{0, "exceeds the context window", PromptTooLong},
	{0, "exceeds the maximum number of tokens", PromptTooLong},
	{0, "request_too_large", PromptTooLong},
	{0, "content_filter", ContentFilter},
	{0, "content management policy", ContentFilter},
	{0, "overloaded", Overloaded},
	{0, "rate_limit", RateLimited},
	{http.StatusBadRequest, "", InvalidRequest},
	{http.StatusUnauthorized, "", Auth},
	{http.StatusForbidden, "", Auth},
	{http.StatusPaymentRequired, "", Quota},
	{http.StatusNotFound, "", InvalidRequest},
	{http.StatusRequestTimeout, "", Timeout},
	{http.StatusConflict, "", Overloaded},
	{http.StatusRequestEntityTooLarge, "", PromptTooLong},
	{http.StatusUnprocessableEntity, "", InvalidRequest},
	{http.StatusTooManyRequests, "", RateLimited},
	{http.StatusServiceUnavailable, "", Overloaded},
	{http.StatusGatewayTimeout, "", Timeout},
	{529, "", Overloaded},
}

// Classify returns the error of an answer with an HTTP status and the provider's
// error text: its code, type and message, in any order.
func Classify(provider string, status int, header http.Header, text string) *Error {
	e := &Error{Provider: provider, Status: status, Message: text, RetryAfter: retryAfter(header), Class: InvalidRequest}
	if status == 0 || status >= http.StatusInternalServerError {
		e.Class = Overloaded
	}
	low := strings.ToLower(text)
	for _, m := range markers {
		if (m.status == 0 || m.status == status) && strings.Contains(low, m.words) {
			e.Class = m.class
			break
		}
	}
	return e
}

// retryAfter reads how long a provider asks to wait.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(h.Get("Retry-After-Ms"), 64); err == nil && ms > 0 {
		return time.Duration(ms * float64(time.Millisecond))
	}
	text := h.Get("Retry-After")
	if s, err := strconv.ParseFloat(text, 64); err == nil && s > 0 {
		return time.Duration(s * float64(time.Second))
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}

// ClassifyTransport returns the error of a call that got no answer, or half of
// one.
func ClassifyTransport(ctx context.Context, provider string, err error) *Error {
	e := &Error{Provider: provider, Class: Transport, Message: "the connection broke: " + err.Error(), Err: err}
	var timeout net.Error
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		e.Class, e.Message = Timeout, "no answer in time"
	case ctx.Err() != nil:
		e.Class, e.Message = Cancelled, "cancelled"
	case errors.As(err, &timeout) && timeout.Timeout():
		e.Class, e.Message = Timeout, "no answer in time"
	}
	return e
}
