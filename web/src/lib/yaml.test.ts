import assert from "node:assert/strict";
import { test } from "node:test";
import { toYAML } from "./yaml";

test("values are written as a person would", () => {
  assert.equal(
    toYAML({ name: "support", limits: { max_turns: 4 }, tags: ["a", "b"], tools: [{ name: "refund", kind: "http" }], empty: {}, none: [], nothing: null }),
    "name: support\nlimits:\n  max_turns: 4\ntags: [a, b]\ntools:\n  - name: refund\n    kind: http\nempty: {}\nnone: []\nnothing: null\n",
  );
});

test("a text that YAML would read as something else is quoted", () => {
  for (const s of ["yes", "NULL", "12", "1.5", "", "a: b", "- a", "#x", "a ", "\u0085"]) assert.equal(/^".*"\n$/.test(toYAML(s)), true);
  assert.equal(toYAML("plain text"), "plain text\n");
});

test("a text of several lines stands in lines of its own, with its end", () => {
  assert.equal(toYAML({ a: "one\n\ntwo" }), "a: |-\n  one\n\n  two\n");
  assert.equal(toYAML({ a: "one\ntwo\n" }), "a: |\n  one\n  two\n");
  assert.equal(toYAML({ a: "one\n\n" }), "a: |+\n  one\n\n");
  assert.equal(toYAML({ a: " one\ntwo" }), 'a: " one\\ntwo"\n');
});
