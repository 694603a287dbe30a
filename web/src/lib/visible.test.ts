import assert from "node:assert/strict";
import { test } from "node:test";
import { escaped, visible } from "./visible";
import { call } from "./words";

test("characters that hide or reorder text are shown", () => {
  assert.equal(visible("pay \u202e001\u202c to \u2066bob\u2069"), "pay ⟦U+202E⟧001⟦U+202C⟧ to ⟦U+2066⟧bob⟦U+2069⟧");
  assert.equal(visible("a\u200bb\u200d\u00ad\u200f\ufeff\u2028\u0000\u3164"), "a⟦U+200B⟧b⟦U+200D⟧⟦U+00AD⟧⟦U+200F⟧⟦U+FEFF⟧⟦U+2028⟧⟦U+0000⟧⟦U+3164⟧");
  assert.equal(visible("tag \u{e0041}"), "tag ⟦U+E0041⟧");
});

test("ordinary text stays as it is", () => {
  const text = "Grüße, مرحبا, שלום\n\t日本語 ❤️ {}";
  assert.equal(visible(text), text);
});

test("escaped JSON means the same", () => {
  const value = { "to\u202e": "bob\u{e0041}\u200b", lines: "a\nb" };
  const text = escaped(JSON.stringify(value, null, 2));
  assert.deepEqual(JSON.parse(text), value);
  assert.equal(text.includes('"to\\u202e": "bob\\udb40\\udc41\\u200b"'), true);
});

test("a call shows them", () => {
  assert.equal(call("pay\u202e", { to: "\u2066bob" }), "pay⟦U+202E⟧(to ⟦U+2066⟧bob)");
});
