// What of a run a fork shares, as far as the page must know it.
import type { Event, Message } from "../api/types";

// endsWithAnswer reports whether the history through a turn ends with an answer of the model, so
// that a fork needs a message. It is false for a turn that the run does not have.
export function endsWithAnswer(entries: Event[], turn: number): boolean {
  const ofTurns = ["model.message", "tool.finished", "tool.reused"];
  if (turn > Math.max(0, ...entries.filter((e) => e.type === "model.message").map((e) => e.turn))) return false;
  const end = entries.findLastIndex((e) => (ofTurns.includes(e.type) || e.type === "message.tombstoned") && e.turn <= turn);
  const shared = entries.slice(0, Math.max(0, end) + 1);
  const gone = new Set(shared.flatMap((e) => (e.type === "message.tombstoned" ? (e.message_ids ?? []) : [])));
  const messages = shared.flatMap((e): Message[] =>
    ofTurns.includes(e.type) ? (e.message ? [e.message] : []) : e.type === "run.submitted" || e.type === "transition" || e.type === "run.finished" ? (e.messages ?? []) : [],
  );
  return messages.findLast((m) => !gone.has(m.id))?.role === "assistant";
}
