import assert from "node:assert/strict";
import { test } from "node:test";
import { ticked } from "./ticks";

const shown = (text: string): string =>
  ticked(text)
    .map((p) => (p.code ? `[${p.text}]` : p.text))
    .join("");

test("code stands in backticks", () => {
  assert.equal(shown("see in `turnpike show run_01` and in the logs"), "see in [turnpike show run_01] and in the logs");
  assert.equal(shown("`a` and `b`"), "[a] and [b]");
  assert.equal(shown("none"), "none");
  assert.equal(shown(""), "");
});

test("a backtick without an end is a character", () => {
  assert.equal(shown("it`s"), "it`s");
  assert.equal(shown("`a` it`s"), "[a] it`s");
});
