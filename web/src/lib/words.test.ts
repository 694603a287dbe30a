import assert from "node:assert/strict";
import { test } from "node:test";
import type { Run } from "../api/types";
import { ago, bytes, call, gist, money, span, troubles } from "./words";

test("lengths of time have two units at most", () => {
  assert.deepEqual([80, 1200, 12_400, 61_000, 600_000, 3_700_000, 200_000_000].map(span), ["80 ms", "1.2 s", "12 s", "1 m 1 s", "10 m", "1 h 1 m", "2 d"]);
  assert.deepEqual(
    [1000, 5000, 7_200_000].map((ms) => ago(0, ms)),
    ["now", "5 s ago", "2 h ago"],
  );
});

test("small amounts keep their digits", () => {
  assert.deepEqual([null, 0, 0.0004, 0.021, 3].map(money), ["", "$0", "$0.0004", "$0.021", "$3.00"]);
  assert.deepEqual([999, 1500, 2e6].map(bytes), ["999 B", "1.5 KB", "2.0 MB"]);
});

test("a call is one line", () => {
  assert.equal(call("refund", { amount: 240, order: "A-17" }), "refund(amount 240, order A-17)");
  assert.equal(call("refund", null), "refund(…)");
  assert.equal(call("say", { text: "x".repeat(100) }, 10), "say(text xxxx…)");
});

const run = (more: Partial<Run>): Run =>
  ({ status: "completed", output: null, structured_output: null, error: null, reason: null, turn_count: 0, transition: { reason: "", detail: "", turn: 0, version: 1, at: null }, ...more }) as Run;

test("the gist of a run is what matters about it", () => {
  assert.deepEqual(gist(run({ output: "# **Done**\nmore" }), 0), { lead: "", text: "Done" });
  assert.deepEqual(gist(run({ status: "failed", error: { code: "model_error", message: "refused" } }), 0), { lead: "model error", text: "refused" });
  const waiting = {
    reason: "waiting_approval",
    since: null,
    expires_at: null,
    question: null,
    calls: [{ id: "c", tool: "refund", arguments: { amount: 1 }, message: "", needs: "approval" as const, risk: "pays" as const, run_id: null }],
  };
  assert.deepEqual(gist(run({ status: "waiting", waiting }), 0), { lead: "approve · pays", text: "refund(amount 1)" });
});

test("troubles are counted, and a limit is near only while the run goes on", () => {
  const trouble = { tool_errors: 2, model_retries: 1, recovered: 0, hook_errors: 0, limits: ["cost_usd"] };
  assert.deepEqual(troubles(run({ trouble })), ["2 tool calls failed", "1 model call repeated"]);
  assert.equal(troubles(run({ status: "running", trouble })).at(-1), "near its limit of cost usd");
});
