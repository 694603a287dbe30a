package api

import (
	"errors"
	"fmt"
)

// Problem is an error in the format of RFC 9457, with a stable code.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`

	// Errors are the mistakes of a definition, of variables or of a fork one by one, in the order of Detail. Most other
	// problems have none. A problem has at most 4 KiB, so the last of many mistakes may be missing, or replaced by an
	// entry that gives their number.
	Errors []Fault `json:"errors,omitempty"`

	// RequestID is the value of the header X-Request-Id, or "".
	RequestID string `json:"request_id,omitempty"`

	// RetryAfter is the number of seconds after which a retry may succeed; 0 if the gateway gave none.
	RetryAfter int `json:"-"`
}

// Fault is one mistake in a request.
type Fault struct {
	At     string `json:"at,omitempty"` // as in tools[0].name; empty for the whole request
	Detail string `json:"detail"`

	// Line and Column of the body, from 1; 0 if they are not known.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
}

func (p *Problem) Error() string { return fmt.Sprintf("%s: %s", p.Code, p.Detail) }

// Causes of problems, for errors.Is. Several codes share a cause. A code without a cause matches none of them.
var (
	ErrInvalid         = errors.New("invalid request")
	ErrNotFound        = errors.New("not found")
	ErrConflict        = errors.New("conflict with an earlier change")
	ErrNotWaiting      = errors.New("run does not wait for this")
	ErrStale           = errors.New("decision about a call or a draft that has changed since it was read")
	ErrEnded           = errors.New("run has ended")
	ErrFull            = errors.New("limit reached")
	ErrUnauthenticated = errors.New("not authenticated")
	ErrForbidden       = errors.New("forbidden")
	ErrUnavailable     = errors.New("unavailable")
	ErrNewerBuild      = errors.New("written by a newer build")
)

// causes holds the cause of each code that has one.
var causes = map[string]error{
	CodeInvalidJSON: ErrInvalid, CodeInvalidRequest: ErrInvalid, CodeInvalidID: ErrInvalid, CodeInvalidAgent: ErrInvalid,
	CodeInvalidCursor: ErrInvalid, CodeBodyTooLarge: ErrInvalid, CodeHeadersTooLarge: ErrInvalid, CodeMethodNotAllowed: ErrInvalid,
	CodeNotSupported: ErrInvalid,
	CodeNotFound:     ErrNotFound, CodeRunNotFound: ErrNotFound, CodeAgentNotFound: ErrNotFound, CodeBatchNotFound: ErrNotFound,
	CodeDraftNotFound: ErrNotFound, CodeLetterNotFound: ErrNotFound, CodeTenantNotFound: ErrNotFound, CodeKeyNotFound: ErrNotFound,
	CodeHookNotFound: ErrNotFound, CodeInvalidDelivery: ErrInvalid, CodeTooManyHooks: ErrFull, CodeWebhookTestNotFound: ErrNotFound, CodeTooManyWebhookTests: ErrFull, CodeTriggerNotFound: ErrNotFound, CodeTooManyTriggers: ErrFull, CodeScheduleNotFound: ErrNotFound, CodeTooManySchedules: ErrFull, CodeTooManyDeliveries: ErrFull,
	CodeIdempotencyConflict: ErrConflict, CodeRunInFlight: ErrConflict, CodeRunBeingDeleted: ErrConflict, CodeRunBusy: ErrConflict, CodeEffectsStarted: ErrConflict, CodeNotReplayable: ErrConflict,
	CodeNoRestore:    ErrConflict,
	CodeFileNotFound: ErrNotFound, CodeFileInUse: ErrConflict, CodeFilesFull: ErrFull,
	CodeMemoryNotFound: ErrNotFound, CodeMemoryChanged: ErrConflict, CodeEvaluationNotFound: ErrNotFound,
	CodeNotWaiting: ErrNotWaiting, CodeStaleApproval: ErrStale, CodeStaleDraft: ErrStale, CodeRunFinished: ErrEnded,
	CodeInboxFull: ErrFull, CodeTooManyReads: ErrFull, CodeTooManyBytes: ErrFull, CodeTooManyStreams: ErrFull,
	CodeTooManyWaits: ErrFull, CodeTooManyConnections: ErrFull,
	CodeUnauthenticated: ErrUnauthenticated, CodeForbidden: ErrForbidden, CodeNotPermitted: ErrForbidden, CodeTenantSuspended: ErrForbidden,
	CodeOverloaded: ErrUnavailable, CodeBodyTooSlow: ErrUnavailable, CodeProviderUnavailable: ErrUnavailable,
	CodeStoreUnavailable: ErrUnavailable, CodeBusUnavailable: ErrUnavailable, CodeWaitingRestore: ErrUnavailable,
	CodeNewerBuild: ErrNewerBuild,
}

// Is reports whether target is the cause of p's code.
func (p *Problem) Is(target error) bool {
	cause := causes[p.Code]
	return cause != nil && cause == target //nolint:errorlint // Is compares
}

// Codes of problems: a closed set, listed in docs/reference/errors.md.
const (
	CodeInvalidJSON         = "invalid_json"
	CodeInvalidRequest      = "invalid_request"
	CodeInvalidID           = "invalid_id"
	CodeInvalidAgent        = "invalid_agent"
	CodeInvalidCursor       = "invalid_cursor"
	CodeBodyTooLarge        = "body_too_large"
	CodeInboxFull           = "inbox_full"
	CodeTooManyReads        = "too_many_reads"
	CodeTooManyBytes        = "too_many_bytes"
	CodeTooManyStreams      = "too_many_streams"
	CodeTooManyWaits        = "too_many_waits"
	CodeTooManyConnections  = "too_many_connections"
	CodeOverloaded          = "overloaded"
	CodeBodyTooSlow         = "body_too_slow"
	CodeNotFound            = "not_found"
	CodeRunNotFound         = "run_not_found"
	CodeAgentNotFound       = "agent_not_found"
	CodeBatchNotFound       = "batch_not_found"
	CodeHeadersTooLarge     = "headers_too_large"
	CodeInternal            = "internal_error"
	CodeMethodNotAllowed    = "method_not_allowed"
	CodeIdempotencyConflict = "idempotency_conflict"
	CodeRunFinished         = "run_finished"
	CodeRunInFlight         = "run_in_flight"
	CodeRunBeingDeleted     = "run_being_deleted"
	CodeRunBusy             = "run_busy"
	CodeEffectsStarted      = "effects_started"
	CodeNotWaiting          = "not_waiting"
	CodeDraftNotFound       = "draft_not_found"
	CodeStaleDraft          = "stale_draft"
	CodeStaleApproval       = "stale_approval"
	CodeNotReplayable       = "not_replayable"
	CodeLetterNotFound      = "letter_not_found"
	CodeNotSupported        = "not_supported"
	CodeUnauthenticated     = "unauthenticated"
	CodeForbidden           = "forbidden"
	CodeNotPermitted        = "not_permitted"
	CodeTenantSuspended     = "tenant_suspended"
	CodeTenantNotFound      = "tenant_not_found"
	CodeKeyNotFound         = "key_not_found"
	CodeHookNotFound        = "hook_not_found"
	CodeTooManyHooks        = "too_many_hooks"
	CodeWebhookTestNotFound = "webhook_test_not_found"
	CodeTooManyWebhookTests = "too_many_webhook_tests"
	CodeTriggerNotFound     = "trigger_not_found"
	CodeTooManyTriggers     = "too_many_triggers"
	CodeScheduleNotFound    = "schedule_not_found"
	CodeTooManySchedules    = "too_many_schedules"
	CodeFileNotFound        = "file_not_found"
	CodeFileInUse           = "file_in_use"
	CodeFilesFull           = "files_full"
	CodeMemoryNotFound      = "memory_not_found"
	CodeMemoryChanged       = "memory_changed"
	CodeEvaluationNotFound  = "evaluation_not_found"
	CodeTooManyDeliveries   = "too_many_deliveries"
	CodeInvalidDelivery     = "invalid_delivery"
	CodeProviderUnavailable = "provider_unavailable"
	CodeStoreUnavailable    = "store_unavailable"
	CodeBusUnavailable      = "bus_unavailable"
	CodeNewerBuild          = "newer_build"
	CodeWaitingRestore      = "waiting_restore"
	CodeNoRestore           = "no_restore"
)
