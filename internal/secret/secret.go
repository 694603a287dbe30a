package secret

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Redacted replaces a secret. It needs no escaping in JSON and URLs, so redacted ones stay valid.
const Redacted = "[redacted]"

// shortest is from how many bytes on a secret is looked for: anything shorter is in
// any text.
const shortest = 4

// Redactor takes some secrets out of texts.
type Redactor struct {
	forms    []string
	replacer *strings.Replacer
}

// New returns a Redactor. Secrets of less than 4 bytes are not looked for.
func New(secrets ...string) *Redactor {
	h := &Redactor{}
	for _, s := range secrets {
		if len(s) >= shortest {
			h.forms = append(h.forms, forms(s)...)
		}
	}
	// If two begin at the same place, the longer one wins.
	slices.SortFunc(h.forms, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	h.forms = slices.Compact(h.forms)
	pairs := make([]string, 0, 2*len(h.forms))
	for _, form := range h.forms {
		pairs = append(pairs, form, Redacted)
	}
	h.replacer = strings.NewReplacer(pairs...)
	return h
}

// Redact returns text without the secrets, be they written plainly, escaped for a
// URL, for JSON or for HTML, or in base64, alone or within more.
func (h *Redactor) Redact(text string) string {
	if len(h.forms) == 0 {
		return text
	}
	return h.replacer.Replace(text)
}

// Cut redacts a growing text, and splits it into the part that can be shown already and the rest, which must precede
// the text that follows: it may be the beginning of a secret. If one secret begins with another, Cut may redact only
// the shorter one, and show the rest of the longer one.
func (h *Redactor) Cut(text string) (shown, kept string) {
	text = h.Redact(text)
	if len(h.forms) == 0 {
		return text, ""
	}
	for n := min(len(text), len(h.forms[0])-1); n > 0; n-- {
		end := text[len(text)-n:]
		for _, form := range h.forms {
			if len(form) > n && form[:n] == end {
				return text[:len(text)-n], end
			}
		}
	}
	return text, ""
}

// Redact takes secrets out of a text, as a Redactor of them does.
func Redact(text string, secrets ...string) string { return New(secrets...).Redact(text) }

var hex = regexp.MustCompile(`%[0-9A-F]{2}`)

// forms returns how a secret may be written.
func forms(s string) []string {
	all := []string{s, quoted(s, true), quoted(s, false), html.EscapeString(s)}
	for _, escaped := range []string{url.QueryEscape(s), url.PathEscape(s)} {
		all = append(all, escaped, hex.ReplaceAllStringFunc(escaped, strings.ToLower))
	}
	for _, form := range slices.Compact(slices.Sorted(slices.Values(all))) {
		for lead := range 3 {
			for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
				if b := encoded(form, lead, encoding); len(b) >= shortest {
					all = append(all, b)
				}
			}
		}
	}
	return all
}

// quoted returns s as it stands in JSON.
func quoted(s string, forHTML bool) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(forHTML)
	if err := enc.Encode(s); err != nil {
		return s
	}
	return b.String()[1 : b.Len()-2] // without the quotes and the end of the line
}

// encoded returns what base64 makes of s behind lead other bytes, without the
// characters that depend on its neighbours.
func encoded(s string, lead int, encoding *base64.Encoding) string {
	out := encoding.EncodeToString([]byte(strings.Repeat("\x00", lead) + s))
	out = out[[]int{0, 2, 3}[lead]:]
	if (lead+len(s))%3 != 0 {
		out = out[:len(out)-1]
	}
	return out
}
