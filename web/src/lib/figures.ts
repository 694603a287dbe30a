// Figures over time as series and shapes: no DOM, no requests.

export interface Latency {
  count: number;
  sum_ms: number;
  buckets: number[];
}

export interface StatsRow {
  start: string;
  name: string; // an agent, a model or a tenant
  runs: number;
  failed: number;
  reasons: Record<string, number>;
  input_tokens: number;
  output_tokens: number;
  cost_usd: number;
  cache_expired_cost_usd?: number; // the part of cost_usd that the prompt cache would have saved; older gateways have none
  queue: Latency;
  model: Latency;
  tool: Latency;
}

// Names of the API that stand for no agent and no model of their own.
export const otherName = "(other)";
export const noneName = "(none)";

export const ranges = ["24h", "7d", "90d"] as const;
export type Range = (typeof ranges)[number];
export const rangeOf = (text: string | null): Range => ranges.find((r) => r === text) ?? "24h";

const hour = 3_600_000;
const day = 24 * hour;

export interface Span {
  from: number; // at a whole hour or day in UTC
  step: "hour" | "day";
  every: number; // the length of a step, in milliseconds
  count: number; // of steps; the last one is not over
}

// spanOf returns the steps of a range that ends now.
export function spanOf(range: Range, now: number): Span {
  const [count, every] = range === "24h" ? [24, hour] : range === "7d" ? [168, hour] : [90, day];
  return { from: Math.floor(now / every) * every - (count - 1) * every, step: every === day ? "day" : "hour", every, count };
}

export interface Layer {
  name: string;
  values: number[]; // one of each step
}

// Placed are rows with the number of the step of each.
export interface Placed {
  rows: StatsRow[];
  at: number[];
}

// place leaves out the rows that lie outside of the span, and those of other names if one is given.
export function place(rows: StatsRow[], span: Span, name = ""): Placed {
  const steps = new Map<string, number>(); // few instants, many rows
  const out: Placed = { rows: [], at: [] };
  for (const r of rows) {
    if (name && r.name !== name) continue;
    let at = steps.get(r.start);
    if (at === undefined) steps.set(r.start, (at = Math.floor((Date.parse(r.start) - span.from) / span.every)));
    if (!(at >= 0 && at < span.count)) continue;
    out.rows.push(r);
    out.at.push(at);
  }
  return out;
}

// layers sums up what of adds by name and step. The largest are layers of their own, in descending
// order, and one more has the others.
export function layers(p: Placed, count: number, of: (r: StatsRow, add: (name: string, n: number) => void) => void, most: number): Layer[] {
  const all = new Map<string, { values: number[]; total: number }>();
  let at = 0;
  const add = (name: string, n: number): void => {
    if (!n) return;
    let layer = all.get(name);
    if (!layer) all.set(name, (layer = { values: new Array<number>(count).fill(0), total: 0 }));
    layer.values[at]! += n;
    layer.total += n;
  };
  for (let i = 0; i < p.rows.length; i++) {
    at = p.at[i]!;
    of(p.rows[i]!, add);
  }
  const list = [...all].sort(([a, x], [b, y]) => Number(a === otherName) - Number(b === otherName) || y.total - x.total || (a < b ? -1 : 1));
  if (list.length <= most) return list.map(([name, { values }]) => ({ name, values }));
  const rest = list.slice(most - 1);
  const values = rest[0]![1].values.map((_, i) => rest.reduce((n, [, l]) => n + l.values[i]!, 0));
  return [...list.slice(0, most - 1).map(([name, l]) => ({ name, values: l.values })), { name: `${rest.length} others`, values }];
}

// totals returns the sum of all layers at each step.
export const totals = (list: Layer[], count: number): number[] => Array.from({ length: count }, (_, i) => list.reduce((n, l) => n + l.values[i]!, 0));

export type Kind = "queue" | "model" | "tool";

function into(sum: number[], buckets: number[]): void {
  for (let i = 0; i < buckets.length; i++) sum[i] = (sum[i] ?? 0) + buckets[i]!;
}

// bucketsOf sums up the histograms of one kind at each step.
export function bucketsOf(p: Placed, count: number, kind: Kind): number[][] {
  const out: number[][] = Array.from({ length: count }, () => []);
  for (let i = 0; i < p.rows.length; i++) into(out[p.at[i]!]!, p.rows[i]![kind].buckets);
  return out;
}

// quantile returns the upper bound of the bucket that has a share of the durations; the last bound if
// it lies above all of them, and null without durations.
export function quantile(bounds: number[], buckets: number[], share: number): number | null {
  const all = buckets.reduce((a, b) => a + b, 0);
  if (!all) return null;
  const want = Math.max(1, Math.ceil(all * share));
  let seen = 0;
  for (let i = 0; i < buckets.length; i++) {
    seen += buckets[i]!;
    if (seen >= want) return bounds[Math.min(i, bounds.length - 1)]!;
  }
  return bounds.at(-1) ?? null;
}

// ceiling returns the next of 1, 2, 5, 10, 20, … that is not below n; 1 if n is 0.
export function ceiling(n: number): number {
  if (!(n > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(n));
  return Number((([1, 2, 5, 10].find((f) => f * power >= n * (1 - 1e-9)) ?? 10) * power).toPrecision(6));
}

const short = (n: number): string => String(Math.round(n * 100) / 100);

// bars returns an SVG path of a layer of bars that stand on base. It is of unit steps in width, and
// height units high at max.
export function bars(values: number[], base: number[], max: number, height: number): string {
  let out = "";
  values.forEach((v, i) => {
    if (v <= 0) return;
    const y = height - ((base[i]! + v) / max) * height;
    out += `M${short(i + 0.1)} ${short(y)}h.8v${short((v / max) * height)}h-.8z`;
  });
  return out;
}

// line returns an SVG path through the middles of the steps; null is a gap, and a value without
// neighbours is a dash.
export function line(values: (number | null)[], max: number, height: number): string {
  let out = "";
  values.forEach((v, i) => {
    if (v === null) return;
    const y = short(height - (v / max) * height);
    const before = values[i - 1] ?? null;
    const after = values[i + 1] ?? null;
    if (before !== null) out += `L${i + 0.5} ${y}`;
    else if (after !== null) out += `M${i + 0.5} ${y}`;
    else out += `M${short(i + 0.2)} ${y}h.6`;
  });
  return out;
}

export interface Series {
  name: string;
  runs: number;
  failed: number;
  tokens: number;
  cost: number;
  expired: number; // the part of cost that was paid for what the prompt cache had dropped
  model: number[]; // buckets
  values: number[]; // runs of each step
}

// seriesOf returns the figures of each name, those with the most runs first.
export function seriesOf(p: Placed, count: number): Series[] {
  const all = new Map<string, Series>();
  for (let i = 0; i < p.rows.length; i++) {
    const r = p.rows[i]!;
    let s = all.get(r.name);
    if (!s) all.set(r.name, (s = { name: r.name, runs: 0, failed: 0, tokens: 0, cost: 0, expired: 0, model: [], values: new Array<number>(count).fill(0) }));
    s.runs += r.runs;
    s.failed += r.failed;
    s.tokens += r.input_tokens + r.output_tokens;
    s.cost += r.cost_usd;
    s.expired += r.cache_expired_cost_usd ?? 0;
    into(s.model, r.model.buckets);
    s.values[p.at[i]!]! += r.runs;
  }
  return [...all.values()].sort((a, b) => b.runs - a.runs || b.tokens - a.tokens || (a.name < b.name ? -1 : 1));
}

// move returns the step that a key leads to, or null if the key leads nowhere.
export function move(key: string, at: number, count: number): number | null {
  switch (key) {
    case "ArrowLeft":
      return Math.max(0, at - 1);
    case "ArrowRight":
      return Math.min(count - 1, at + 1);
    case "Home":
      return 0;
    case "End":
      return count - 1;
    default:
      return null;
  }
}
