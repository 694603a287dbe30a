// The shapes of the HTTP API: api.ts is generated from the gateway's OpenAPI document. Times are RFC 3339 texts.
import type { components } from "./api.js";

type Schemas = components["schemas"];

export type RunInfo = Schemas["Run"];
export type Status = RunInfo["status"];
export type Usage = Schemas["Usage"];
export type Message = Schemas["Message"];
export type Turn = Schemas["Turn"];
export type Agent = Schemas["Agent"];
export type AgentVersion = Schemas["AgentVersion"];
export type SavedAgent = Schemas["SavedAgent"];
export type BatchInfo = Schemas["Batch"];
export type Signal = Schemas["Signal"];
export type Token = Schemas["NewToken"];
export type ForkRequest = Schemas["Fork"];
export type File = Schemas["File"];
export type MemoryFile = Schemas["MemoryFile"];
export type Hook = Schemas["Hook"];
export type HookSettings = Schemas["HookSettings"];
export type TriggerInfo = Schemas["Trigger"];
export type TriggerSettings = Schemas["TriggerSettings"];
export type DeadLetter = Schemas["DeadLetter"];
export type PendingEvent = Schemas["PendingEvent"];
export type WebhookTest = Schemas["WebhookTest"];
export type RunFilter = Schemas["RunFilter"];
export type Transcript = Schemas["Transcript"];
export type Evaluation = Schemas["Evaluation"];
export type EvaluationReport = Schemas["EvaluationReport"];
export type EvaluationSummary = Schemas["EvaluationSummary"];

/** One event of a run. `seq` is null for live events, which are not stored. */
export type Event = Schemas["Event"] & {
  reason?: string;
  detail?: string;
  version?: number;
  status?: Status;
  message?: Message;
  messages?: Message[];
  call_id?: string;
  name?: string;
  is_error?: boolean;
  waiting?: NonNullable<RunInfo["waiting"]>;
  output?: string;
  structured_output?: unknown;
  error?: { code: string; message: string };
  progress?: string;
  delta?: { text?: string } & Record<string, unknown>;
};

/** The body of a submission. The OpenAPI document has no type for the content of a schema and for durations. */
export type Submission = Omit<Schemas["Submit"], "output_schema" | "delay"> & {
  output_schema?: object;
  delay?: string | number;
};

export type ScheduleSettings = Omit<Schemas["ScheduleSettings"], "run"> & { run: Submission };
export type ScheduleInfo = Omit<Schemas["Schedule"], "run"> & { run: Submission };

const terminal: readonly Status[] = ["completed", "incomplete", "failed", "cancelled"];

export function ended(run: RunInfo): boolean {
  return terminal.includes(run.status);
}

/** Reports whether the run has ended or waits, and not only for its own child runs. */
export function atRest(run: RunInfo): boolean {
  return ended(run) || (run.waiting !== null && run.waiting.reason !== "waiting_child");
}
