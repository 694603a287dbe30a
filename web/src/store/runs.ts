// The list of runs: what the filter of the address matches, kept up to date by the stream.
import { batch, computed, effect, signal } from "@preact/signals";
import { type ApiError, errorOf, get, passes, query } from "../api/client";
import type { Page, Run } from "../api/types";
import { duration } from "../lib/words";
import { type Filter, filterOf, matches, parameters } from "./filter";
import { listen } from "./live";
import { route } from "./route";
import { loggedOut, ready } from "./session";
import { sorted } from "./sort";
import { tenant } from "../api/client";

const pageSize = 100;
// How many rows stay when new ones come, and how many new ones wait. A tab is open all day.
export const most = 1000;
const longest = 1000; // rows that the gateway gives at a time
// The cursor of a list of which the end was dropped: it is read again from that instant on.
const dropped = "before ";

export const items = signal<Run[]>([]);
// Runs that came while the reader was elsewhere in the list: they wait for a click.
export const fresh = signal<Run[]>([]);
// Runs in the list that the filter matches no longer. They stay where they are until the
// list is read anew, so that nothing jumps under the pointer.
export const past = signal<ReadonlySet<string>>(new Set());
export const loading = signal(false);
export const loaded = signal(false);
export const listError = signal<ApiError | null>(null);
export const cursor = signal<string | null>(null);
export const stopped = signal(false); // a text was looked for in the newest runs only
export const selected = signal<ReadonlySet<string>>(new Set());
export const at = signal(-1); // the row of the keyboard, in rows
export const atTop = signal(true); // whether new rows may slide in

// The address of a run has parameters of its own, which are no filters.
const key = computed(() => {
  const p = new URLSearchParams(route.value.view === "runs" ? route.value.params : "");
  p.delete("sort"); // which only orders what was read
  p.sort();
  return p.toString();
});
export const filter = computed<Filter>(() => filterOf(new URLSearchParams(key.value)));

// The rows as the reader has ordered them: the newest first, unless they sort by a column.
export const rows = computed<Run[]>(() => sorted(items.value, columns));
const columns = {
  agent: (r: Run) => r.agent,
  took: (r: Run) => duration(r, Date.now()) ?? null,
  turns: (r: Run) => r.turn_count,
  tokens: (r: Run) => r.usage.input_tokens + r.usage.output_tokens,
  cost: (r: Run) => r.usage.cost_usd ?? null,
  age: (r: Run) => -Date.parse(r.created_at ?? ""),
};

let generation = 0;
let abort = new AbortController();

// load reads the list from its beginning, as far as it was read. What is shown stays until the
// answer is there.
async function load(): Promise<void> {
  const mine = ++generation;
  const size = Math.max(pageSize, items.peek().length);
  abort.abort();
  abort = new AbortController();
  const f = filter.peek();
  loading.value = true;
  meanwhile = [];
  gone = new Set();
  try {
    const page = await read(f, null, mine, size);
    if (mine !== generation) return;
    const late = meanwhile ?? [];
    meanwhile = null;
    const there = page.items.filter((r) => !gone.has(r.id));
    // Somebody who reads below stays where they are: what is new waits.
    const first = atTop.peek() ? undefined : items.peek()[0]?.id;
    const here = rows.peek()[at.peek()]?.id;
    batch(() => {
      items.value = first ? there.filter((r) => r.id <= first) : there;
      fresh.value = first ? there.filter((r) => r.id > first) : [];
      past.value = new Set();
      cursor.value = page.next_cursor;
      listError.value = null;
      loaded.value = true;
      at.value = here ? rows.peek().findIndex((r) => r.id === here) : -1;
    });
    if (late.length) apply(late);
  } catch (e) {
    if (mine !== generation) return;
    meanwhile = null;
    listError.value = errorOf(e);
    loggedOut(listError.value);
  } finally {
    if (mine === generation) loading.value = false;
  }
}

// read reads on until there is something to show: a page of the gateway may be empty and
// have more behind it.
async function read(f: Filter, from: string | null, mine: number, size = pageSize): Promise<Page<Run>> {
  const found: Run[] = [];
  let next = from;
  let page: Page<Run>;
  const now = Date.now();
  const enough = size > pageSize ? size : 20;
  do {
    const q: Record<string, string> = { ...parameters(f, now), view: "summary", limit: String(Math.min(size, longest)) };
    if (next?.startsWith(dropped)) q["created_before"] = next.slice(dropped.length);
    else if (next) q["cursor"] = next;
    page = await get<Page<Run>>("/v1/runs" + query(q), abort.signal);
    next = page.next_cursor;
    found.push(...page.items);
  } while (next && found.length < enough && mine === generation);
  if (mine === generation) stopped.value = !next && page.complete === false;
  return { items: found, next_cursor: next };
}

export async function more(): Promise<void> {
  if (loading.peek() || !cursor.peek()) return;
  const mine = generation;
  loading.value = true;
  try {
    let next = cursor.peek();
    let found: Run[] = [];
    // Many runs may be of the instant from which a list is read again.
    while (next && !found.length) {
      const page = await read(filter.peek(), next, mine);
      if (mine !== generation) return;
      const have = new Set(items.peek().map((r) => r.id));
      found = page.items.filter((r) => !have.has(r.id) && !gone.has(r.id));
      next = page.next_cursor;
    }
    batch(() => {
      items.value = [...items.peek(), ...found];
      cursor.value = next;
    });
  } catch (e) {
    if (mine === generation) listError.value = errorOf(e);
  } finally {
    if (mine === generation) loading.value = false;
  }
}

export const reload = (): void => void load();

// newer reports whether a is a later state of the run than b.
export const newer = (a: Run, b: Run): boolean => a.version > b.version || (a.version === b.version && (a.updated_at ?? "") >= (b.updated_at ?? ""));

// Changes that come while the list is read: the answer may be older than they are.
let meanwhile: Run[] | null = null;
let gone = new Set<string>(); // deleted since the list was read first
const goneKept = 10_000;

// drop takes deleted runs out of the list. The keyboard stays at its run, or at its place.
function drop(ids: ReadonlySet<string>): void {
  if (gone.size > goneKept) gone = new Set();
  for (const id of ids) gone.add(id);
  const left = (list: Run[]): Run[] => list.filter((r) => !ids.has(r.id));
  const here = rows.peek()[at.peek()]?.id;
  batch(() => {
    if (fresh.peek().some((r) => ids.has(r.id))) fresh.value = left(fresh.peek());
    if ([...selected.peek()].some((id) => ids.has(id))) selected.value = new Set([...selected.peek()].filter((id) => !ids.has(id)));
    if (!items.peek().some((r) => ids.has(r.id))) return;
    items.value = left(items.peek());
    const i = rows.peek().findIndex((r) => r.id === here);
    at.value = i >= 0 ? i : Math.min(at.peek(), items.peek().length - 1);
  });
}

// apply takes changes into the list, all at once.
function apply(runs: Run[]): void {
  if (meanwhile) meanwhile.push(...runs);
  const f = filter.peek();
  const now = Date.now();
  const next = items.peek().slice();
  const index = new Map(next.map((r, i) => [r.id, i]));
  const waits = new Map(fresh.peek().map((r) => [r.id, r]));
  const over = new Set(past.peek());
  const end = next[next.length - 1];
  const come: Run[] = [];
  for (const run of runs) {
    if (gone.has(run.id)) continue;
    const fits = matches(f, run, now);
    const i = index.get(run.id);
    if (i !== undefined) {
      if (!newer(run, next[i]!)) continue;
      next[i] = run;
      if (fits) over.delete(run.id);
      else over.add(run.id);
    } else if (f.text) {
      continue; // only the gateway knows where the text is: it is asked when the list is read anew
    } else if (!fits) {
      waits.delete(run.id);
    } else if (waits.has(run.id)) {
      waits.set(run.id, run);
    } else if (cursor.peek() && end && run.id < end.id) {
      continue; // ids order by time: it comes with its page
    } else if (atTop.peek()) {
      index.set(run.id, next.push(run) - 1);
      come.push(run);
    } else {
      waits.set(run.id, run);
    }
  }
  batch(() => {
    past.value = over;
    if (waits.size || fresh.peek().length) fresh.value = [...waits.values()].sort(newestFirst).slice(0, most);
    if (come.length) order(next);
    else items.value = next;
  });
}

const newestFirst = (a: Run, b: Run): number => (a.id < b.id ? 1 : a.id > b.id ? -1 : 0);

// order sets the list with rows that are new. The keyboard stays at its run.
function order(next: Run[]): void {
  const here = rows.peek()[at.peek()]?.id;
  keepNewest(next.sort(newestFirst));
  if (here) at.value = rows.peek().findIndex((r) => r.id === here);
}

// keepNewest sets the list without the oldest of many rows, unless somebody is about to do something
// with them. Whoever goes down there reads them again.
function keepNewest(next: Run[]): void {
  const last = next[most - 1];
  if (next.length > most && at.peek() < most && !selected.peek().size && last?.created_at) {
    next = next.slice(0, most);
    cursor.value = dropped + new Date(Date.parse(last.created_at) + 1).toISOString();
    const have = new Set(next.map((r) => r.id));
    past.value = new Set([...past.peek()].filter((id) => have.has(id)));
  }
  items.value = next;
}

export function showFresh(): void {
  const runs = fresh.peek();
  atTop.value = true;
  if (runs.length >= most) return reload(); // some that came were dropped
  batch(() => {
    fresh.value = [];
    order([...items.peek(), ...runs]);
  });
}

// keep puts a run that an action has answered into the list, before the stream tells of it.
export function keep(run: Run): void {
  if (items.peek().some((r) => r.id === run.id)) apply([run]);
}

export function toggle(id: string): void {
  const s = new Set(selected.peek());
  if (!s.delete(id)) s.add(id);
  selected.value = s;
}
export const clearSelection = (): void => {
  selected.value = new Set();
};

// The list is read when its view is opened, and again when its filter changes, when the stream
// has opened and when it has lost something. Elsewhere it stays as it was when it was left.
let stop: (() => void) | null = null;
let listed = ""; // what the list is of
effect(() => {
  const here = route.value.view === "runs" && ready.value;
  const of = JSON.stringify([ready.value, tenant.value, ...(here ? [key.value] : JSON.parse(listed || "[]").slice(2))]);
  generation++;
  abort.abort();
  stop?.();
  stop = null;
  meanwhile = null;
  batch(() => {
    if (of !== listed) {
      loaded.value = false;
      selected.value = new Set();
      at.value = -1;
      items.value = [];
      past.value = new Set();
      cursor.value = null;
    }
    listed = of;
    loading.value = false;
    listError.value = null;
    fresh.value = [];
    if (!here) keepNewest(items.peek());
  });
  if (here) stop = listen({ changed: apply, deleted: drop, open: () => void load(), reset: () => void load() });
});
// A gateway without a bus has no stream, and lists all the same. What could not be read is
// read again.
setInterval(() => {
  const failed = listError.peek();
  if (route.peek().view === "runs" && ready.peek() && !loading.peek() && (failed ? passes(failed) : !loaded.peek())) void load();
}, 2000);
