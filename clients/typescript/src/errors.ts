/** The base of all errors that this package throws on purpose. */
export class TurnpikeError extends Error {
  constructor(message?: string) {
    super(message);
    this.name = new.target.name;
  }
}

/** One mistake in a definition. */
export interface Fault {
  at?: string;
  detail: string;
  line?: number;
  column?: number;
}

/** The body of a refusal. */
export interface ProblemBody {
  code?: string;
  title?: string;
  detail?: string;
  request_id?: string;
  errors?: Fault[];
}

/** A gateway refused a request. `code` is stable; `detail` is for people. */
export class Problem extends TurnpikeError {
  readonly code: string;
  readonly title: string;
  readonly detail: string;
  readonly requestId: string;
  readonly errors: Fault[];
  /** An earlier try of the request got no answer, and may have had its effect. */
  retried = false;

  constructor(body: ProblemBody, readonly status: number, /** Seconds, if the gateway names a time. */ readonly retryAfter?: number) {
    super(`${body.code ?? "unknown"} (${status}): ${body.detail ?? body.title ?? ""}`);
    this.code = body.code ?? "unknown";
    this.title = body.title ?? "";
    this.detail = body.detail ?? "";
    this.requestId = body.request_id ?? "";
    this.errors = body.errors ?? [];
  }
}

/** The request or the definition has a mistake. */
export class Invalid extends Problem {}
/** The token is missing, unknown, expired or revoked. */
export class Unauthenticated extends Problem {}
/** The caller lacks a role, or the tenant may not do this. */
export class Forbidden extends Problem {}
/** The run, agent or other resource does not exist, or belongs to another tenant. */
export class NotFound extends Problem {}
/** The state of the run, or another use of the same key, rules the request out. */
export class Conflict extends Problem {}
/** The run does not wait for this signal. */
export class NotWaiting extends Conflict {}
/** Another call waits than the one that was decided. */
export class Stale extends Conflict {}
/** The run has ended. */
export class Ended extends Conflict {}
/** The run is queued or running, and the message has the mode reject. */
export class Busy extends Conflict {}
/** A tool call of the turn in flight may have had an effect, so the turn cannot be withdrawn. */
export class EffectsStarted extends Conflict {}
/** The file of a memory has another version than the change requires (412). */
export class Changed extends Conflict {}
/** A limit is reached: of size (413) or of requests at a time (429). */
export class Full extends Problem {}
/** The gateway, or a server behind it, does not answer: status 0 without an answer, else 5xx. */
export class Unavailable extends Problem {}

/** A run ended without completing. */
export class RunFailed extends TurnpikeError {
  constructor(readonly runId: string, readonly status: string, readonly reason: string, readonly detail = "") {
    super(`run ${runId} ended ${status}: ${reason}${detail ? `: ${detail}` : ""}`);
  }
}

/** The output of a completed run does not match the schema that the caller asked for. */
export class OutputError extends TurnpikeError {
  constructor(readonly runId: string, readonly output: unknown, reason: string) {
    super(`run ${runId}: the output does not fit: ${reason}`);
  }
}

/** A wait took longer than the caller allowed. */
export class Timeout extends TurnpikeError {}

/** A tool could not do what it was called for. The model reads the text. */
export class ToolError extends TurnpikeError {}

/** The arguments of a call do not match the tool's schema, so the function was not called. */
export class ArgumentsError extends ToolError {}

/** There is no connection to a NATS server. */
export class NATSError extends TurnpikeError {}

const byCode: Record<string, typeof Problem> = {
  not_waiting: NotWaiting, stale_approval: Stale, stale_draft: Stale, run_finished: Ended, run_busy: Busy,
  effects_started: EffectsStarted, memory_changed: Changed, inbox_full: Full,
};
const byStatus: Record<number, typeof Problem> = {
  401: Unauthenticated, 403: Forbidden, 404: NotFound, 409: Conflict, 413: Full, 429: Full,
};

/** Returns the error for an answer of the gateway. */
export function problem(body: ProblemBody, status: number, retryAfter?: number): Problem {
  const kind = byCode[body.code ?? ""] ?? byStatus[status] ?? (status === 0 || status >= 500 ? Unavailable : Invalid);
  return new kind(body, status, retryAfter);
}
