// What is heard of a turn before it is committed, put together from live events.
import type { Event } from "../api/types";

export interface LiveCall {
  id: string;
  name: string;
  arguments: string;
  since: string; // empty: the model still writes it
  progress: string;
}

// LiveTurn is an attempt of a turn. If its worker dies, the next attempt supersedes it.
export interface LiveTurn {
  turn: number;
  attempt: number;
  worker: string;
  since: string;
  text: string;
  thinking: string;
  calls: LiveCall[];
  superseded: boolean;
  cut: boolean; // the page did not receive its beginning
}

export const begun = (e: Event): LiveTurn => ({ turn: e.turn, attempt: e.attempt, worker: e.worker ?? "", since: e.at, text: "", thinking: "", calls: [], superseded: false, cut: false });

// unsaid is a turn without what the model has said: calls that are executed stay.
const unsaid = (live: LiveTurn): LiveTurn => ({ ...live, text: "", thinking: "", calls: live.calls.filter((c) => c.since).map((c) => (c.arguments ? { ...c, arguments: "" } : c)) });

// broken is a turn after its stream was away: what was said meanwhile is not sent again.
export const broken = (live: LiveTurn): LiveTurn => ({ ...unsaid(live), cut: true });

// saysSomething is true of a turn of which something was heard.
export const saysSomething = (live: LiveTurn): boolean => !!live.text || !!live.thinking || live.calls.length > 0;

// heard is a turn after a live event other than its start.
export function heard(before: LiveTurn | null, e: Event): LiveTurn {
  let live = before && before.turn === e.turn && before.attempt === e.attempt ? before : { ...begun(e), cut: e.type === "model.delta" };
  const call = (id: string, more: (c: LiveCall) => LiveCall): LiveCall[] => {
    const had = live.calls.find((c) => c.id === id) ?? { id, name: e.name ?? e.delta?.name ?? "", arguments: "", since: "", progress: "" };
    return [...live.calls.filter((c) => c.id !== id), more(had)];
  };
  if (e.type === "model.delta" && e.delta) {
    const d = e.delta;
    // Another try of the model, or the next turn of the same attempt, begins at its beginning.
    if (e.first) live = { ...live, text: "", thinking: "", calls: live.calls.filter((c) => c.since), cut: false };
    live = { ...live, text: live.text + (d.text ?? ""), thinking: live.thinking + (d.thinking ?? "") };
    if (d.call_id) live = { ...live, calls: call(d.call_id, (c) => ({ ...c, name: d.name ?? c.name, arguments: c.arguments + (d.arguments ?? "") })) };
  } else if (e.type === "tool.started" && e.call_id) {
    live = { ...live, calls: call(e.call_id, (c) => ({ ...c, name: e.name ?? c.name, since: e.at })) };
  } else if (e.type === "tool.progress" && e.call_id) {
    live = { ...live, calls: call(e.call_id, (c) => ({ ...c, since: c.since || e.at, progress: typeof e.progress === "string" ? e.progress : JSON.stringify(e.progress) })) };
  }
  return live;
}

// settled is what is left of a turn after a committed event, which has what was heard.
export function settled(live: LiveTurn, e: Event): LiveTurn | null {
  switch (e.type) {
    case "model.message":
      return { ...live, text: "", thinking: "", calls: live.calls.map((c) => ({ ...c, arguments: "" })), cut: false };
    case "tool.finished":
    case "tool.reused":
      return { ...live, calls: live.calls.filter((c) => c.id !== e.call_id) };
    case "run.waiting":
    case "run.finished":
      return null;
    case "transition":
      return e.reason !== "recovered" && e.turn >= live.turn ? null : live;
    default:
      return live;
  }
}

// working is live as far as the timeline shows it: the same object while only a text grows.
export const working = (before: LiveTurn | null, live: LiveTurn | null): LiveTurn | null =>
  before && live && before.turn === live.turn && before.attempt === live.attempt && before.worker === live.worker && before.since === live.since && before.calls === live.calls ? before : live;
