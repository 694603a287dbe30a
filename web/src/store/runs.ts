// The list of runs: what the filter of the address matches, kept up to date by the stream.
import { batch, computed, effect, signal } from "@preact/signals";
import { ApiError, errorOf, get, query } from "../api/client";
import type { Page, Run } from "../api/types";
import { type Filter, filterOf, matches, parameters } from "./filter";
import { listen } from "./live";
import { route } from "./route";
import { loggedOut, ready } from "./session";
import { tenant } from "../api/client";

const pageSize = 100;
const searched = 1000; // matches in which a text is looked for

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
export const selected = signal<ReadonlySet<string>>(new Set());
export const at = signal(-1); // the row of the keyboard
export const atTop = signal(true); // whether new rows may slide in

// What is a filter is not all of the parameters: others say what is open beside the list.
const key = computed(() => {
  const p = new URLSearchParams(route.value.params);
  p.sort();
  return p.toString();
});
export const filter = computed<Filter>(() => filterOf(new URLSearchParams(key.value)));

let generation = 0;
let abort = new AbortController();

// load reads the list from its beginning. What is shown stays until the answer is there.
async function load(): Promise<void> {
  const mine = ++generation;
  abort.abort();
  abort = new AbortController();
  const f = filter.peek();
  loading.value = true;
  meanwhile = [];
  try {
    const page = await read(f, null, mine);
    if (mine !== generation) return;
    const late = meanwhile ?? [];
    meanwhile = null;
    batch(() => {
      items.value = page.items;
      fresh.value = [];
      past.value = new Set();
      cursor.value = page.next_cursor;
      listError.value = null;
      loaded.value = true;
      at.value = Math.min(at.peek(), page.items.length - 1);
    });
    if (late.length) apply(late);
  } catch (e) {
    if (mine !== generation) return;
    listError.value = errorOf(e);
    loggedOut(listError.value);
  } finally {
    if (mine === generation) loading.value = false;
  }
}

// read reads on until there is something to show: a page of the gateway may be empty and
// have more behind it.
async function read(f: Filter, from: string | null, mine: number): Promise<Page<Run>> {
  const found: Run[] = [];
  let looked = 0;
  let next = from;
  const now = Date.now();
  do {
    const q = { ...parameters(f, now), view: "summary", limit: String(f.text ? searched : pageSize), cursor: next ?? "" };
    const page = await get<Page<Run>>("/v1/runs" + query(q), abort.signal);
    looked += page.items.length;
    next = page.next_cursor;
    found.push(...(f.text ? page.items.filter((r) => matches(f, r, now)) : page.items));
  } while (next && found.length < 20 && (f.text ? looked < searched : true) && mine === generation);
  return { items: found, next_cursor: f.text && looked >= searched ? null : next };
}

export async function more(): Promise<void> {
  if (loading.peek() || !cursor.peek()) return;
  const mine = generation;
  loading.value = true;
  try {
    const page = await read(filter.peek(), cursor.peek(), mine);
    if (mine !== generation) return;
    const have = new Set(items.peek().map((r) => r.id));
    batch(() => {
      items.value = [...items.peek(), ...page.items.filter((r) => !have.has(r.id))];
      cursor.value = page.next_cursor;
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

// apply takes changes into the list, all at once.
function apply(runs: Run[]): void {
  if (meanwhile) meanwhile.push(...runs);
  const f = filter.peek();
  const now = Date.now();
  const next = items.peek().slice();
  const index = new Map(next.map((r, i) => [r.id, i]));
  const waits = new Map(fresh.peek().map((r) => [r.id, r]));
  const gone = new Set(past.peek());
  const end = next[next.length - 1];
  const come: Run[] = [];
  for (const run of runs) {
    const fits = matches(f, run, now);
    const i = index.get(run.id);
    if (i !== undefined) {
      if (!newer(run, next[i]!)) continue;
      next[i] = run;
      if (fits) gone.delete(run.id);
      else gone.add(run.id);
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
    past.value = gone;
    if (waits.size || fresh.peek().length) fresh.value = [...waits.values()];
    if (come.length) order(next);
    else items.value = next;
  });
}

// order sets the list with rows that are new. The keyboard stays at its run.
function order(next: Run[]): void {
  const here = items.peek()[at.peek()]?.id;
  next.sort((a, b) => (a.id < b.id ? 1 : a.id > b.id ? -1 : 0));
  items.value = next;
  if (here) at.value = next.findIndex((r) => r.id === here);
}

export function showFresh(): void {
  const runs = fresh.peek();
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

// The list is read when its view is opened first, and again when its filter changes, when
// the stream has opened and when it has lost something.
let stop: (() => void) | null = null;
effect(() => {
  const here = route.value.view === "runs" && ready.value;
  if (!here) return;
  tenant.value;
  key.value;
  loaded.value = false;
  selected.value = new Set();
  at.value = -1;
  items.value = [];
  stop?.();
  stop = listen({ changed: apply, open: () => void load(), reset: () => void load() });
});
// A gateway without a bus has no stream, and lists all the same.
setInterval(() => {
  if (route.peek().view === "runs" && ready.peek() && !loaded.peek() && !loading.peek()) void load();
}, 2000);
