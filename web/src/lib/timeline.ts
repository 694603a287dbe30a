// What a run did when, out of its events: the bars of the timeline.
import type { Event, Run } from "../api/types";
import type { LiveTurn } from "./live";
import { duration, money, plural, span as length, waitsFor, words } from "./words";

export interface Bar {
  kind: "model" | "tool" | "wait" | "queue" | "retry" | "lost" | "child";
  from: number;
  to: number | null; // null: it is still at it
  label: string;
  tie: string; // what else on the page is about the same
  at: string; // the detail that it opens
  bad?: boolean;
  ends?: "death";
}

export interface Lane {
  key: string;
  label: string;
  depth: number;
  turn: number;
  bars: Bar[];
  child?: Run;
  unfolded?: boolean;
}

interface Input {
  run: Run;
  entries: Event[];
  live: LiveTurn | null;
  starts: ReadonlyMap<string, { at: number; worker: string }>;
  children: Run[];
  below: ReadonlyMap<string, Run[]>;
}

const shortestQueue = 20; // milliseconds that a turn may wait for a worker before the timeline says so

const time = (at: string): number => Date.parse(at);
const closes = (e: Event): boolean => e.type === "transition" || e.type === "run.waiting" || e.type === "run.finished";

export function lanesOf({ run, entries, live, starts, children, below }: Input): Lane[] {
  const turns = new Map<number, Lane>();
  const lane = (turn: number): Lane => {
    let l = turns.get(turn);
    if (!l) turns.set(turn, (l = { key: "t" + turn, label: `turn ${turn}`, depth: 0, turn, bars: [] }));
    return l;
  };
  const callTurn = new Map<string, number>();
  let segment: Event[] = [];
  let since = entries[0] ? time(entries[0].at) : 0; // when what came before has ended
  let wait: Bar | null = null;

  const close = (end: Event | null): void => {
    const began = end?.duration_ms ? time(end.at) - end.duration_ms : Infinity; // when the worker took the turn
    if (wait && (segment.length || end)) {
      wait.to = Math.max(wait.from, Math.min(began, segment[0] ? time(segment[0].at) : Infinity, end ? time(end.at) : Infinity));
      since = wait.to;
      wait = null;
    }
    const turnOf = segment.find((e) => e.type === "model.message")?.turn ?? (end ? end.turn + (startsTurn(end) ? 1 : 0) : (live?.turn ?? run.turn_count + 1));
    const attempt = segment[0]?.attempt ?? end?.attempt ?? live?.attempt ?? 1;
    let from = began < Infinity ? began : Math.max(since, starts.get(`${turnOf}/${attempt}`)?.at ?? 0);
    // The same turn starts again after a wait: what is before that was in the first part.
    from = Math.max(Math.min(from, segment[0] ? time(segment[0].at) : from), since);
    if (from - since >= shortestQueue)
      lane(turnOf || 1).bars.push({ kind: "queue", from: since, to: from, label: `queued ${length(from - since)}`, tie: "q" + turnOf, at: String(segment[0]?.seq ?? end?.seq ?? "") });
    let said = since;
    for (const e of segment) {
      const to = time(e.at);
      if (e.type === "model.message" || (e.type === "message.tombstoned" && e.message)) {
        const broken = e.type !== "model.message";
        const cost = e.usage ? money(e.usage.cost_usd) : "";
        lane(e.turn || 1).bars.push({
          kind: "model",
          from: Math.min(from, to),
          to,
          label: `${broken ? "broke off" : "model"} ${length(to - from)}${cost ? " · " + cost : ""}`,
          tie: "s" + e.seq,
          at: String(e.seq),
          bad: broken,
        });
        for (const p of e.message?.parts ?? []) if (p.type === "tool_call" && p.id) callTurn.set(p.id, e.turn);
        from = said = to;
      } else if (e.type === "tool.finished" || e.type === "tool.reused") {
        const took = e.duration_ms ?? 0;
        if (!took && children.some((c) => c.parent?.call_id === e.call_id)) continue;
        lane(callTurn.get(e.call_id ?? "") ?? e.turn).bars.push({
          kind: "tool",
          from: to - took,
          to,
          label: `${e.name} ${e.type === "tool.reused" ? "reused" : took ? length(took) : ""}`,
          tie: "c" + e.call_id,
          at: e.call_id ?? String(e.seq),
          bad: failedResult(e),
        });
      }
    }
    if (end && failedModel(end) && !segment.some((e) => e.type === "model.message")) {
      const to = time(end.at);
      lane(turnOf).bars.push({ kind: "model", from: Math.min(from, to), to, label: `model failed ${length(to - Math.min(from, to))}`, tie: "s" + end.seq, at: String(end.seq), bad: true });
    }
    if (end?.reason === "recovered") lost(end, said);
    if (end) since = time(end.at);
  };
  const lost = (end: Event, from: number): void => {
    const turn = Math.max(1, end.turn);
    const heard = starts.get(`${turn}/${end.attempt - 1}`);
    const who = heard?.worker || "a worker";
    lane(turn).bars.push({
      kind: "lost",
      from: Math.max(from, heard?.at ?? 0),
      to: time(end.at),
      label: `${who} died, ${end.worker ?? "another"} goes on`,
      tie: "s" + end.seq,
      at: String(end.seq),
      ends: "death",
    });
  };

  for (const e of entries) {
    if (!closes(e)) {
      if (e.type !== "run.submitted") segment.push(e);
      continue;
    }
    close(e);
    segment = [];
    if (e.type === "run.waiting" && e.waiting) {
      const retry = e.reason === "waiting_schedule" && !!e.detail;
      const turn = Math.max(1, retry ? e.turn + 1 : e.turn);
      const what = retry
        ? "again after " + (e.detail ?? "")
        : e.waiting.reason === "waiting_child"
          ? `waits for ${plural(e.waiting.calls?.length ?? 0, "run")}`
          : `waits for ${waitsFor(e.waiting.reason)}`;
      wait = { kind: retry ? "retry" : "wait", from: time(e.at), to: null, label: what, tie: "s" + e.seq, at: String(e.seq) };
      lane(turn).bars.push(wait);
    }
  }
  close(null);
  inFlight(live, segment, since, run, lane);
  return withChildren(
    [...turns.values()].sort((a, b) => a.turn - b.turn),
    children,
    below,
    callTurn,
  );
}

// startsTurn is true of an end of a segment in which the model has said nothing: it is about
// the turn that comes.
const startsTurn = (e: Event): boolean => e.reason === "model_retry" || e.reason === "waiting_schedule";

const failedModel = (e: Event): boolean => !!e.duration_ms && ((e.type === "run.waiting" && e.reason === "waiting_schedule") || (e.type === "run.finished" && e.reason === "model_error"));

// failedResult is true of a result that says that its call failed.
export const failedResult = (e: Event): boolean => !!e.is_error || !!e.message?.parts?.some((p) => p.is_error);

// inFlight adds what a worker is at.
function inFlight(live: LiveTurn | null, segment: Event[], since: number, run: Run, lane: (turn: number) => Lane): void {
  if (run.status !== "running" && !live) return;
  if (run.status === "waiting" || run.finished_at) return;
  const said = segment.findLast((e) => e.type === "model.message");
  if (live) {
    const calls = live.calls.filter((c) => c.since);
    for (const c of calls) lane(live.turn).bars.push({ kind: "tool", from: time(c.since), to: null, label: c.name + (c.progress ? ": " + c.progress : ""), tie: "c" + c.id, at: c.id });
    if (!said && !calls.length) lane(live.turn).bars.push({ kind: "model", from: Math.max(since, time(live.since)), to: null, label: "model", tie: "live", at: "live" });
    return;
  }
  if (!said) lane(run.turn_count + 1).bars.push({ kind: "model", from: since, to: null, label: "at work", tie: "live", at: "live" });
}

function withChildren(lanes: Lane[], children: Run[], below: ReadonlyMap<string, Run[]>, callTurn: Map<string, number>): Lane[] {
  if (!children.length) return lanes;
  const byTurn = new Map<number, Run[]>();
  for (const c of children) {
    const t = callTurn.get(c.parent?.call_id ?? "") ?? lanes.at(-1)?.turn ?? 1;
    byTurn.set(t, [...(byTurn.get(t) ?? []), c]);
  }
  const out: Lane[] = [];
  const add = (c: Run, depth: number, turn: number): void => {
    const from = time(c.started_at ?? c.created_at ?? "");
    const to = c.finished_at ? time(c.finished_at) : null;
    const how = c.status === "waiting" ? "waits for " + waitsFor(c.reason ?? "") : c.status === "failed" ? "failed: " + words(c.error?.code ?? c.reason ?? "") : c.status;
    const kids = below.get(c.id);
    out.push({
      key: c.id,
      label: c.agent,
      depth,
      turn,
      child: c,
      unfolded: !!kids,
      bars: [{ kind: "child", from, to, label: how + (to ? " " + length(duration(c, to)!) : ""), tie: "c" + c.parent?.call_id, at: "", bad: c.status === "failed" }],
    });
    if (depth < 8) for (const k of kids ?? []) add(k, depth + 1, turn);
  };
  for (const l of lanes) {
    out.push(l);
    for (const c of byTurn.get(l.turn) ?? []) add(c, 1, l.turn);
  }
  return out;
}
