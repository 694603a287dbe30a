package keys

import "unicode/utf8"

// MaxClip is the number of bytes that an error shows of what a caller wrote.
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
