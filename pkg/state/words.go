package state

import "github.com/turnpike-dev/turnpike/internal/state/wire"

// The words of the stored format. Only a new format may add or move one; others are stored as text, see wire.Words.
var (
	entryTypes = wire.NewWords(
		EntrySubmitted, EntryModel, EntryTombstoned, EntryCompacted, EntryTool, EntryReused, EntryProgress, EntryReflect, EntryDecided, EntryWarning,
		EntryExceeded, EntryTransition, EntryWaiting, EntryFinished, EntryChecked, EntryHandoff,
	)
	statuses    = wire.NewWords(Queued, Running, Waiting, Completed, Incomplete, Failed, Cancelled)
	priorities  = wire.NewWords(High, Normal, Low)
	roles       = wire.NewWords(RoleSystem, RoleUser, RoleAssistant, RoleTool)
	partTypes   = wire.NewWords(PartText, PartThinking, PartToolCall, PartToolResult, PartImage, PartFile, PartProviderTool)
	origins     = wire.NewWords(OriginTool, OriginWeb, OriginAgent, OriginPerson)
	stopReasons = wire.NewWords("end", "tool_calls", "max_output_tokens", "refusal", "content_filter", "pause") // of model.Stop
	reasons     = wire.NewWords(
		Submitted, NextTurn, MaxOutputTokensRecovery, StopHookBlocking, ReactiveCompactRetry, BudgetContinuation, OutputRetry, ModelFallback, ModelRetry,
		Reflected, FinalResponse, ToolResults, Approved, Denied, Answered, ChildFinished, UserMessage, Forked, Recovered, Replayed,
		WaitingApproval, WaitingClientTool, WaitingHumanInput, WaitingChild, WaitingTool, WaitingSchedule,
		EndCompleted, EndConfident, EndStopHookPrevented, EndMaxTurns, EndTokenBudget, EndDiminishingReturns, EndCostBudget, EndDeadline, EndPromptTooLong,
		EndMaxOutputTokens, EndToolLoop, EndRefused, EndModelError, EndInvalidOutput, EndInvalidAgent, EndPoisoned, EndExpired, EndStopHookFailed, EndLost,
		EndAbortedQueued, EndAbortedStreaming, EndAbortedTools, EndAbortedWaiting, Interrupted, EndInputHookFailed, HandedOff,
	)
)
