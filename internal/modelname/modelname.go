// Package modelname parses the family and version in the name of a model. The settings that a model
// accepts depend on them, for gateways, which check definitions, and for the adapters.
package modelname

import (
	"regexp"
	"strconv"
	"strings"
)

// snapshot matches the end of a model name that tells builds of one model apart: a date or a stage.
var snapshot = regexp.MustCompile(`([-@](\d{8}|\d{4}-\d{2}-\d{2}|\d{2}-\d{2}|\d{3}|latest|preview|exp)(-v\d+)?(:\d+)?)+$`)

// Family returns the name of a model without the path before it and without the date of its build.
func Family(name string) string {
	name = strings.ToLower(name[strings.LastIndexByte(name, '/')+1:])
	if short := snapshot.ReplaceAllString(name, ""); short != "" {
		return short
	}
	return name
}

// Version is the version of a model. The zero Version means that the model is from another vendor.
type Version struct{ Major, Minor int }

// newest is the version of a model whose name has none: it is newer than those that had one.
var newest = Version{Major: 1000}

// Since reports whether v is major.minor or later.
func (v Version) Since(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

// Known reports whether the model is from the vendor in question.
func (v Version) Known() bool { return v != Version{} }

var (
	claude = regexp.MustCompile(`^claude-(?:[a-z]+-)?(\d+)(?:-(\d))?\b`)
	gpt    = regexp.MustCompile(`^gpt-(\d+)(?:\.(\d+))?`)
	gemini = regexp.MustCompile(`^gemini-(\d+)(?:\.(\d+))?\b`)
)

// Claude returns the version of one of Anthropic's models.
func Claude(name string) Version { return version(name, "claude-", claude) }

// Gemini returns the version of one of Google's models.
func Gemini(name string) Version { return version(name, "gemini-", gemini) }

// GPT returns the version of a gpt model.
func GPT(name string) Version { return version(name, "gpt-", gpt) }

func version(name, maker string, number *regexp.Regexp) Version {
	family := Family(name)
	i := strings.Index(family, maker) // some servers put a word before it
	if i < 0 {
		return Version{}
	}
	m := number.FindStringSubmatch(family[i:])
	if m == nil {
		return newest
	}
	major, _ := strconv.Atoi(m[1]) // digits
	minor, _ := strconv.Atoi(m[2]) // digits, or nothing
	return Version{major, minor}
}

var (
	openAI      = regexp.MustCompile(`^(gpt-[0-9]|o[0-9]|chatgpt-|codex-)`)
	oSeries     = regexp.MustCompile(`^o[0-9]`)
	unreasoning = regexp.MustCompile(`^(gpt-3|gpt-4|chatgpt-|gpt-[5-9][0-9.]*-chat)`)
)

// OpenAI reports whether a model is one of OpenAI's own.
func OpenAI(name string) bool { return openAI.MatchString(Family(name)) }

// OSeries reports whether a model is one of o1 to o4.
func OSeries(name string) bool { return oSeries.MatchString(Family(name)) }

// Reasons reports whether a model that OpenAI's API serves may reason: all do that are newer than
// those known not to.
func Reasons(name string) bool { return !unreasoning.MatchString(Family(name)) }
