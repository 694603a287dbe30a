import assert from "node:assert/strict";
import { test } from "node:test";
import { changes, violations } from "./schema";

const schema = { type: "object", required: ["amount"], additionalProperties: false, properties: { amount: { type: "integer", minimum: 1 }, items: { type: "array", items: { enum: ["a", "b"] } } } };

test("what a schema cannot allow is named with its place", () => {
  assert.deepEqual(violations(schema, { amount: 2, items: ["a"] }), []);
  assert.deepEqual(violations(schema, { amount: 0, items: ["c"], more: 1 }), ["amount must be at least 1", 'items[0] must be one of "a", "b"', "more is not known"]);
  assert.deepEqual(violations(schema, {}), ["amount is missing"]);
  assert.deepEqual(violations(schema, "x"), ["the arguments must be object, not string"]);
});

test("what is not understood is let through", () => {
  assert.deepEqual(violations({ anyOf: [{ type: "string" }] }, 1), []);
  assert.deepEqual(violations(undefined, 1), []);
});

test("changes name the places that differ", () => {
  assert.deepEqual(changes({ a: 1, b: { c: [1] }, d: 1 }, { a: 1, b: { c: [2] }, e: null }), [
    { path: "b.c", from: [1], to: [2] },
    { path: "d", from: 1 },
    { path: "e", to: null },
  ]);
});
