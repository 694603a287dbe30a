// What the API answers. The reference is /openapi.json; only what the page reads is here.

export type Status = "queued" | "running" | "waiting" | "completed" | "incomplete" | "failed" | "cancelled";
export const statuses: Status[] = ["queued", "running", "waiting", "completed", "incomplete", "failed", "cancelled"];
export const ended = (s: string): boolean => s === "completed" || s === "incomplete" || s === "failed" || s === "cancelled";

export type JSONValue = null | boolean | number | string | JSONValue[] | { [key: string]: JSONValue };

export interface Usage {
  input_tokens: number;
  output_tokens: number;
  cache_read_tokens: number;
  cache_write_tokens: number;
  cache_expired_tokens: number;
  model_calls: number;
  tool_calls: number;
  cost_usd: number | null;
  estimated?: boolean;
}

export type Needs = "approval" | "result" | "answer" | "child" | "async";

// Schedule starts a run at fixed times.
export interface Schedule {
  name: string;
  cron: string;
  timezone?: string;
  run: { agent: string };
  paused?: boolean;
  next: string[];
  last?: { at: string; run_id?: string; error?: string };
  waiting?: string;
  fired: number;
  skipped: number;
}

export interface WaitCall {
  id: string;
  tool: string;
  arguments: JSONValue;
  message: string;
  needs: Needs;
  hash?: string;
  risk: "reads" | "writes" | "pays" | "sends" | null;
  run_id: string | null;
  args_from_untrusted?: boolean;
  untrusted_seen?: boolean;
  sources?: ArgumentSource[];
  again?: AskedAgain | null;
}

// AskedAgain is why a call that an approver has edited waits for approval once more.
export interface AskedAgain {
  reason: "rule" | "hook" | "four_eyes";
  edited_by?: string;
  original_arguments: JSONValue; // those of the model
}

// ArgumentSource is where a value of an argument also stands.
export interface ArgumentSource {
  argument: string;
  origin: "tool" | "web" | "agent" | "person";
  turn: number;
  call_id?: string;
  tool?: string;
}

export interface Waiting {
  reason: string;
  since: string | null;
  expires_at: string | null;
  calls: WaitCall[];
  question: string | null;
}

export interface Run {
  id: string;
  agent: string;
  agent_version: number;
  active_agent: { name: string; version: number } | null;
  loop: string;
  tenant: string;
  priority: string;
  metadata: Record<string, string>;
  variables: JSONValue;
  parent: { run_id: string; call_id: string; depth: number } | null;
  status: Status;
  reason: string | null;
  transition: { reason: string; detail: string; turn: number; version: number; at: string | null };
  turn_count: number;
  version: number;
  output: string | null;
  structured_output: JSONValue;
  waiting: Waiting | null;
  usage: Usage;
  budget: {
    max_turns: number | null;
    output_tokens: number | null;
    total_tokens: number | null;
    cost_usd: number | null;
    deadline: string | null;
    used_fraction: number;
  };
  confidence: number | null;
  error: { code: string; message: string } | null;
  created_at: string | null;
  started_at: string | null;
  updated_at: string | null;
  finished_at: string | null;
  idle_ms?: number; // it lay at an end so long before something continued it
  trouble?: Trouble;
}

// Trouble counts what went wrong in a run, whatever its end.
export interface Trouble {
  tool_errors: number;
  model_retries: number;
  recovered: number;
  hook_errors: number;
  limits: string[]; // that the run has approached
}

export interface Part {
  type: "text" | "thinking" | "tool_call" | "tool_result" | "image" | "file" | "provider_tool";
  text?: string;
  id?: string;
  name?: string;
  arguments?: JSONValue;
  call_id?: string;
  content?: string;
  is_error?: boolean;
  images?: Image[];
  files?: FileRef[]; // of a result
  media_type?: string;
  data?: string;
  url?: string;
  file_id?: string;
  bytes?: number;
  origin?: "tool" | "web" | "agent" | "person";
  opaque?: JSONValue; // what the provider wants back, with the citations of a text
}

export type FileRef = Pick<Part, "name" | "media_type" | "bytes" | "file_id" | "url">;

export interface Image {
  media_type?: string;
  data?: string;
  url?: string;
}

export interface Message {
  id: string;
  role: "system" | "user" | "assistant" | "tool";
  turn: number;
  at: string | null;
  model?: string | null;
  synthetic?: boolean;
  undelivered?: boolean;
  parts?: Part[];
}

// ForkSource is the run that a fork shares its history with, through a turn.
export interface ForkSource {
  run_id: string;
  turn: number;
  changed?: string[]; // in words
}

// Event is an event of one run, committed (with seq) or live (without).
export interface Event {
  seq: number | null;
  run_id: string;
  type: string;
  turn: number;
  attempt: number;
  at: string;
  reason?: string;
  detail?: string;
  version?: number;
  status?: Status;
  worker?: string;
  duration_ms?: number;
  messages?: Message[];
  message?: Message;
  message_ids?: string[];
  forked_from?: ForkSource;
  handoff?: { from: { name: string; version: number }; to: { name: string; version: number } };
  stop_reason?: string;
  usage?: Usage;
  failed_calls?: number;
  call_id?: string;
  name?: string;
  is_error?: boolean;
  arguments?: JSONValue;
  waiting?: Waiting;
  output?: string;
  structured_output?: JSONValue;
  error?: { code: string; message: string };
  by?: { principal: string; tenant: string; via: string };
  approval?: { decision: "approve" | "deny"; hash?: string; shown?: JSONValue; arguments?: JSONValue; reason?: string; expired?: boolean };
  first?: boolean; // the delta is the first piece of a response
  delta?: { text?: string; thinking?: string; call_id?: string; name?: string; arguments?: string };
  progress?: JSONValue;
  step?: number;
  action?: string;
  target?: string;
  assessment?: string;
  guidance?: string;
  confidence?: number;
  confidence_delta?: number;
  limit?: string;
  used_fraction?: number;
}

export interface Page<T> {
  items: T[];
  next_cursor: string | null;
  examined?: number; // of a search for a text: in how many runs it was looked for
  complete?: boolean; // those are all that match the other filters
}

export interface Readiness {
  status: string;
  restore: string; // ok, or waiting_restore and why
}

export interface Session {
  ways: ("key" | "oidc")[];
  principal: string;
  tenants: string[];
  expires_at: string | null;
}

export type Role = "viewer" | "submitter" | "approver" | "operator" | "author" | "admin" | "issuer";

export interface Identity {
  principal: string;
  via: string;
  tenant: string;
  roles: string[];
  tenants: string[];
}

export interface Agent {
  name: string;
  version: number;
  definition: { [key: string]: JSONValue };
  status?: "draft" | "published";
  warnings?: { at?: string; detail: string; line?: number; column?: number }[]; // of one that was saved
  created_at: string;
}

export interface AgentDraft {
  name: string;
  version: number; // that it would have
  status: "draft";
  definition: { [key: string]: JSONValue };
  hash: string;
  by: { principal: string; tenant: string; via: string };
  authors?: string[]; // all who have saved exactly this
  created_at: string;
}

export interface Canceled {
  matched: number;
  cancelled: number;
  run_ids: string[];
  next_cursor: string | null;
}

export interface RunStats {
  total: number;
  statuses: Partial<Record<Status, number>>;
  cost_usd: number | null; // of the runs whose cost is known
  duration_ms: { p50: number | null; p95: number | null };
  troubled: number; // runs with failures, whatever their end
}

export interface AgentVersion {
  version: number;
  created_at: string;
  latest: boolean;
  runs: RunStats;
}

export interface AgentVersions extends Page<AgentVersion> {
  examined: number;
  complete: boolean;
}

export interface DeadLetter {
  seq: number;
  kind: string;
  status: "open" | "replaying" | "replayed" | "closed";
  run_id: string | null;
  agent: string | null;
  lane: string;
  cause: string;
  at: string;
  version: number;
  attempts: number;
  calls: { id: string; tool: string; arguments: string }[];
  data: string;
  replay: { run_id: string; at: string | null } | null;
  advice: string;
}

export interface PendingEvent {
  id: string;
  run_id: string;
  agent: string;
  type: "run.finished" | "run.waiting";
  host: string;
  reason: "first_attempt" | "failed" | "earlier_event" | "receiver_failing" | "busy";
  since: string;
  attempts: number;
  last_attempt_at: string | null;
  last_error: string;
  next_attempt_at: string;
}

export interface Worker {
  id: string;
  status: "alive" | "unreachable";
  version: string;
  slots: number;
  heard_at: string | null;
  holds: number;
  runs: string[];
}

export interface Queue {
  lane: string;
  backlog: number;
  oldest_at: string | null;
  oldest_seconds: number;
}

export interface Queues extends Page<Queue> {
  runs: Partial<Record<Status, number>>;
}

export interface BatchSummary {
  id: string;
  total: number;
  max_parallel: number;
  count_waiting: boolean;
  counts: Partial<Record<Status, number>>;
  deleted: number;
  done: boolean;
  created_at: string;
}

export interface Batch extends Page<{ index: number; id: string; status: Status; reason: string | null }> {
  id: string;
  total: number;
  max_parallel: number;
  count_waiting: boolean;
  counts: Partial<Record<Status, number>>;
  deleted: number;
  done: boolean;
  created_at: string;
}

export interface Tenant {
  name: string;
  four_eyes: boolean;
  suspended: boolean;
  hosts?: string[];
  models?: string[];
  mcp_commands?: string[];
  provider_tools?: string[];
  secrets?: { name: string; hosts?: string[] }[];
}

export interface APIKey {
  id: string;
  name: string;
  tenant: string;
  roles: string[];
  created_by: string;
  created_at: string;
  expires_at: string | null;
}

export interface NewToken {
  id: string;
  token: string; // its text, which no later answer has
  user: string;
  tenant: string;
  roles: string[];
  agents?: string[];
  run?: string;
  expires_at: string;
}

export interface TokenKeys {
  keys: { id: string; created_at: string }[]; // the newest first
}

export interface AuditEntry {
  at: string;
  by: { principal: string; tenant: string; via: string };
  action: string;
  target: string;
}

// Mapping is how a message or a delivery becomes a run or a signal. The page sends back what it does not know.
export interface Mapping {
  filter?: string;
  run?: { agent: string; [key: string]: JSONValue };
  signal?: { [key: string]: JSONValue };
  max_per_minute?: number;
}

// What an author sets for a trigger.
export interface TriggerSettings extends Mapping {
  stream: string;
  subjects?: string[];
  from?: string;
  paused?: boolean;
}

export interface Trigger extends TriggerSettings {
  name: string;
  status: { pending?: number; in_flight?: number; dead: number; last_error?: string; last_error_at?: string };
  updated_at: string;
  updated_by: string;
}

export interface Hook extends Mapping {
  name: string;
  path: string; // of its address
  verify: "github" | "stripe" | "slack" | "standard";
  secret: string | string[]; // references
  updated_at: string;
  updated_by: string;
}

// EvaluationVersion sums up the runs of a version; tokens and turns are means of a run, seconds is the median.
export interface EvaluationVersion {
  version: string;
  runs: number;
  passed: number;
  cost_usd: number;
  tokens: number;
  turns: number;
  seconds: number;
}

// EvaluationDifference compares the means of two versions in a figure.
export interface EvaluationDifference {
  figure: string;
  first: number;
  second: number;
  p: number;
  within_chance: boolean;
}

export interface EvaluationResult {
  case: string;
  version: string;
  repeat: number;
  run_id: string;
  status: string;
  failures?: string[];
  turns: number;
  tokens: number;
  cost_usd: number;
  seconds: number;
}

interface EvaluationTotals {
  id: string;
  file?: string;
  repeat: number;
  versions: EvaluationVersion[];
  differences?: EvaluationDifference[];
  judge_cost_usd: number;
  updated_at: string;
  updated_by: string;
}

export interface EvaluationSummary extends EvaluationTotals {
  cases: number;
}

export interface Evaluation extends EvaluationTotals {
  results: EvaluationResult[];
}

export interface MemoryFile {
  path: string;
  bytes: number;
  version: number;
  run_id?: string;
  updated_by?: string;
  updated_at: string;
  origin?: "tool" | "agent" | "web";
  content?: string;
}
