package keys

import "unicode/utf8"

// MaxClip is the maximum number of bytes of a caller's input in an error.
const MaxClip = 200

// Clip returns the beginning of a text that a caller wrote.
func Clip(text string) string {
	if len(text) <= MaxClip {
		return text
	}
	end := MaxClip
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
