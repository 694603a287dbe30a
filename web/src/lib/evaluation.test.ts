import assert from "node:assert/strict";
import { test } from "node:test";
import { casesOf, verdict } from "./evaluation";

const result = (name: string, version: string, repeat: number, ...failures: string[]) => ({
  case: name,
  version,
  repeat,
  run_id: "run_" + name + version + repeat,
  status: "completed",
  turns: 1,
  tokens: 1,
  cost_usd: 0,
  seconds: 1,
  failures,
});

test("more passes are better, and less of any other figure", () => {
  const say = (figure: string, first: number, second: number, within_chance = false) => verdict({ figure, first, second, p: 0, within_chance }, "a@2").text;
  assert.equal(say("passed", 1, 0), "a@2 is better");
  assert.equal(say("passed", 0, 1), "a@2 is worse");
  assert.equal(say("cost_usd", 1, 2), "a@2 is better");
  assert.equal(say("seconds", 2, 1), "a@2 is worse");
  assert.equal(say("turns", 2, 1, true), "within chance");
  assert.equal(say("turns", 1, 1, true), "the same");
});

test("a case has its runs by version, and those that failed", () => {
  const all = casesOf([result("b", "a@2", 2), result("b", "a@2", 1, "no"), result("a", "a@2", 1), result("b", "a@1", 1, "never"), result("b", "other@1", 1)], ["a@2", "a@1"]);
  assert.deepEqual(
    all.map((c) => c.name),
    ["b", "a"],
  );
  assert.deepEqual(
    all[0]!.runs.map((runs) => runs.map((r) => r.repeat)),
    [[1, 2], [1]],
  );
  assert.deepEqual(
    all[0]!.failed.map((r) => r.failures),
    [["no"], ["never"]],
  );
  assert.deepEqual([all[1]!.runs[1], all[1]!.failed], [[], []]);
});

test("names of cases are not those of the language", () => {
  assert.deepEqual(
    casesOf([result("__proto__", "a@1", 1), result("constructor", "a@1", 1)], ["a@1"]).map((c) => c.name),
    ["__proto__", "constructor"],
  );
});
