// One run, as its events tell it. It is read once; from then on its own stream and the
// stream of changes are applied here, so a run that is looked at for an hour costs as many
// requests as one that is glanced at.
import { batch, signal, type Signal } from "@preact/signals";
import { ApiError, errorOf, get } from "../api/client";
import { openStream, type StreamState } from "../api/stream";
import { type Agent, ended, type Event, type Page, type Run } from "../api/types";
import { listen } from "./live";
import { newer } from "./runs";
import { loggedOut } from "./session";

const types = [
  "run.submitted", "model.message", "message.tombstoned", "message.compacted", "tool.finished", "tool.reused", "approval.decided", "progress", "reflect",
  "budget.warning", "budget.exceeded", "transition", "run.waiting", "run.finished", "turn.started", "tool.started", "tool.progress", "model.delta",
];

export interface LiveCall {
  id: string;
  name: string;
  arguments: string;
  since: string; // empty: the model still writes it
  progress: string;
}

// LiveTurn is what is heard of a turn before it is committed. If its worker dies, the next
// attempt supersedes it.
export interface LiveTurn {
  turn: number;
  attempt: number;
  worker: string;
  since: string;
  text: string;
  thinking: string;
  calls: LiveCall[];
  superseded: boolean;
}

export class RunModel {
  readonly run: Signal<Run | null> = signal(null);
  readonly entries: Signal<Event[]> = signal([]);
  readonly live: Signal<LiveTurn | null> = signal(null);
  readonly superseded: Signal<LiveTurn[]> = signal([]);
  // starts has when the attempts began that were heard of, and whose they were.
  readonly starts: Signal<ReadonlyMap<string, { at: number; worker: string }>> = signal(new Map());
  readonly children: Signal<Run[]> = signal([]);
  readonly below: Signal<ReadonlyMap<string, Run[]>> = signal(new Map()); // of children that were unfolded
  readonly agent: Signal<Agent | null> = signal(null);
  readonly error: Signal<ApiError | null> = signal(null);
  readonly stream: Signal<StreamState> = signal("connecting");
  readonly caughtUp = signal(false);
  private queue: Event[] = [];
  private frame = 0;
  private stops: (() => void)[] = [];
  private closed = false;
  private follows = false;

  constructor(readonly id: string) {
    void this.begin();
  }

  private async begin(): Promise<void> {
    try {
      this.run.value = await get<Run>(`/v1/runs/${encodeURIComponent(this.id)}`);
    } catch (e) {
      this.error.value = errorOf(e);
      loggedOut(this.error.value);
      return;
    }
    if (this.closed) return;
    this.follow();
    this.stops.push(listen({ changed: (runs) => this.changed(runs), open: () => void this.readChildren(), reset: () => void this.refresh() }));
    setTimeout(() => {
      this.caughtUp.value = true;
    }, 1500);
  }

  private follow(): void {
    this.follows = true;
    const after = this.entries.peek().at(-1)?.seq ?? 0;
    const stop = openStream(`/v1/runs/${encodeURIComponent(this.id)}/events${after ? "?after=" + after : ""}`, {
      types,
      state: (s) => {
        this.stream.value = s;
      },
      event: (_type, data) => {
        this.queue.push(JSON.parse(data) as Event);
        if (!this.frame) this.frame = document.hidden ? window.setTimeout(() => this.flush(), 200) : requestAnimationFrame(() => this.flush());
      },
      ended: () => {
        this.flush();
        if (this.entries.peek().at(-1)?.type !== "run.finished") return false;
        this.follows = false;
        this.stream.value = "open";
        return true;
      },
    });
    this.stops.push(stop);
  }

  private flush(): void {
    this.frame = 0;
    const events = this.queue;
    this.queue = [];
    if (!events.length) return;
    batch(() => {
      const list = this.entries.peek().slice();
      let run = this.run.peek();
      let last = list.at(-1)?.seq ?? 0;
      for (const e of events) {
        if (e.seq === null) {
          this.hear(e);
          continue;
        }
        if (e.seq <= last) continue;
        last = e.seq;
        list.push(e);
        if (run) run = after(run, e);
        this.commit(e);
      }
      if (last !== (this.entries.peek().at(-1)?.seq ?? 0)) this.entries.value = list;
      this.run.value = run;
      this.caughtUp.value ||= events.some((e) => e.seq === null) || (run !== null && (list.at(-1)?.version ?? 0) >= run.version);
    });
  }

  // hear takes a live event.
  private hear(e: Event): void {
    let live = this.live.peek();
    if (e.type === "turn.started") {
      if (live && live.turn === e.turn && live.attempt !== e.attempt && (live.text || live.thinking || live.calls.length)) {
        this.superseded.value = [...this.superseded.peek(), { ...live, superseded: true }];
      }
      this.starts.value = new Map(this.starts.peek()).set(`${e.turn}/${e.attempt}`, { at: Date.parse(e.at), worker: e.worker ?? "" });
      this.live.value = fresh(e);
      const run = this.run.peek();
      if (run && run.status === "queued") this.run.value = { ...run, status: "running" };
      return;
    }
    if (!live || live.turn !== e.turn || live.attempt !== e.attempt) live = fresh(e);
    const call = (id: string, more: (c: LiveCall) => LiveCall): LiveCall[] => {
      const had = live!.calls.find((c) => c.id === id) ?? { id, name: e.name ?? e.delta?.name ?? "", arguments: "", since: "", progress: "" };
      return [...live!.calls.filter((c) => c.id !== id), more(had)];
    };
    if (e.type === "model.delta" && e.delta) {
      const d = e.delta;
      live = { ...live, text: live.text + (d.text ?? ""), thinking: live.thinking + (d.thinking ?? "") };
      if (d.call_id) live = { ...live, calls: call(d.call_id, (c) => ({ ...c, name: d.name ?? c.name, arguments: c.arguments + (d.arguments ?? "") })) };
    } else if (e.type === "tool.started" && e.call_id) {
      live = { ...live, calls: call(e.call_id, (c) => ({ ...c, name: e.name ?? c.name, since: e.at })) };
    } else if (e.type === "tool.progress" && e.call_id) {
      live = { ...live, calls: call(e.call_id, (c) => ({ ...c, since: c.since || e.at, progress: typeof e.progress === "string" ? e.progress : JSON.stringify(e.progress) })) };
    }
    this.live.value = live;
  }

  // commit takes from what is live what is kept now.
  private commit(e: Event): void {
    const live = this.live.peek();
    if (e.type === "model.message" && live) this.live.value = { ...live, text: "", thinking: "", calls: live.calls.map((c) => ({ ...c, arguments: "" })) };
    else if ((e.type === "tool.finished" || e.type === "tool.reused") && live) this.live.value = { ...live, calls: live.calls.filter((c) => c.id !== e.call_id) };
    else if (e.type === "run.waiting" || e.type === "run.finished") this.live.value = null;
    else if (e.type === "transition" && live && e.reason !== "recovered") this.live.value = e.turn >= live.turn ? null : live;
  }

  // changed takes what the stream of changes says of this run and of those below it.
  private changed(runs: Run[]): void {
    let kids = this.children.peek();
    let below = this.below.peek();
    for (const r of runs) {
      if (r.id === this.id) this.update(r);
      else if (r.parent?.run_id === this.id) kids = put(kids, r);
      else if (r.parent && below.has(r.parent.run_id)) below = new Map(below).set(r.parent.run_id, put(below.get(r.parent.run_id)!, r));
    }
    this.children.value = kids;
    this.below.value = below;
  }

  // update takes a summary: its texts may be cut short, those of the events are not.
  private update(r: Run): void {
    const was = this.run.peek();
    if (!was || !newer(r, was)) return;
    const kept: Run = { ...r };
    if (was.version === r.version) {
      kept.output = was.output;
      kept.structured_output = was.structured_output;
      kept.error = was.error;
      if (r.waiting && was.waiting) {
        const hashes = new Map(r.waiting.calls.map((c) => [c.id, c]));
        kept.waiting = { ...was.waiting, calls: was.waiting.calls.map((c) => ({ ...c, ...(hashes.get(c.id)?.hash ? { hash: hashes.get(c.id)!.hash! } : {}) })) };
      }
    }
    if (was.status === "running" && r.status === "queued" && r.version === was.version) kept.status = "running";
    this.run.value = kept;
    // It goes on after its end: somebody has sent a message.
    if (!this.follows && r.version > (this.entries.peek().at(-1)?.version ?? 0)) this.follow();
  }

  private async refresh(): Promise<void> {
    try {
      const r = await get<Run>(`/v1/runs/${encodeURIComponent(this.id)}`);
      this.run.value = r;
    } catch (e) {
      this.error.value = errorOf(e);
    }
  }

  // readChildren is asked when the stream of changes has opened, and again if it opens anew.
  private async readChildren(): Promise<void> {
    this.children.value = (await this.list(this.id)) ?? this.children.peek();
  }

  private async list(parent: string): Promise<Run[] | null> {
    try {
      const page = await get<Page<Run>>(`/v1/runs?parent=${encodeURIComponent(parent)}&view=summary&limit=1000`);
      return page.items.reverse();
    } catch {
      return null; // the rest of the run is shown all the same
    }
  }

  async unfold(child: string): Promise<void> {
    const next = new Map(this.below.peek());
    if (next.delete(child)) {
      this.below.value = next;
      return;
    }
    const runs = await this.list(child);
    if (runs) this.below.value = new Map(this.below.peek()).set(child, runs);
  }

  // readAgent is asked when somebody edits what has a schema, or forks.
  async readAgent(): Promise<void> {
    const r = this.run.peek();
    if (!r || this.agent.peek()) return;
    try {
      this.agent.value = await get<Agent>(`/v1/agents/${encodeURIComponent(r.agent)}?version=${r.agent_version}`);
    } catch {
      this.agent.value = null; // a draft, or an agent that was removed: the gateway validates
    }
  }

  close(): void {
    this.closed = true;
    for (const s of this.stops) s();
    cancelAnimationFrame(this.frame);
  }
}

const fresh = (e: Event): LiveTurn => ({ turn: e.turn, attempt: e.attempt, worker: e.worker ?? "", since: e.at, text: "", thinking: "", calls: [], superseded: false });

function put(list: Run[], r: Run): Run[] {
  const i = list.findIndex((x) => x.id === r.id);
  if (i < 0) return [...list, r].sort((a, b) => (a.id < b.id ? -1 : 1));
  if (!newer(r, list[i]!)) return list;
  return list.map((x, j) => (j === i ? r : x));
}

// after is a run after an event of its own.
function after(run: Run, e: Event): Run {
  if (e.version === undefined || e.version < run.version || (e.version === run.version && e.type === "transition")) return run;
  const next: Run = { ...run, version: e.version, turn_count: Math.max(run.turn_count, e.turn), updated_at: e.at, status: e.status ?? run.status };
  next.transition = { reason: e.reason ?? "", detail: e.detail ?? "", turn: e.turn, version: e.version, at: e.at };
  if (e.type === "run.waiting" && e.waiting) {
    const known = new Map((run.waiting?.calls ?? []).map((c) => [c.id, c]));
    next.waiting = {
      ...e.waiting,
      question: e.waiting.question ?? null,
      calls: (e.waiting.calls ?? []).map((c) => ({ ...c, message: c.message ?? "", run_id: c.run_id ?? null, ...(e.version === run.version && known.get(c.id)?.hash ? { hash: known.get(c.id)!.hash! } : {}) })),
    };
    next.reason = e.waiting.reason;
  } else {
    next.waiting = null;
    next.reason = ended(next.status) ? (e.reason ?? null) : null;
  }
  if (e.type === "run.finished") {
    next.finished_at = e.at;
    next.output = e.output ?? null;
    next.structured_output = e.structured_output ?? null;
    next.error = e.error ?? null;
  } else {
    next.finished_at = null;
    if (e.type === "transition") [next.output, next.error] = [null, null];
  }
  return next;
}
