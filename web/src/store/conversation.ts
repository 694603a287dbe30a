// The conversation of a run, out of its events: messages with the results of their calls in
// them, and notes on what happened between.
import type { Event, Message } from "../api/types";
import { span, words } from "../parts/words";

export interface Item {
  key: string;
  kind: "message" | "note" | "gone";
  turn: number;
  entry: Event;
  message?: Message;
  tone?: "bad" | "warn" | "good";
  text?: string;
  by?: string;
}

export interface Conversation {
  items: Item[];
  results: Map<string, Event>; // by call
}

export function conversationOf(entries: Event[]): Conversation {
  const items: Item[] = [];
  const results = new Map<string, Event>();
  const gone = new Set<string>();
  let before = 0;
  for (const e of entries) {
    const at = Date.parse(e.at);
    for (const id of e.type === "message.tombstoned" ? (e.message_ids ?? []) : []) gone.add(id);
    switch (e.type) {
      case "run.submitted":
        if (e.reason === "forked") items.push(note(e, `Forked from ${e.detail}`));
        for (const m of e.messages ?? []) items.push(said(e, m));
        break;
      case "model.message":
        if (e.message) items.push(said(e, e.message));
        break;
      case "tool.finished":
      case "tool.reused":
        if (e.call_id) results.set(e.call_id, e);
        break;
      case "message.tombstoned":
        if (e.message) items.push({ ...said(e, e.message), kind: "gone" });
        break;
      case "message.compacted":
        items.push(note(e, `${e.message_ids?.length ?? 0} messages were compacted: the model sees a summary in their place`));
        break;
      case "reflect":
        items.push(note(e, `Reflection: ${e.assessment ?? ""}${e.confidence === undefined ? "" : `, confidence ${e.confidence}`}`));
        break;
      case "budget.warning":
      case "budget.exceeded":
        items.push({ ...note(e, `${words(e.limit ?? "a limit")}: ${Math.round((e.used_fraction ?? 1) * 100)} % used`), tone: e.type === "budget.exceeded" ? "bad" : "warn" });
        break;
      case "transition":
        transition(e, at - before, items);
        for (const m of e.messages ?? []) items.push(said(e, m));
        break;
      case "run.waiting":
        if (e.reason === "waiting_schedule" && e.detail) items.push({ ...note(e, e.detail), tone: "warn" });
        break;
      case "run.finished":
        if (e.error) items.push({ ...note(e, `${words(e.error.code)}: ${e.error.message}`), tone: "bad" });
        else if (e.status !== "completed") items.push({ ...note(e, words(e.reason ?? "") + (e.detail ? ": " + e.detail : "")), tone: "warn" });
        for (const m of e.messages ?? []) items.push(said(e, m));
        break;
    }
    before = at;
  }
  for (const i of items) if (i.message && gone.has(i.message.id)) i.kind = "gone";
  return { items, results };
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
      items.push({ ...note(e, `A worker died; ${e.worker || "another one"} went on ${span(pause)} after the last commit. What was journaled is not asked again.`), tone: "bad" });
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

const said = (entry: Event, message: Message): Item => ({ key: `${entry.seq}-${message.id}`, kind: "message", turn: message.turn || entry.turn, entry, message, ...(entry.by ? { by: entry.by.principal } : {}) });
const note = (entry: Event, text: string): Item => ({ key: `n${entry.seq}`, kind: "note", turn: entry.turn, entry, text, ...(entry.by ? { by: entry.by.principal } : {}) });
