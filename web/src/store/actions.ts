// What people do to runs. Each is one request; the stream then tells what came of it.
import { newKey, post } from "../api/client";
import { ApiError } from "../api/client";
import type { Canceled, JSONValue, Run, WaitCall } from "../api/types";
import { keep } from "./runs";

const signals = (run: string, body: unknown): Promise<Run | null> => post<Run | null>(`/v1/runs/${run}/signals`, body, newKey());

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
export const giveResult = (run: string, call: string, content: string, isError: boolean): Promise<unknown> =>
  signals(run, { tool_results: [{ call_id: call, content, is_error: isError }] });
export const say = (run: string, text: string): Promise<unknown> => signals(run, { message: text });

export async function cancel(run: string, reason: string): Promise<void> {
  const after = await post<Run | null>(`/v1/runs/${run}/cancel`, reason ? { reason } : {});
  if (after?.id) keep(after);
}

export const cancelMatching = (filter: Record<string, unknown>, reason: string, dryRun: boolean, cursor = ""): Promise<Canceled> =>
  post<Canceled>("/v1/runs:cancel", { filter, dry_run: dryRun, ...(reason ? { reason } : {}), ...(cursor ? { cursor } : {}) });

// again starts a new run with what the run was submitted with.
export const again = (run: Run): Promise<Run> => fork(run.id, { turn: 0 });

export interface ForkChange {
  turn: number;
  input?: string;
}
export const fork = (run: string, change: ForkChange): Promise<Run> => post<Run>(`/v1/runs/${run}/fork`, change, newKey());

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
