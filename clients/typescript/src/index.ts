// Client of Turnpike, which runs LLM agents as events on a queue: submit runs, follow them, serve tools.
export { Client, type ClientOptions, type SubmitOptions, type TokenOptions } from "./client.js";
export {
  ArgumentsError, Busy, Changed, Conflict, EffectsStarted, Ended, type Fault, Forbidden, Full, Invalid, NATSError, NotFound, NotWaiting, OutputError,
  Problem, RunFailed, Stale, Timeout, ToolError, TurnpikeError, Unauthenticated, Unavailable,
} from "./errors.js";
export { Memory, Schedule, Trigger } from "./resources.js";
export { Batch, type Decision, Run, type Wait } from "./run.js";
export type { FromSchema, ObjectSchema, Schema } from "./schema.js";
export { serve, type ServeOptions } from "./serve.js";
export { type Context, type Image, Result, type ResultFile, type Tool, tool, type ToolOptions } from "./tool.js";
export type {
  Agent, AgentVersion, BatchInfo, DeadLetter, Evaluation, EvaluationReport, EvaluationSummary, Event, File, ForkRequest, Hook, HookSettings, MemoryFile,
  Message, PendingEvent, RunFilter, RunInfo, SavedAgent, ScheduleInfo, ScheduleSettings, Signal, Status, Submission, Token, Transcript, TriggerInfo,
  TriggerSettings, Turn, Usage, WebhookTest,
} from "./types.js";
