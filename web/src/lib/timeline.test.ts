import assert from "node:assert/strict";
import { test } from "node:test";
import type { Event, Run } from "../api/types";
import { begun, heard } from "./live";
import { type Lane, lanesOf } from "./timeline";
import { scaleOf, ticksOf } from "./timescale";

const start = Date.parse("2026-01-01T00:00:00Z");
const at = (ms: number): string => new Date(start + ms).toISOString();
const event = (type: string, ms: number, more: Partial<Event> = {}): Event => ({ seq: 1 + ms, run_id: "run_1", type, turn: 1, attempt: 1, at: at(ms), ...more });
const called = (id: string): Partial<Event> => ({ message: { id: "m" + id, role: "assistant", turn: 1, at: null, parts: [{ type: "tool_call", id, name: "lookup" }] } });
const run = (more: Partial<Run> = {}): Run => ({ id: "run_1", status: "completed", turn_count: 1, created_at: at(0), finished_at: at(5000), ...more }) as Run;
const none = { live: null, starts: new Map<string, { at: number; worker: string }>(), children: [] as Run[], below: new Map<string, Run[]>() };
const shown = (lanes: Lane[]): unknown[] => lanes.flatMap((l) => l.bars.map((b) => [l.label, b.kind, b.from - start, b.to === null ? null : b.to - start]));

test("a turn has its wait for a worker, its model and its tools", () => {
  const lanes = lanesOf({
    ...none,
    run: run(),
    entries: [
      event("run.submitted", 0),
      event("model.message", 900, called("c1")),
      event("tool.finished", 1000, { call_id: "c1", name: "lookup", duration_ms: 80 }),
      event("run.finished", 1100, { duration_ms: 1000 }),
    ],
  });
  assert.deepEqual(shown(lanes), [
    ["turn 1", "queue", 0, 100],
    ["turn 1", "model", 100, 900],
    ["turn 1", "tool", 920, 1000],
  ]);
});

test("a wait ends where the run continues", () => {
  const entries = [
    event("run.submitted", 0),
    event("model.message", 100, called("c1")),
    event("run.waiting", 110, { reason: "waiting_approval", duration_ms: 110, waiting: { reason: "waiting_approval", since: null, expires_at: null, calls: [], question: null } }),
  ];
  assert.deepEqual(shown(lanesOf({ ...none, run: run({ status: "waiting", finished_at: null }), entries })).at(-1), ["turn 1", "wait", 110, null]);
  entries.push(event("transition", 60_000, { reason: "approved" }));
  assert.deepEqual(shown(lanesOf({ ...none, run: run({ status: "queued", finished_at: null }), entries })).at(-1), ["turn 1", "wait", 110, 60_000]);
});

test("a worker that died is named", () => {
  const lanes = lanesOf({
    ...none,
    starts: new Map([["1/1", { at: start, worker: "worker-3" }]]),
    run: run({ status: "running", finished_at: null }),
    entries: [event("run.submitted", 0), event("transition", 2000, { reason: "recovered", attempt: 2, worker: "worker-1" })],
  });
  const lost = lanes[0]!.bars.find((b) => b.kind === "lost");
  assert.equal(lost?.label, "worker-3 died, worker-1 goes on");
});

test("what a worker is at has no end yet", () => {
  const live = heard(begun(event("turn.started", 100)), event("tool.started", 200, { call_id: "c1", name: "lookup" }));
  assert.deepEqual(shown(lanesOf({ ...none, live, run: run({ status: "running", finished_at: null }), entries: [event("run.submitted", 0)] })), [["turn 1", "tool", 200, null]]);
});

test("children stand below the turn that started them", () => {
  const child = (id: string, call: string): Run =>
    ({ id, agent: id, status: "completed", created_at: at(300), started_at: at(300), finished_at: at(400), parent: { run_id: "run_1", call_id: call, depth: 1 } }) as Run;
  const lanes = lanesOf({
    ...none,
    run: run(),
    entries: [event("run.submitted", 0), event("model.message", 100, called("c1")), event("transition", 110), event("model.message", 200, { turn: 2 }), event("run.finished", 210, { turn: 2 })],
    children: [child("helper", "c1")],
    below: new Map([["helper", [child("grandchild", "x")]]]),
  });
  assert.deepEqual(
    lanes.map((l) => [l.label, l.depth]),
    [
      ["turn 1", 0],
      ["helper", 1],
      ["grandchild", 2],
      ["turn 2", 0],
    ],
  );
});

const lane = (...bars: [string, number, number][]): Lane => ({
  key: "t1",
  label: "turn 1",
  depth: 0,
  turn: 1,
  bars: bars.map(([kind, from, to]) => ({ kind: kind as "model", from: start + from, to: start + to, label: "", tie: "", at: "" })),
});

test("a long wait is compressed, in order, and work is not", () => {
  const day = 86_400_000;
  const scale = scaleOf([lane(["model", 0, 1000], ["wait", 1000, day], ["model", day, day + 1000])], start, start + day + 1000);
  assert.equal(scale.total, 7000);
  assert.deepEqual(
    [0, 1000, day, day + 500, day + 1000].map((t) => scale.x(start + t)),
    [0, 1000, 6000, 6500, 7000],
  );
  assert.deepEqual(
    scale.gaps.map((g) => [g.from - start, g.to - start]),
    [[1000, day]],
  );
});

test("ticks stand at whole steps, and none in a compressed wait", () => {
  const scale = scaleOf([lane(["model", 0, 10_000], ["wait", 10_000, 3_600_000], ["model", 3_600_000, 3_610_000])], start, start + 3_610_000);
  const ticks = ticksOf(scale, start, start + 3_610_000, 0.15);
  assert.equal(ticks[0]?.label, "0");
  for (const t of ticks) assert.equal(t.at - start <= 10_000 || t.at - start >= 3_600_000, true);
  assert.equal(ticks.at(-1)?.label, "1 h 10 s");
  ticks.forEach((t, i) => i && assert.equal(t.x - ticks[i - 1]!.x >= 0.15, true));
});
