// Agents: the list with what became of their newest runs, one agent with its versions, and
// drafts of definitions.
import { batch, computed, effect, signal, type Signal } from "@preact/signals";
import { type ApiError, errorOf, get, passes, postOnce, request, tenant } from "../api/client";
import { type Agent, type AgentVersion, type AgentVersions, ended, type JSONValue, type Page, type Run, type RunStats, type Status } from "../api/types";
import { sumOf } from "../lib/spent";
import { duration, failures } from "../lib/words";
import { List } from "./list";
import { listen } from "./live";
import { newer } from "./runs";
import { identity, loggedOut, loggedOutHere } from "./session";

export const agents = new List<Agent>(() => "/v1/agents?limit=1000", 15_000);

// The newest runs of the tenant: what the figures of the list are of.
const looked = 1000;
export const newest: Signal<ReadonlyMap<string, Run>> = signal(new Map());
export const examined = computed(() => newest.value.size);
export const examinedAll = signal(true);
export const newestRead = signal(false);

export function followNewest(): () => void {
  let generation = 0;
  let retry = 0;
  let heard: Run[] = []; // since the reading began: its answer may be older
  const gone = new Set<string>(); // deleted since then
  const set = (from: Iterable<Run>, changes: Run[]): void => {
    const next = new Map([...from].map((r) => [r.id, r]));
    for (const r of changes) {
      const had = next.get(r.id);
      if (!had || newer(r, had)) next.set(r.id, r);
    }
    if (next.size > looked) {
      for (const id of [...next.keys()].sort().slice(0, next.size - looked)) next.delete(id);
      examinedAll.value = false;
    }
    newest.value = next;
  };
  let reading = false;
  const deleted = (ids: ReadonlySet<string>): void => {
    if (reading) for (const id of ids) gone.add(id);
    newest.value = new Map([...newest.peek()].filter(([id]) => !ids.has(id)));
  };
  const changed = (runs: Run[]): void => {
    if (reading) heard.push(...runs);
    set(newest.peek().values(), runs);
  };
  const read = async (): Promise<void> => {
    const mine = ++generation;
    clearTimeout(retry);
    reading = true;
    heard = [];
    gone.clear();
    try {
      const page = await get<Page<Run>>(`/v1/runs?view=summary&limit=${looked}`);
      if (mine !== generation) return;
      batch(() => {
        examinedAll.value = !page.next_cursor;
        newestRead.value = true;
        set(
          page.items.filter((r) => !gone.has(r.id)),
          heard.filter((r) => !gone.has(r.id)),
        );
      });
    } catch (e) {
      if (mine !== generation) return;
      const err = errorOf(e); // the list of agents is shown all the same
      loggedOut(err);
      if (passes(err)) retry = window.setTimeout(() => void read(), 5000);
    }
    reading = false;
    heard = [];
  };
  const stop = listen({ changed, deleted, open: () => void read(), reset: () => void read() });
  return () => {
    generation++;
    clearTimeout(retry);
    stop();
  };
}

export const stats = computed<ReadonlyMap<string, RunStats>>(() => {
  const of = new Map<string, Run[]>();
  for (const r of newest.value.values()) {
    const list = of.get(r.agent);
    if (list) list.push(r);
    else of.set(r.agent, [r]);
  }
  return new Map([...of].map(([name, runs]) => [name, statsOf(runs)]));
});

function statsOf(runs: Run[]): RunStats {
  const statuses: Partial<Record<Status, number>> = {};
  const took: number[] = [];
  let troubled = 0;
  for (const r of runs) {
    statuses[r.status] = (statuses[r.status] ?? 0) + 1;
    if (failures(r)) troubled++;
    if (ended(r.status) && r.started_at) took.push(duration(r, 0)!);
  }
  took.sort((a, b) => a - b);
  const share = (p: number): number | null => took[Math.floor((took.length - 1) * p)] ?? null;
  return { total: runs.length, statuses, cost_usd: sumOf(runs.map((r) => r.usage.cost_usd)), duration_ms: { p50: share(0.5), p95: share(0.95) }, troubled };
}

// success is the share of completed runs among those that have ended by themselves.
export function success(s: RunStats): number | null {
  const done = s.statuses.completed ?? 0;
  const all = done + (s.statuses.failed ?? 0) + (s.statuses.incomplete ?? 0);
  return all ? done / all : null;
}

export class AgentModel {
  readonly agent: Signal<Agent | null> = signal(null); // the latest version
  readonly versions: Signal<AgentVersion[]> = signal([]);
  readonly examined = signal(0);
  readonly complete = signal(true);
  readonly cursor: Signal<string | null> = signal(null);
  readonly error: Signal<ApiError | null> = signal(null);
  readonly definitions: Signal<ReadonlyMap<number, Agent>> = signal(new Map());
  private readonly asked = new Set<number>();

  constructor(readonly name: string) {
    void this.load();
  }

  private path = (more = ""): string => `/v1/agents/${encodeURIComponent(this.name)}${more}`;

  async load(): Promise<void> {
    try {
      const [agent, versions] = await Promise.all([get<Agent>(this.path()), get<AgentVersions>(this.path("/versions?limit=50"))]);
      batch(() => {
        this.error.value = null;
        this.agent.value = agent;
        this.definitions.value = new Map(this.definitions.peek()).set(agent.version, agent);
        this.versions.value = versions.items;
        this.examined.value = versions.examined;
        this.complete.value = versions.complete;
        this.cursor.value = versions.next_cursor;
      });
    } catch (e) {
      this.error.value = errorOf(e);
      loggedOut(this.error.value);
    }
  }

  async more(): Promise<void> {
    const from = this.cursor.peek();
    if (!from) return;
    const page = await get<AgentVersions>(this.path(`/versions?limit=50&cursor=${encodeURIComponent(from)}`));
    batch(() => {
      this.versions.value = [...this.versions.peek(), ...page.items];
      this.cursor.value = page.next_cursor;
    });
  }

  // want reads the definition of a version, if it is not known.
  async want(version: number): Promise<void> {
    if (this.definitions.peek().has(version) || this.asked.has(version)) return;
    this.asked.add(version);
    try {
      const a = await get<Agent>(this.path(`?version=${version}`));
      this.definitions.value = new Map(this.definitions.peek()).set(version, a);
    } catch (e) {
      this.asked.delete(version);
      this.error.value = errorOf(e);
    }
  }
}

// Texts that somebody has begun to write and not saved, by who they are, where, and the name
// of the agent. They last as long as the tab, and go when somebody logs out.
const stored = "unsaved";
export const unsaved: Signal<ReadonlyMap<string, string>> = signal(readUnsaved());
export const unsavedKey = (name: string): string => JSON.stringify([identity.value?.principal ?? "", identity.value?.tenant ?? tenant.value, name]);

export function keepUnsaved(key: string, text: string | null): void {
  const next = new Map(unsaved.peek());
  if (text === null) next.delete(key);
  else next.set(key, text);
  unsaved.value = next;
  try {
    if (next.size) sessionStorage.setItem(stored, JSON.stringify([...next]));
    else sessionStorage.removeItem(stored);
  } catch {
    return; // there is no room: it lasts until the page is loaded anew
  }
}

function readUnsaved(): Map<string, string> {
  try {
    return new Map(JSON.parse(sessionStorage.getItem(stored) ?? "[]") as [string, string][]);
  } catch {
    return new Map();
  }
}

effect(() => {
  if (loggedOutHere.value) for (const key of unsaved.peek().keys()) keepUnsaved(key, null);
});

export const saveAgent = (name: string, text: string): Promise<Agent> => request<Agent>("PUT", `/v1/agents/${encodeURIComponent(name)}`, { text });
export const removeAgent = (name: string): Promise<unknown> => request("DELETE", `/v1/agents/${encodeURIComponent(name)}`);
export const runDraft = (definition: string, input: string): Promise<Run> => postOnce<Run>("/v1/drafts", { definition, input, stream: "deltas" });

// nameIn is the name that a definition gives itself, in YAML or JSON, or "".
export function nameIn(text: string): string {
  const m = /^\s*\{/.test(text) ? /"name"\s*:\s*"([^"]*)"/.exec(text) : /^name:[ \t]*["']?([\w-]+)/m.exec(text);
  return m?.[1] ?? "";
}

// scripted puts a model that gives one answer in the place of that of a definition. All lines
// keep their numbers, so mistakes are shown where they are. null: there is no place for it.
export function scripted(text: string, answer: string): string | null {
  const model: JSONValue = { provider: "scripted", responses: [{ text: answer }] };
  if (/^\s*\{/.test(text)) {
    try {
      return JSON.stringify({ ...(JSON.parse(text) as object), model });
    } catch {
      return null;
    }
  }
  const lines = text.split("\n");
  const from = lines.findIndex((l) => /^model\s*:/.test(l));
  if (from < 0) return text + (text.endsWith("\n") ? "" : "\n") + "model: " + JSON.stringify(model) + "\n";
  let to = from + 1;
  while (to < lines.length && /^(\s|$|#|- )/.test(lines[to]!)) to++;
  lines[from] = "model: " + JSON.stringify(model);
  for (let i = from + 1; i < to; i++) lines[i] = "";
  return lines.join("\n");
}
