package model_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// A build of the same model belongs to its family; another size or generation does not (A12).
func TestFamily(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"claude-haiku-4-5": "claude-haiku-4-5", "claude-haiku-4-5-20251001": "claude-haiku-4-5", "claude-opus-4-5@20251101": "claude-opus-4-5",
		"anthropic/Claude-Opus-4-6": "claude-opus-4-6", "claude-mythos-preview": "claude-mythos",
		"gpt-5-mini-2025-08-07": "gpt-5-mini", "gpt-5-mini": "gpt-5-mini", "gpt-5.2": "gpt-5.2", "gpt-4o-latest": "gpt-4o",
		"models/gemini-3-pro-preview": "gemini-3-pro", "gemini-2.5-flash-preview-09-2025": "gemini-2.5-flash-preview-09-2025",
		"gemini-2.0-flash-001": "gemini-2.0-flash", "gemini-2.5-pro-preview-05-06": "gemini-2.5-pro",
		"mock-1": "mock-1", "": "", "20250101": "20250101", "o3": "o3",
	} {
		if got := model.Family(name); got != want {
			t.Errorf("Family(%q) = %q, want %q", name, got, want)
		}
	}
}
