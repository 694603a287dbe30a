import assert from "node:assert/strict";
import { test } from "node:test";
import { bars, bucketsOf, ceiling, layers, line, move, place, quantile, rangeOf, seriesOf, spanOf, type StatsRow, totals } from "./figures";

const none = { count: 0, sum_ms: 0, buckets: [] };
const row = (start: string, name: string, more: Partial<StatsRow>): StatsRow => ({
  start,
  name,
  runs: 0,
  failed: 0,
  reasons: {},
  input_tokens: 0,
  output_tokens: 0,
  cost_usd: 0,
  queue: none,
  model: none,
  tool: none,
  ...more,
});
const now = Date.parse("2026-03-14T10:20:00Z");

test("a range ends with the hour or day that is not over", () => {
  const h = spanOf("24h", now);
  assert.equal(new Date(h.from).toISOString(), "2026-03-13T11:00:00.000Z");
  assert.equal(h.from + h.count * h.every, Date.parse("2026-03-14T11:00:00Z"));
  const d = spanOf("90d", now);
  assert.equal(new Date(d.from).toISOString(), "2025-12-15T00:00:00.000Z");
  assert.equal(d.from + d.count * d.every, Date.parse("2026-03-15T00:00:00Z"));
  assert.equal(spanOf("7d", now).count, 168);
  assert.equal(rangeOf("1y"), "24h");
  assert.equal(rangeOf("90d"), "90d");
});

test("the largest are layers, and the others are one", () => {
  const span = spanOf("24h", now);
  const at = "2026-03-14T10:00:00.000Z";
  const rows = [
    row(at, "a", { runs: 1 }),
    row(at, "b", { runs: 5 }),
    row("2026-03-13T11:00:00Z", "b", { runs: 2 }),
    row(at, "c", { runs: 3 }),
    row(at, "(other)", { runs: 9 }),
    row("2026-03-13T10:00:00Z", "early", { runs: 7 }),
  ];
  const of = (r: StatsRow, add: (name: string, n: number) => void): void => add(r.name, r.runs);
  const placed = place(rows, span);
  const all = layers(placed, span.count, of, 3);
  assert.deepEqual(
    all.map((l) => l.name),
    ["b", "c", "2 others"],
  );
  assert.equal(all[0]!.values[0], 2);
  assert.equal(all[2]!.values[23], 10);
  assert.equal(totals(all, span.count)[23], 18);
  assert.deepEqual(
    layers(placed, span.count, of, 4).map((l) => l.name),
    ["b", "c", "a", "(other)"],
  );
  assert.deepEqual(layers(place([], span), span.count, of, 4), []);
  assert.equal(seriesOf(place(rows, span, "b"), span.count)[0]!.runs, 7);
  assert.equal(seriesOf(placed, span.count).length, 4);
});

test("what the prompt cache had dropped is a part of the cost of its agent", () => {
  const span = spanOf("24h", now);
  const at = "2026-03-14T10:00:00Z";
  const rows = [row(at, "a", { cost_usd: 2, cache_expired_cost_usd: 0.5 }), row(at, "a", { cost_usd: 1, cache_expired_cost_usd: 0.25 }), row(at, "b", { cost_usd: 1 })];
  const series = seriesOf(place(rows, span), span.count);
  assert.deepEqual(
    series.map((s) => [s.name, s.cost, s.expired]),
    [
      ["a", 3, 0.75],
      ["b", 1, 0],
    ],
  );
});

test("a percentile is of the sum of histograms", () => {
  const span = spanOf("24h", now);
  const at = "2026-03-14T10:00:00Z";
  const model = (buckets: number[]): Partial<StatsRow> => ({ model: { count: 1, sum_ms: 1, buckets } });
  const sum = bucketsOf(place([row(at, "a", model([1, 0, 0])), row(at, "b", model([0, 1, 8]))], span), span.count, "model")[23]!;
  assert.deepEqual(sum, [1, 1, 8]);
  assert.equal(quantile([10, 20], sum, 0.1), 10);
  assert.equal(quantile([10, 20], sum, 0.2), 20);
  assert.equal(quantile([10, 20], sum, 0.95), 20);
  assert.equal(quantile([10, 20], [], 0.5), null);
});

test("shapes", () => {
  assert.deepEqual([0, 0.03, 1, 3, 7, 10, 41, 0.0002].map(ceiling), [1, 0.05, 1, 5, 10, 10, 50, 0.0002]);
  assert.equal(bars([5, 0, 10], [5, 0, 0], 10, 100), "M0.1 0h.8v50h-.8zM2.1 0h.8v100h-.8z");
  assert.equal(line([1, 2, null, 4], 4, 100), "M0.5 75L1.5 50M3.2 0h.6");
  assert.equal(move("ArrowLeft", 0, 24), 0);
  assert.equal(move("ArrowRight", 3, 24), 4);
  assert.equal(move("End", 3, 24), 23);
  assert.equal(move("a", 3, 24), null);
});
