package policy

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// maxSubject is the maximum length of a subject of NATS, in bytes.
const maxSubject = 256

// CheckSubject returns an error if text is not a valid NATS subject of at most 256 bytes (maxSubject). Its tokens
// may be * and, at the end, >.
func CheckSubject(text string) error {
	tokens := strings.Split(text, ".")
	for i, token := range tokens {
		if token == "" || token == ">" && i < len(tokens)-1 || len(token) > 1 && strings.ContainsAny(token, "*>") || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return fmt.Errorf("%.80q is not a subject: write one such as orders.*.paid or orders.>", text)
		}
	}
	if len(text) > maxSubject {
		return fmt.Errorf("the subject has %d bytes, at most %d are allowed: use a shorter one", len(text), maxSubject)
	}
	return nil
}

// Within reports whether every subject that matches the first argument, which may have wildcards, also matches pattern.
func Within(subject, pattern string) bool {
	of, in := strings.Split(subject, "."), strings.Split(pattern, ".")
	for i, token := range in {
		switch {
		case token == ">":
			return len(of) > i
		case i >= len(of), of[i] == ">":
			return false
		case token != "*" && token != of[i]:
			return false
		}
	}
	return len(of) == len(in)
}

// Overlap reports whether some subject matches both patterns.
func Overlap(a, b string) bool {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(x), len(y)) {
		switch {
		case x[i] == ">" || y[i] == ">":
			return true
		case x[i] != y[i] && x[i] != "*" && y[i] != "*":
			return false
		}
	}
	return len(x) == len(y)
}

// Stream returns nil if triggers of a tenant may read all messages of a stream on the given subjects, which may have
// wildcards, else a *RefusedError. Without subjects it returns nil if they may read any.
func Stream(tenant string, allowed []api.TenantStream, stream string, subjects []string) error {
	allowed = slices.DeleteFunc(slices.Clone(allowed), func(s api.TenantStream) bool { return !glob(s.Name, stream) })
	refuse := Policy{tenant: tenant}.refuse
	if len(allowed) == 0 {
		return refuse("streams", "stream %.128s is not among those that triggers of tenant %s may read", stream, tenant)
	}
	for _, subject := range subjects {
		if !slices.ContainsFunc(allowed, func(s api.TenantStream) bool {
			return len(s.Subjects) == 0 || slices.ContainsFunc(s.Subjects, func(pattern string) bool { return Within(subject, pattern) })
		}) {
			return refuse("streams", "subject %.200s of stream %.128s is not among those that triggers of tenant %s may read: name allowed subjects, or", subject, stream, tenant)
		}
	}
	return nil
}

// StreamInPart returns the error for a stream with subjects that triggers of a tenant may not read. It does not name
// them.
func StreamInPart(tenant, stream string) error {
	return Policy{tenant: tenant}.refuse("streams", "stream %.128s has subjects that triggers of tenant %s may not read: name allowed subjects in the trigger, or", stream, tenant)
}

// checkStream returns an error if a stream in the settings of a tenant is invalid.
func checkStream(s api.TenantStream) error {
	if strings.TrimSpace(s.Name) == "" {
		return errors.New("name is empty: give the name of a stream, or a pattern such as ORDERS_*")
	}
	for i, subject := range s.Subjects {
		if err := CheckSubject(subject); err != nil {
			return fmt.Errorf("subjects[%d]: %w", i, err)
		}
	}
	return nil
}
