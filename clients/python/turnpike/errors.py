"""Errors of the client and of tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class TurnpikeError(Exception):
    """The base of all errors that this package raises on purpose."""


class Problem(TurnpikeError):
    """A gateway refused a request. `code` is stable; `detail` is for people."""

    def __init__(self, body: Mapping[str, Any], status: int, retry_after: float | None = None):
        self.status = status
        self.code = str(body.get("code") or "unknown")
        self.title = str(body.get("title") or "")
        self.detail = str(body.get("detail") or "")
        self.request_id = str(body.get("request_id") or "")
        self.retry_after = retry_after  # seconds; None if the gateway named no time
        self.retried = False  # an earlier try of the request got no answer, and may have had its effect
        self.errors: list[dict[str, Any]] = list(body.get("errors") or [])  # the mistakes of an agent's definition
        super().__init__(f"{self.code} ({status}): {self.detail or self.title}")


class Invalid(Problem):
    """The request or the definition has a mistake."""


class Unauthenticated(Problem):
    """The token is missing, unknown, expired or revoked."""


class Forbidden(Problem):
    """The caller lacks a role, or the tenant may not do this."""


class NotFound(Problem):
    """The run, agent or other resource does not exist, or belongs to another tenant."""


class Conflict(Problem):
    """The state of the run, or another use of the same key, rules the request out."""


class NotWaiting(Conflict):
    """The run does not wait for this signal."""


class Stale(Conflict):
    """Another call waits than the one that was decided."""


class Ended(Conflict):
    """The run has ended."""


class Busy(Conflict):
    """The run is queued or running, and the message has the mode reject."""


class EffectsStarted(Conflict):
    """A tool call of the turn in flight may have had an effect, so the turn cannot be withdrawn."""


class Changed(Conflict):
    """The file of a memory has another version than the change requires (412)."""


class Full(Problem):
    """A limit is reached: of size (413) or of requests at a time (429)."""


class Unavailable(Problem):
    """The gateway, or a server behind it, does not answer: status 0 without an answer, else 5xx."""


class RunFailed(TurnpikeError):
    """A run ended without completing."""

    def __init__(self, run_id: str, status: str, reason: str, detail: str = ""):
        self.run_id, self.status, self.reason, self.detail = run_id, status, reason, detail
        super().__init__(f"run {run_id} ended {status}: {reason}" + (f": {detail}" if detail else ""))


class OutputError(TurnpikeError):
    """The output of a completed run is not of the type that the caller asked for."""

    def __init__(self, run_id: str, output: object, reason: str):
        self.run_id, self.output = run_id, output
        super().__init__(f"run {run_id}: the output does not fit: {reason}")


class ToolError(TurnpikeError):
    """A tool could not do what it was called for. The model reads the text."""


class ArgumentsError(ToolError):
    """The arguments of a call do not match the tool's schema, so the function was not called."""


class Cancelled(TurnpikeError):
    """The caller of a tool no longer waits. See `Context.check`."""


class NATSError(TurnpikeError):
    """There is no connection to a NATS server, and there will be none without a change."""


_BY_CODE: dict[str, type[Problem]] = {
    "not_waiting": NotWaiting,
    "stale_approval": Stale,
    "stale_draft": Stale,
    "run_finished": Ended,
    "run_busy": Busy,
    "effects_started": EffectsStarted,
    "memory_changed": Changed,
    "inbox_full": Full,
}

_BY_STATUS: dict[int, type[Problem]] = {
    401: Unauthenticated, 403: Forbidden, 404: NotFound, 409: Conflict, 413: Full, 429: Full,
}


def problem(body: Mapping[str, Any], status: int, retry_after: float | None = None) -> Problem:
    """Returns the error for an answer of the gateway."""
    kind = _BY_CODE.get(str(body.get("code"))) or _BY_STATUS.get(status)
    if kind is None:
        kind = Unavailable if status >= 500 else Invalid
    return kind(body, status, retry_after)
