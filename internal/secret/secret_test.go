package secret_test

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/turnpike-dev/turnpike/internal/secret"
)

func TestRedact(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text, want string }{
		{"plain", "Bearer k3y+/&\"s", "Bearer [redacted]"},
		{"twice", "k3y+/&\"sk3y+/&\"s", "[redacted][redacted]"},
		{"in a query", "?key=k3y%2B%2F%26%22s", "?key=[redacted]"},
		{"in lower case", "?key=k3y%2b%2f%26%22s", "?key=[redacted]"},
		{"in JSON", `{"key":"k3y+/&\"s"}`, `{"key":"[redacted]"}`},
		{"in JSON for HTML", `{"key":"k3y+/\u0026\"s"}`, `{"key":"[redacted]"}`},
		{"in base64", base64.StdEncoding.EncodeToString([]byte("k3y+/&\"s")), "[redacted]M="},
		{"in HTML", "<p>k3y+/&amp;&#34;s", "<p>[redacted]"},
		{"of a query in base64", base64.StdEncoding.EncodeToString([]byte("k=k3y%2B%2F%26%22s&")), "az1[redacted]Jg=="},
		{"another", "k3y+/&", "k3y+/&"},
	}
	for _, tt := range tests {
		if got := secret.Redact(tt.text, "", "abc", `k3y+/&"s`); got != tt.want {
			t.Errorf("%s: Redact(%s) = %s, want %s", tt.name, tt.text, got, tt.want)
		}
	}
	if got := secret.Redact("abc", "abc", ""); got != "abc" {
		t.Errorf("Redact = %s: a value too short for a secret must stay", got)
	}
	if got := secret.Redact("x abcd", "abcd"); got != "x [redacted]" {
		t.Errorf("Redact = %s: the shortest secret must not stay", got)
	}
}

// No form of a secret remains, whatever the secret is and wherever it appears.
func TestRedactAnywhere(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.StringMatching(`[ -~]{12,40}`).Draw(t, "key")
		before, after := rapid.StringMatching(`[a-z:]{0,5}`).Draw(t, "before"), rapid.StringMatching(`[a-z:]{0,5}`).Draw(t, "after")
		inJSON, err := json.Marshal(before + key + after)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{
			before + key + after, url.QueryEscape(before + key + after), url.PathEscape(before + key + after), string(inJSON),
			base64.StdEncoding.EncodeToString([]byte(before + key + after)), base64.URLEncoding.EncodeToString([]byte(before + key + after)),
		} {
			if got := secret.Redact(text, key); !strings.Contains(got, secret.Redacted) {
				t.Fatalf("Redact(%s) = %s", text, got)
			}
		}
	})
}

// However a text is split into pieces, the output contains no part of a secret that redaction of the whole text
// would remove.
func TestCut(t *testing.T) {
	t.Parallel()
	h := secret.New("s3cr&t-s3cr", "other")
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"s3cr&t-s3cr", "s3cr%26t-s3cr", "s3cr", "&t", "a", "oth", "other", "s"})).Draw(t, "text"), "")
		var shown strings.Builder
		kept := ""
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "cut")
			var show string
			show, kept = h.Cut(kept + rest[:n])
			shown.WriteString(show)
			rest = rest[n:]
		}
		if got, want := shown.String()+kept, h.Redact(text); got != want {
			t.Fatalf("in pieces %q, whole %q", got, want)
		}
	})
}
