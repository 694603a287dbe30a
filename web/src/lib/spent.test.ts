import assert from "node:assert/strict";
import { test } from "node:test";
import { costFact, percent, sumOf } from "./spent";

test("an unknown cost is not zero", () => {
  assert.equal(sumOf([]), null);
  assert.equal(sumOf([null, null]), null);
  assert.equal(sumOf([null, 0]), 0);
  assert.equal(sumOf([0.25, null, 0.5]), 0.75);
  const money = (usd: number): string => `$${usd}`;
  assert.equal(costFact(null, null, money), "");
  assert.equal(costFact(null, 0.5, money), "cost unknown, limit $0.5");
  assert.equal(costFact(0.1, null, money), "$0.1");
  assert.equal(costFact(0, 0.5, money), "$0 of $0.5");
});

test("more than a limit is more than 100 %", () => {
  assert.equal(percent(1.15), "115 %");
  assert.equal(percent(1), "100 %");
  assert.equal(percent(0.004), "0 %");
});
