// What people do to runs. Each is one request; the stream then tells what came of it.
import { get, post, postOnce } from "../api/client";
import { ApiError } from "../api/client";
import type { Agent, Canceled, JSONValue, Message, Page, Part, Run, WaitCall } from "../api/types";
import type { Mode } from "../lib/modes";
import { keep } from "./runs";

const signals = (run: string, body: unknown): Promise<Run | null> => postOnce<Run | null>(`/v1/runs/${run}/signals`, body);

export interface Decision {
  decision: "approve" | "deny";
  reason?: string;
  args?: JSONValue; // edited ones
}

// decide answers a call that waits for approval. The hash binds the decision to exactly the
// call that was looked at: if it is another one by now, the gateway refuses.
export async function decide(run: string, call: WaitCall, d: Decision): Promise<void> {
  const approval: Record<string, unknown> = { call_id: call.id, decision: d.decision };
  if (call.hash) approval["hash"] = call.hash;
  if (d.reason) approval["reason"] = d.reason;
  if (d.decision === "approve" && d.args !== undefined) approval["arguments"] = d.args;
  await signals(run, { approvals: [approval] });
}

export const answer = (run: string, text: string): Promise<unknown> => signals(run, { answer: text });
export const giveResult = (run: string, call: string, content: string, isError: boolean): Promise<unknown> => signals(run, { tool_results: [{ call_id: call, content, is_error: isError }] });
export const say = (run: string, text: string, mode: Mode): Promise<unknown> => signals(run, mode === "enqueue" ? { message: text } : { message: text, mode });

export async function cancel(run: string, reason: string): Promise<void> {
  const after = await post<Run | null>(`/v1/runs/${run}/cancel`, reason ? { reason } : {});
  if (after?.id) keep(after);
}

// invoke starts a run of the newest version of an agent.
export const invoke = (agent: string, input: string): Promise<Run> => postOnce<Run>("/v1/runs", { agent, input, stream: "deltas" });

export const cancelMatching = (filter: Record<string, unknown>, reason: string, dryRun: boolean, cursor = ""): Promise<Canceled> =>
  post<Canceled>("/v1/runs:cancel", { filter, dry_run: dryRun, ...(reason ? { reason } : {}), ...(cursor ? { cursor } : {}) });

// again starts a new run with what the run was submitted with. A single call has no history that
// a fork could share: it is submitted again, to the version that its agent has now.
export async function again(run: Run): Promise<Run> {
  if (run.loop !== "single_call") return fork(run.id, { turn: 0 });
  const page = await get<Page<Message>>(`/v1/runs/${encodeURIComponent(run.id)}/messages?limit=1000`);
  const agent = await get<Agent>(`/v1/agents/${encodeURIComponent(run.agent)}?version=${run.agent_version}`);
  let input = page.items.filter((m) => m.turn === 0);
  const first = input[0];
  // The gateway puts the instructions of the version before it that it has now.
  const instructed = run.variables !== null || first?.parts?.[0]?.text === agent.definition["instructions"];
  if (first?.role === "system" && instructed) input = input.slice(1);
  return postOnce<Run>("/v1/runs", {
    agent: run.agent,
    input: input.map((m) => ({ role: m.role, parts: m.parts })),
    metadata: run.metadata,
    variables: run.variables,
  });
}

// canAgain is false of what nobody can submit again: a single call of a definition that no list
// of agents has.
export const canAgain = (run: Run): boolean => run.loop !== "single_call" || !run.agent.startsWith("draft-");

// ForkChange is what a fork changes of what it shares.
export interface ForkChange {
  turn: number;
  input?: string;
  agent_version?: number;
  instructions?: string;
  messages?: { id: string; parts: Part[] }[];
  tool_results?: { call_id: string; turn: number; content: string; is_error: boolean }[];
}
export const fork = (run: string, change: ForkChange): Promise<Run> => postOnce<Run>(`/v1/runs/${run}/fork`, change);

// each does one thing to many, a few at a time, and counts.
export async function each<T>(list: T[], one: (item: T) => Promise<unknown>): Promise<{ done: number; failed: ApiError[] }> {
  const todo = list.slice();
  const failed: ApiError[] = [];
  let done = 0;
  const work = async (): Promise<void> => {
    for (let item = todo.shift(); item !== undefined; item = todo.shift()) {
      try {
        await one(item);
        done++;
      } catch (e) {
        failed.push(e instanceof ApiError ? e : new ApiError(0, "", String(e)));
      }
    }
  };
  await Promise.all([work(), work(), work(), work()]);
  return { done, failed };
}
