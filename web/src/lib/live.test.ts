import assert from "node:assert/strict";
import { test } from "node:test";
import type { Event } from "../api/types";
import { begun, broken, heard, settled, working } from "./live";

const event = (type: string, more: Partial<Event> = {}): Event => ({ seq: null, run_id: "run_1", type, turn: 1, attempt: 1, at: "2026-01-01T00:00:00Z", ...more });
const started = begun(event("turn.started", { worker: "worker-1" }));

test("texts and arguments grow with their deltas", () => {
  let live = heard(started, event("model.delta", { delta: { text: "One " } }));
  live = heard(live, event("model.delta", { delta: { text: "two." } }));
  live = heard(live, event("model.delta", { delta: { call_id: "c1", name: "pay", arguments: '{"a":' } }));
  live = heard(live, event("model.delta", { delta: { call_id: "c1", arguments: "1}" } }));
  assert.equal(live.text, "One two.");
  assert.deepEqual(live.calls, [{ id: "c1", name: "pay", arguments: '{"a":1}', since: "", progress: "" }]);
});

test("the first piece of a response replaces what was said before", () => {
  const live = heard(heard(started, event("model.delta", { delta: { text: "Old" } })), event("model.delta", { first: true, delta: { text: "New" } }));
  assert.equal(live.text, "New");
});

test("a text whose beginning was not received says so", () => {
  assert.equal(heard(null, event("model.delta", { delta: { text: "end" } })).cut, true);
  assert.equal(heard(started, event("model.delta", { attempt: 2, delta: { text: "end" } })).cut, true);
  const away = broken(heard(started, event("model.delta", { delta: { text: "It costs" } })));
  assert.deepEqual([away.text, away.cut], ["", true]);
});

test("what is committed is live no longer", () => {
  const live = heard(heard(started, event("model.delta", { delta: { text: "x" } })), event("tool.started", { call_id: "c1", name: "pay" }));
  assert.equal(settled(live, event("model.message"))?.text, "");
  assert.equal(settled(live, event("model.message"))?.calls.length, 1);
  assert.deepEqual(settled(live, event("tool.finished", { call_id: "c1" }))?.calls, []);
  assert.equal(settled(live, event("run.waiting")), null);
  assert.equal(settled(live, event("transition", { reason: "recovered" })), live);
  assert.equal(settled(live, event("transition", { reason: "next_turn" })), null);
});

test("a text that grows is no news for the timeline, a call is", () => {
  const text = heard(started, event("model.delta", { delta: { text: "x" } }));
  assert.equal(working(started, text), started);
  const call = heard(text, event("tool.started", { call_id: "c1" }));
  assert.equal(working(started, call), call);
  assert.equal(working(started, null), null);
});
