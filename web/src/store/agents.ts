// Agents: the list with what became of their newest runs, one agent with its versions, and
// drafts of definitions.
import { batch, computed, signal, type Signal } from "@preact/signals";
import { ApiError, errorOf, get, newKey, post, request } from "../api/client";
import { type Agent, type AgentVersion, type AgentVersions, ended, type JSONValue, type Page, type Run, type RunStats, type Status } from "../api/types";
import { List } from "./list";
import { listen } from "./live";
import { newer } from "./runs";
import { loggedOut } from "./session";

export const agents = new List<Agent>(() => "/v1/agents?limit=1000", 15_000);

// The newest runs of the tenant: what the figures of the list are of.
const looked = 1000;
const newest: Signal<ReadonlyMap<string, Run>> = signal(new Map());
export const examined = computed(() => newest.value.size);
export const examinedAll = signal(true);

export function followNewest(): () => void {
  const apply = (runs: Run[]): void => {
    const next = new Map(newest.peek());
    for (const r of runs) {
      const had = next.get(r.id);
      if (!had || newer(r, had)) next.set(r.id, r);
    }
    newest.value = next;
  };
  const read = async (): Promise<void> => {
    try {
      const page = await get<Page<Run>>(`/v1/runs?view=summary&limit=${looked}`);
      batch(() => {
        newest.value = new Map();
        examinedAll.value = !page.next_cursor;
        apply(page.items);
      });
    } catch (e) {
      loggedOut(errorOf(e)); // the list of agents is shown all the same
    }
  };
  return listen({ changed: apply, open: () => void read(), reset: () => void read() });
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
  let cost = 0;
  for (const r of runs) {
    statuses[r.status] = (statuses[r.status] ?? 0) + 1;
    cost += r.usage.cost_usd ?? 0;
    if (ended(r.status) && r.started_at && r.finished_at) took.push(Date.parse(r.finished_at) - Date.parse(r.started_at));
  }
  took.sort((a, b) => a - b);
  const share = (p: number): number | null => took[Math.floor((took.length - 1) * p)] ?? null;
  return { total: runs.length, statuses, cost_usd: cost, duration_ms: { p50: share(0.5), p95: share(0.95) } };
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

// Texts that somebody has begun to write and not saved, by the name of the agent.
export const drafts: Signal<ReadonlyMap<string, string>> = signal(new Map());
export function keepDraft(name: string, text: string | null): void {
  const next = new Map(drafts.peek());
  if (text === null) next.delete(name);
  else next.set(name, text);
  drafts.value = next;
}

export const saveAgent = (name: string, text: string): Promise<Agent> => request<Agent>("PUT", `/v1/agents/${encodeURIComponent(name)}`, { text });
export const removeAgent = (name: string): Promise<unknown> => request("DELETE", `/v1/agents/${encodeURIComponent(name)}`);
export const runDraft = (definition: string, input: string): Promise<Run> => post<Run>("/v1/drafts", { definition, input, stream: "deltas" }, newKey());
export const startRun = (agent: string, input: string): Promise<Run> => post<Run>("/v1/runs", { agent, input }, newKey());

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
