// The conversation of a run, out of its events: messages with the results of their calls in
// them, and notes on what happened between.
import type { Event, ForkSource, JSONValue, Message } from "../api/types";
import { percent } from "./spent";
import { changes } from "./schema";
import { span, words } from "./words";

export interface Item {
  key: string;
  kind: "message" | "note" | "gone";
  turn: number;
  entry: Event;
  message?: Message;
  tone?: "bad" | "warn" | "good" | "part";
  text?: string;
  by?: string;
  results?: Map<string, Event>; // of its calls, by their ids: ids of calls repeat in a run
  edits?: Map<string, JSONValue>; // the arguments that approvers gave its calls
}

export function conversationOf(entries: Event[]): Item[] {
  const items: Item[] = [];
  const callers = new Map<string, Item>(); // who has made the call last
  const add = (e: Event, m: Message): Item => {
    const item = said(e, m);
    for (const p of m.parts ?? []) if (p.type === "tool_call" && p.id) callers.set(p.id, item);
    items.push(item);
    return item;
  };
  // Results stand with their calls, not in messages of their own.
  const result = (e: Event, m: Message): void => {
    const rest = (m.parts ?? []).filter((p) => {
      const caller = p.type === "tool_result" && p.call_id ? callers.get(p.call_id) : undefined;
      if (caller) (caller.results ??= new Map()).set(p.call_id!, { ...e, message: { ...m, parts: [p] }, call_id: p.call_id! });
      return !caller;
    });
    if (rest.length) add(e, { ...m, parts: rest });
  };
  const gone = new Set<string>();
  let before = 0;
  let decided = false;
  for (const e of entries) {
    const at = Date.parse(e.at);
    for (const id of e.type === "message.tombstoned" ? (e.message_ids ?? []) : []) gone.add(id);
    switch (e.type) {
      case "run.submitted":
        if (e.forked_from) items.push(note(e, forked(e.forked_from)));
        for (const m of e.messages ?? []) m.role === "tool" ? result(e, m) : add(e, m);
        break;
      case "model.message":
        if (e.message) add(e, e.message);
        break;
      case "tool.finished":
      case "tool.reused":
        if (e.message) result(e, e.message);
        break;
      case "approval.decided":
        decided = true;
        if (e.call_id && e.approval?.decision === "approve" && e.approval.arguments !== undefined) {
          const caller = callers.get(e.call_id);
          if (caller) (caller.edits ??= new Map()).set(e.call_id, e.approval.arguments);
        }
        items.push(decision(e));
        break;
      case "message.tombstoned":
        if (e.message) items.push({ ...said(e, e.message), kind: "gone" });
        break;
      case "message.compacted":
        items.push(note(e, compacted(e)));
        break;
      case "agent.handoff":
        if (e.handoff) items.push(note(e, `${e.handoff.from.name}@${e.handoff.from.version} handed the run to ${e.handoff.to.name}@${e.handoff.to.version}`));
        break;
      case "message.checked":
        if (e.messages?.length) items.push(note(e, `An input hook replaced the message. The model reads: ${e.messages.map((m) => (m.parts ?? []).map((p) => p.text ?? "").join("")).join(" ")}`));
        else if (e.message_ids?.length) items.push({ ...note(e, `An input hook refused the message: the model does not read it`), tone: "warn" });
        break;
      case "reflect":
        items.push(note(e, `Reflection: ${e.assessment ?? ""}${e.confidence === undefined ? "" : `, confidence ${e.confidence}`}`));
        break;
      case "budget.warning":
      case "budget.exceeded":
        items.push({
          ...note(e, `${words(e.limit ?? "a limit")}: ${e.type === "budget.exceeded" ? "used up" : `${percent(e.used_fraction ?? 1)} used`}`),
          tone: e.type === "budget.exceeded" ? "bad" : "warn",
        });
        break;
      case "transition":
        if (!(decided && (e.reason === "approved" || e.reason === "denied"))) transition(e, at - before, items);
        decided = false;
        for (const m of e.messages ?? []) m.role === "tool" ? result(e, m) : add(e, m);
        break;
      case "run.waiting":
        if (e.reason === "waiting_schedule" && e.detail) items.push({ ...note(e, e.detail), tone: "warn" });
        break;
      case "run.finished":
        if (e.error) items.push({ ...note(e, `${words(e.error.code)}: ${e.error.message}`), tone: "bad" });
        else if (e.status !== "completed") items.push({ ...note(e, words(e.reason ?? "") + (e.detail ? ": " + e.detail : "")), ...(e.status === "incomplete" ? { tone: "part" as const } : {}) });
        for (const m of e.messages ?? []) add(e, m);
        break;
    }
    before = at;
  }
  for (const i of items) if (i.message && gone.has(i.message.id)) i.kind = "gone";
  return items;
}

const forked = ({ run_id, turn, changed }: ForkSource): string => `Forked from ${run_id} turn ${turn}${changed ? ", changed: " + changed.join(", ") : ""}`;

function compacted(e: Event): string {
  const count = e.message_ids?.length ?? 0;
  if (e.messages?.every((m) => m.role === "tool")) return `${count} tool results were cut: the model sees notes in their place, and can read them again`;
  return `${count} messages were compacted: the model sees a summary in their place`;
}

function transition(e: Event, pause: number, items: Item[]): void {
  switch (e.reason) {
    case "next_turn":
    case "child_finished":
    case "tool_results":
    case "answered":
    case "reflected":
    case "final_response":
      return;
    case "recovered":
      items.push({ ...note(e, `A worker died; ${e.worker || "another one"} continued ${span(pause)} after the last commit. Journaled results were not requested again.`), tone: "bad" });
      return;
    case "approved":
    case "denied":
      items.push({ ...note(e, (e.reason === "approved" ? "Approved" : "Denied") + (e.detail ? ": " + e.detail : "")), tone: e.reason === "approved" ? "good" : "warn" });
      return;
    case "user_message":
      return;
    default:
      items.push(note(e, words(e.reason ?? "") + (e.detail ? ": " + e.detail : "")));
  }
}

// decision says who decided what of a call, and what they changed of its arguments.
function decision(e: Event): Item {
  const a = e.approval;
  const approved = a?.decision === "approve";
  const edits = approved && a.arguments !== undefined && a.shown !== undefined ? changes(a.shown, a.arguments) : [];
  const how = edits.map((c) => `${c.path} ${JSON.stringify(c.from ?? null)} → ${JSON.stringify(c.to ?? null)}`).join(", ");
  const text = `${e.name ?? "a call"} ${a?.expired ? "denied: no decision in time" : approved ? "approved" : "denied"}${how ? ` with ${how}` : ""}${a?.reason ? `: ${a.reason}` : ""}`;
  return { ...note(e, text), tone: approved ? "good" : "warn" };
}

const said = (entry: Event, message: Message): Item => ({
  key: `${entry.seq}-${message.id}`,
  kind: "message",
  turn: message.turn || (entry.type === "run.submitted" ? 0 : entry.turn),
  entry,
  message,
  ...(entry.by ? { by: entry.by.principal } : {}),
});
const note = (entry: Event, text: string): Item => ({ key: `n${entry.seq}`, kind: "note", turn: entry.turn, entry, text, ...(entry.by ? { by: entry.by.principal } : {}) });
