// What stands around the runs: batches, dead letters, workers, queues, and who may do what.
import { ApiError, get, post, postOnce, query, request } from "../api/client";
import type { APIKey, AuditEntry, Batch, BatchSummary, DeadLetter, Message, NewToken, Page, PendingEvent, Queue, Queues, Run, Schedule, Tenant, TokenKeys, Worker } from "../api/types";
import { List } from "./list";
import { route } from "./route";

export const workers = new List<Worker>(() => "/v1/workers?limit=1000", 2000);
export const queues = new List<Queue, Queues>(() => "/v1/queues", 2000);
// The oldest letters come first, and those that were dealt with stay: all are read, so that the
// open ones are among them.
export const dead = new List<DeadLetter>(() => "/v1/dead?limit=200", 10_000, 100);
export const pendingEvents = new List<PendingEvent>(() => "/v1/webhooks/pending?limit=100", 10_000);
export const keys = new List<APIKey>(() => "/v1/keys?limit=1000");
export const tenants = new List<Tenant>(() => "/v1/tenants?limit=1000");
export const audit = new List<AuditEntry>(() => "/v1/audit?limit=100");

const batchId = (): string => (route.value.view === "batches" ? route.value.id : "");
export const batchRuns = new List<Batch["items"][number], Batch>(() => (batchId() ? `/v1/batches/${encodeURIComponent(batchId())}${query({ limit: 200 })}` : ""), 3000);

// What became of the runs of the batch: the newest come first, so all are read.
export const batchAnswers = new List<Run>(() => (batchId() ? "/v1/runs" + query({ batch: batchId(), view: "summary", limit: 1000 }) : ""), 3000, 10);

// inputOf reads what a run was submitted with.
export async function inputOf(id: string): Promise<string> {
  const messages = await get<Page<Message>>(`/v1/runs/${encodeURIComponent(id)}/messages` + query({ limit: 10 }));
  const parts = messages.items.find((m) => m.role === "user")?.parts ?? [];
  return parts.map((p) => p.text ?? `(${p.type})`).join("\n");
}

// replay takes a dead letter up again. However often it is asked for, that happens once.
export async function replay(letter: DeadLetter): Promise<DeadLetter> {
  const after = await post<DeadLetter>(`/v1/dead/${letter.seq}/replay`, {});
  dead.items.value = dead.items.peek().map((l) => (l.seq === after.seq ? after : l));
  return after;
}

// replayRun replays the dead letter of a run.
export async function replayRun(run: string): Promise<void> {
  let cursor: string | null = null;
  do {
    const page: Page<DeadLetter> = await get<Page<DeadLetter>>("/v1/dead" + query({ limit: 1000, cursor }));
    const letter = page.items.find((l) => l.run_id === run && l.status === "open");
    if (letter) {
      await replay(letter);
      return;
    }
    cursor = page.next_cursor;
  } while (cursor);
  throw new ApiError(404, "", "No dead letter of this run is open.");
}

export const batches = new List<BatchSummary>(() => (route.value.view === "batches" && !batchId() ? "/v1/batches?limit=20" : ""), 5000);

export const schedules = new List<Schedule>(() => "/v1/schedules?limit=200", 10_000);

// actOnSchedule pauses or resumes a schedule, or starts its run.
export async function actOnSchedule(name: string, action: "pause" | "resume" | "run"): Promise<void> {
  await postOnce(`/v1/schedules/${encodeURIComponent(name)}/${action}`, undefined);
  await schedules.load();
}

export interface NewKey extends APIKey {
  key: string;
}

export async function makeKey(spec: { name: string; roles: string[]; expires_at: string | null }): Promise<NewKey> {
  const made = await post<NewKey>("/v1/keys", spec);
  void keys.load();
  return made;
}

export async function revokeKey(id: string): Promise<void> {
  await request("DELETE", `/v1/keys/${encodeURIComponent(id)}`);
  keys.items.value = keys.items.peek().filter((k) => k.id !== id);
}

export interface TokenSpec {
  user: string;
  roles: string[];
  agents?: string[];
  run?: string;
  expires_in: string;
}

export const issueToken = (spec: TokenSpec): Promise<NewToken> => post<NewToken>("/v1/tokens", spec);
export const rotateTokens = (): Promise<TokenKeys> => post<TokenKeys>("/v1/tokens:rotate", {});
