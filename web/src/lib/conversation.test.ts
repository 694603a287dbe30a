import assert from "node:assert/strict";
import { test } from "node:test";
import type { Event, Message, Part } from "../api/types";
import { conversationOf, type Item } from "./conversation";

let seq = 0;
const event = (type: string, more: Partial<Event> = {}): Event => ({ seq: ++seq, run_id: "run_1", type, turn: 1, attempt: 1, at: "2026-01-01T00:00:00Z", ...more });
const message = (id: string, role: Message["role"], ...parts: Part[]): Message => ({ id, role, turn: 1, at: null, parts });
const says = (text: string): Part => ({ type: "text", text });
const text = (i: Item): string => i.text ?? i.message?.parts?.map((p) => p.text ?? p.name ?? p.content).join(" ") ?? "";

test("a result stands with its call, of whichever turn", () => {
  const call: Part = { type: "tool_call", id: "c1", name: "pay" };
  const items = conversationOf([
    event("run.submitted", { messages: [message("m1", "user", says("Pay."))] }),
    event("model.message", { message: message("m2", "assistant", call) }),
    event("tool.finished", { call_id: "c1", message: message("m3", "tool", { type: "tool_result", call_id: "c1", content: "first" }) }),
    event("model.message", { turn: 2, message: message("m4", "assistant", call) }),
    event("tool.finished", { turn: 2, call_id: "c1", message: message("m5", "tool", { type: "tool_result", call_id: "c1", content: "second" }) }),
  ]);
  assert.deepEqual(items.map(text), ["Pay.", "pay", "pay"]);
  assert.deepEqual(
    items.map((i) => i.results?.get("c1")?.message?.parts?.[0]?.content),
    [undefined, "first", "second"],
  );
});

test("what was withdrawn is marked", () => {
  const items = conversationOf([event("model.message", { message: message("m1", "assistant", says("Half")) }), event("message.tombstoned", { message_ids: ["m1"] })]);
  assert.deepEqual(
    items.map((i) => [i.kind, text(i)]),
    [["gone", "Half"]],
  );
});

test("notes say what happened between messages", () => {
  const items = conversationOf([
    event("approval.decided", {
      call_id: "c1",
      name: "refund",
      approval: { decision: "approve", shown: { amount: 240 }, arguments: { amount: 100 } },
      by: { principal: "ana", tenant: "acme", via: "key" },
    }),
    event("transition", { reason: "approved" }),
    event("transition", { reason: "recovered", worker: "worker-1", at: "2026-01-01T00:00:02Z" }),
    event("agent.handoff", { handoff: { from: { name: "a", version: 1 }, to: { name: "b", version: 2 } } }),
    event("run.finished", { status: "failed", error: { code: "model_error", message: "no answer" } }),
  ]);
  assert.deepEqual(items.map(text), [
    "refund approved with amount 240 → 100",
    "A worker died; worker-1 continued 2.0 s after the last commit. Journaled results were not requested again.",
    "a@1 handed the run to b@2",
    "model error: no answer",
  ]);
  assert.equal(items[0]!.by, "ana");
});

test("a fork names its source, whatever its detail says", () => {
  const fork = (changed?: string[]): string =>
    text(conversationOf([event("run.submitted", { reason: "forked", detail: "in other words", forked_from: { run_id: "run_0", turn: 2, ...(changed ? { changed } : {}) } })])[0]!);
  assert.equal(fork(), "Forked from run_0 turn 2");
  assert.equal(fork(["the variables"]), "Forked from run_0 turn 2, changed: the variables");
});
