// One run, as its events tell it. The run, its events and those below it are asked for at once.
// It is read once; from then on its own stream and the stream of changes are applied here, so a
// run that is looked at for an hour costs as many requests as one that is glanced at.
import { batch, computed, type ReadonlySignal, signal, type Signal } from "@preact/signals";
import { ApiError, errorOf, get, passes, query } from "../api/client";
import { openStream, type StreamState } from "../api/stream";
import { type Agent, ended, type Event, type Page, type Run } from "../api/types";
import { begun, broken, heard, type LiveTurn, saysSomething, settled, working } from "../lib/live";
import { listen } from "./live";
import { newer } from "./runs";
import { loggedOut } from "./session";

const types = [
  "run.submitted",
  "model.message",
  "message.tombstoned",
  "message.compacted",
  "message.checked",
  "agent.handoff",
  "tool.finished",
  "tool.reused",
  "approval.decided",
  "progress",
  "reflect",
  "budget.warning",
  "budget.exceeded",
  "transition",
  "run.waiting",
  "run.finished",
  "turn.started",
  "tool.started",
  "tool.progress",
  "model.delta",
];

const mostBelow = 10_000; // runs below one that are read

export class RunModel {
  readonly run: Signal<Run | null> = signal(null);
  readonly entries: Signal<Event[]> = signal([]);
  readonly live: Signal<LiveTurn | null> = signal(null);
  readonly working: ReadonlySignal<LiveTurn | null> = computed(() => (this.worked = working(this.worked, this.live.value)));
  private worked: LiveTurn | null = null;
  readonly superseded: Signal<LiveTurn[]> = signal([]);
  // starts has when the attempts began that were heard of, and whose they were.
  readonly starts: Signal<ReadonlyMap<string, { at: number; worker: string }>> = signal(new Map());
  readonly children: Signal<Run[]> = signal([]);
  readonly below: Signal<ReadonlyMap<string, Run[]>> = signal(new Map()); // of children that were unfolded
  readonly agent: Signal<Agent | null> = signal(null);
  readonly error: Signal<ApiError | null> = signal(null);
  readonly whole: Signal<Run | null> = signal(null); // as the API gives it
  readonly wholeError: Signal<ApiError | null> = signal(null);
  readonly stream: Signal<StreamState> = signal("connecting");
  private caughtUp = false; // with what was stored when it was read
  private queue: Event[] = [];
  private frame = 0;
  private timer = 0;
  private stops: (() => void)[] = [];
  private closed = false;
  private follows = false;
  private retry = 0;
  private reads = false;
  private readAgain = false;
  // What changed while lists are read, for each of them: the answer may be older.
  private readonly heard = new Set<{ runs: Run[]; gone: Set<string> }>();

  constructor(readonly id: string) {
    void this.begin();
  }

  // begin reads the run, and tries again by itself if that may help.
  async begin(): Promise<void> {
    clearTimeout(this.retry);
    this.open();
    try {
      const r = await get<Run>(this.path);
      if (this.closed || this.run.peek()) return;
      this.error.value = null;
      this.run.value = this.entries.peek().reduce(after, r);
      if (this.queue.length) this.plan();
      this.goesOn(r);
    } catch (e) {
      if (this.closed || this.run.peek()) return;
      this.stop();
      const err = errorOf(e);
      this.error.value = err;
      loggedOut(err);
      if (passes(err)) this.retry = window.setTimeout(() => void this.begin(), 2000);
    }
  }

  private open(): void {
    if (this.stops.length) return;
    this.follow();
    this.stops.push(
      listen({
        changed: (runs) => this.changed(runs),
        deleted: (ids) => this.deleted(ids),
        open: () => void this.readChildren(),
        reset: () => void this.refresh(),
      }),
    );
  }

  private stop(): void {
    for (const s of this.stops) s();
    this.stops = [];
  }

  private get path(): string {
    return `/v1/runs/${encodeURIComponent(this.id)}`;
  }

  private follow(): void {
    this.follows = true;
    let opened = false;
    const after = this.entries.peek().at(-1)?.seq ?? 0;
    const stop = openStream(`${this.path}/events${after ? "?after=" + after : ""}`, {
      types,
      state: (s) => {
        this.stream.value = s;
        if (s !== "open") return;
        if (opened) this.missed();
        opened = true;
      },
      event: (_type, data) => {
        this.queue.push(JSON.parse(data) as Event);
        this.plan();
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

  // plan has what came taken in with the next frame. The log of a long run comes in many pieces:
  // each would draw the same again, so they are taken in once all are there, or after a moment.
  private plan(): void {
    const e = this.queue.at(-1)!;
    this.caughtUp ||= e.seq === null || (e.version ?? 0) >= (this.run.peek()?.version ?? Infinity);
    if (this.caughtUp && !document.hidden) this.frame ||= requestAnimationFrame(() => this.flush());
    else this.timer ||= window.setTimeout(() => this.flush(), 200);
  }

  private flush(): void {
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
    this.frame = this.timer = 0;
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
    });
  }

  // missed is called when the stream is back: what was heard live is not sent again.
  private missed(): void {
    this.flush();
    const live = this.live.peek();
    if (live) this.live.value = broken(live);
  }

  // hear takes a live event.
  private hear(e: Event): void {
    const live = this.live.peek();
    if (e.type !== "turn.started") {
      this.live.value = heard(live, e);
      return;
    }
    if (live && live.turn === e.turn && live.attempt !== e.attempt && saysSomething(live)) this.superseded.value = [...this.superseded.peek(), { ...live, superseded: true }];
    this.starts.value = new Map(this.starts.peek()).set(`${e.turn}/${e.attempt}`, { at: Date.parse(e.at), worker: e.worker ?? "" });
    this.live.value = begun(e);
    const run = this.run.peek();
    if (run && run.status === "queued") this.run.value = { ...run, status: "running" };
  }

  // commit takes from what is live what is kept now.
  private commit(e: Event): void {
    const live = this.live.peek();
    // What a dead worker had said of a turn gives way to what is committed of it.
    const over = e.type === "model.message" ? e.turn : e.type === "run.finished" ? Infinity : 0;
    if (this.superseded.peek().some((l) => l.turn <= over)) this.superseded.value = this.superseded.peek().filter((l) => l.turn > over);
    if (live) this.live.value = settled(live, e);
  }

  // changed takes what the stream of changes says of this run and of those below it.
  private changed(runs: Run[]): void {
    for (const h of this.heard) h.runs.push(...runs.filter((r) => r.parent));
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

  private deleted(ids: ReadonlySet<string>): void {
    for (const h of this.heard) for (const id of ids) h.gone.add(id);
    const left = (runs: Run[]): Run[] => runs.filter((r) => !ids.has(r.id));
    batch(() => {
      this.children.value = left(this.children.peek());
      this.below.value = new Map([...this.below.peek()].map(([id, runs]) => [id, left(runs)]));
      if (!ids.has(this.id)) return;
      this.run.value = null;
      this.error.value = new ApiError(404, "run_not_found", `run ${this.id} was deleted`);
      this.close();
    });
  }

  // update takes a summary: its texts may be cut short, those of the events are not.
  private update(r: Run): void {
    const was = this.run.peek();
    if (!was || !newer(r, was)) return;
    const kept: Run = { ...r, metadata: was.metadata };
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
    this.goesOn(r);
  }

  // goesOn follows a run that goes on after its end: somebody has sent a message.
  private goesOn(r: Run): void {
    if (!this.follows && r.version > (this.entries.peek().at(-1)?.version ?? 0)) this.follow();
  }

  // refresh is asked when the stream of changes has lost some.
  private async refresh(): Promise<void> {
    const below = [...this.below.peek().keys()];
    const read = async (): Promise<void> => {
      try {
        const r = await get<Run>(this.path);
        const was = this.run.peek();
        if (this.closed || (was && !newer(r, was))) return;
        this.run.value = r;
        this.goesOn(r);
      } catch (e) {
        const err = errorOf(e);
        loggedOut(err);
        if (err.status === 404) this.deleted(new Set([this.id])); // else what is shown stays
      }
    };
    await Promise.all([read(), this.readChildren(), ...below.map((id) => this.readBelow(id))]);
  }

  // readChildren is asked when the stream of changes has opened, and when it has lost some.
  private async readChildren(): Promise<void> {
    this.children.value = (await this.list(this.id)) ?? this.children.peek();
  }

  private async readBelow(child: string): Promise<void> {
    const runs = await this.list(child);
    if (runs && this.below.peek().has(child)) this.below.value = new Map(this.below.peek()).set(child, runs);
  }

  // list reads the runs below one, with what changed meanwhile.
  private async list(parent: string): Promise<Run[] | null> {
    const heard = { runs: [] as Run[], gone: new Set<string>() };
    this.heard.add(heard);
    try {
      const found: Run[] = [];
      let next: string | null = null;
      do {
        const page: Page<Run> = await get<Page<Run>>("/v1/runs" + query({ parent, view: "summary", limit: 1000, cursor: next }));
        found.push(...page.items);
        next = page.next_cursor;
      } while (next && found.length < mostBelow && !this.closed);
      const all = heard.runs.filter((r) => r.parent?.run_id === parent).reduce(put, found.reverse());
      return all.filter((r) => !heard.gone.has(r.id));
    } catch {
      return null; // the rest of the run is shown all the same
    } finally {
      this.heard.delete(heard);
    }
  }

  async unfold(child: string): Promise<void> {
    const next = new Map(this.below.peek());
    if (next.delete(child)) {
      this.below.value = next;
      return;
    }
    this.below.value = next.set(child, []);
    await this.readBelow(child);
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

  // readWhole is asked by who wants the run exactly as the API gives it: changes come as
  // summaries. One reading at a time, and one more if the run has changed meanwhile.
  async readWhole(): Promise<void> {
    if (this.reads) {
      this.readAgain = true;
      return;
    }
    this.reads = true;
    do {
      this.readAgain = false;
      try {
        this.whole.value = await get<Run>(this.path);
        this.wholeError.value = null;
      } catch (e) {
        this.wholeError.value = errorOf(e);
        loggedOut(this.wholeError.value);
      }
    } while (this.readAgain && !this.closed);
    this.reads = false;
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.retry);
    this.stop();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.timer);
  }
}

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
      calls: (e.waiting.calls ?? []).map((c) => ({
        ...c,
        message: c.message ?? "",
        run_id: c.run_id ?? null,
        ...(e.version === run.version && known.get(c.id)?.hash ? { hash: known.get(c.id)!.hash! } : {}),
      })),
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
    if (run.finished_at) next.idle_ms = (run.idle_ms ?? 0) + Math.max(0, Date.parse(e.at) - Date.parse(run.finished_at));
    next.finished_at = null;
    if (e.type === "transition") [next.output, next.error] = [null, null];
  }
  return next;
}
