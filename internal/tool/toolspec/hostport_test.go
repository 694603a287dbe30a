package toolspec

import "testing"

func TestHostPort(t *testing.T) {
	for text, want := range map[string]string{
		"https://api.example/v1":           "api.example:443",
		"http://api.example?q={q}":         "api.example:80",
		"HTTPS://api.example":              "api.example:443",
		"https://api.example:8443/v1/{id}": "api.example:8443",
		"https://api.example:/v1":          "api.example:443",
		"https://[::1]/v1":                 "[::1]:443",
		"https://[::1]:/v1":                "[::1]:443",
		"/v1":                              "",
		"https:///v1":                      "",
		"https://a b/":                     "",
	} {
		if got := HostPort(text); got != want {
			t.Errorf("HostPort(%q) = %q, want %q", text, got, want)
		}
	}
}
