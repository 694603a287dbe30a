package model

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// RateLimits are the quotas of a deployment, the same for all its workers. The first one that matches a model applies.
type RateLimits []RateLimit

// RateLimit is a limit per minute and API key, which all models that it matches share.
type RateLimit struct {
	Provider string
	BaseURL  string         // empty matches all addresses, each with its own quota
	Model    *regexp.Regexp // matches the name of the model; nil matches all
	Quota    state.Quota
}

// limitFields is a RateLimit in YAML or JSON.
type limitFields struct {
	Provider string `json:"provider"`
	BaseURL  string `json:"base_url"`
	Model    string `json:"model"`
	Requests *int64 `json:"requests_per_minute"`
	Tokens   *int64 `json:"tokens_per_minute"`
}

// mostPerMinute is the maximum limit in requests or tokens.
const mostPerMinute = 1_000_000_000

// ParseRateLimits parses a list of limits in YAML or JSON; the first that matches applies:
//
//   - {provider: openai, model: ^gpt-5, requests_per_minute: 500, tokens_per_minute: 200000}
//
// The error names every row with a mistake by its number, and at least the first mistake in it. If data is not a list
// in YAML or JSON, the error is only that.
func ParseRateLimits(data []byte) (RateLimits, error) {
	asJSON, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("parse rate limits: %w", err)
	}
	var rows []json.RawMessage
	if err := json.Unmarshal(asJSON, &rows); err != nil {
		return nil, errors.New(`parse rate limits: the file is not a list: write one as in "- {provider: openai, requests_per_minute: 500, tokens_per_minute: 200000}"`)
	}
	var limits RateLimits
	var errs []error
	for i, row := range rows {
		l, err := parseRateLimit(row)
		if err != nil {
			errs = append(errs, fmt.Errorf("parse rate limits: row %d: %w", i+1, err))
		}
		limits = append(limits, l)
	}
	return limits, errors.Join(errs...)
}

func parseRateLimit(row []byte) (RateLimit, error) {
	var f limitFields
	d := json.NewDecoder(bytes.NewReader(row))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		what := strings.TrimPrefix(err.Error(), "json: ")
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			what = fmt.Sprintf("%s has the type %s", cmp.Or(wrong.Field, "it"), wrong.Value)
		}
		return RateLimit{}, fmt.Errorf("%s: write provider, base_url and model as texts, and requests_per_minute and tokens_per_minute as whole numbers", what)
	}
	l := RateLimit{Provider: f.Provider, BaseURL: f.BaseURL}
	if f.Provider == "" {
		return l, errors.New("provider is missing: name one")
	}
	if f.Requests == nil && f.Tokens == nil {
		return l, errors.New("requests_per_minute and tokens_per_minute are both missing: give at least one")
	}
	var errs []error
	perMinute := func(name string, given *int64) int64 {
		switch {
		case given == nil:
			return 0
		case *given < 1 || *given > mostPerMinute:
			errs = append(errs, fmt.Errorf("%s: %d is not between 1 and %d: write a number in that range", name, *given, mostPerMinute))
		}
		return *given
	}
	l.Quota = state.Quota{Requests: perMinute("requests_per_minute", f.Requests), Tokens: perMinute("tokens_per_minute", f.Tokens)}
	if f.Model != "" {
		re, err := regexp.Compile(f.Model)
		if err != nil {
			errs = append(errs, fmt.Errorf("model: %w: correct the regular expression", err))
		}
		l.Model = re
	}
	return l, errors.Join(errs...)
}

// matches reports whether l applies to a model.
func (l RateLimit) matches(provider, baseURL, name string) bool {
	return l.Provider == provider &&
		(l.BaseURL == "" || strings.TrimRight(l.BaseURL, "/") == strings.TrimRight(baseURL, "/")) &&
		(l.Model == nil || l.Model.MatchString(name))
}

// For returns the quota of a model at an address with an API key, and the key of the quota, which all workers share.
// The key does not reveal the API key. If no limit matches, the quota is the zero value, and limited is false.
func (ls RateLimits) For(provider, baseURL, name, apiKey string) (key string, q state.Quota, limited bool) {
	group := "model " + name
	for _, l := range ls {
		if l.matches(provider, baseURL, name) {
			group, q, limited = "any", l.Quota, true
			if l.Model != nil {
				group = "models " + l.Model.String()
			}
			break
		}
	}
	var b []byte
	for _, word := range [...]string{"turnpike quota", provider, strings.TrimRight(baseURL, "/"), group, apiKey} {
		b = append(append(strconv.AppendInt(b, int64(len(word)), 10), ':'), word...)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16]), q, limited
}
