import assert from "node:assert/strict";
import { test } from "node:test";
import { escaped, show, visible } from "./visible";
import { call } from "./words";

test("characters that hide or reorder text are shown", () => {
  assert.equal(visible("pay \u202e001\u202c to \u2066bob\u2069"), "pay ⟦U+202E⟧001⟦U+202C⟧ to ⟦U+2066⟧bob⟦U+2069⟧");
  assert.equal(visible("a\u200bb\u200d\u00ad\u200f\ufeff\u2028\u0000\u3164"), "a⟦U+200B⟧b⟦U+200D⟧⟦U+00AD⟧⟦U+200F⟧⟦U+FEFF⟧⟦U+2028⟧⟦U+0000⟧⟦U+3164⟧");
  assert.equal(visible("tag \u{e0041}"), "tag ⟦U+E0041⟧");
  assert.equal(visible("\ufe0f a\ufe0f \r"), "⟦U+FE0F⟧ a⟦U+FE0F⟧ ⟦U+000D⟧");
  assert.equal(visible("ا\u200c b\u200cا \u200d❤"), "ا⟦U+200C⟧ b⟦U+200C⟧ا ⟦U+200D⟧❤");
});

test("ordinary text stays as it is", () => {
  const text = "Grüße, مرحبا, שלום\n\t日本語 ❤️ 1️⃣ {} 👩‍💻 🤷🏽‍♂️ 👨‍👩‍👧 می‌خواهم क्‍ष\r\n";
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

test("what the page draws shows them", () => {
  const text = { type: null, props: "\u202egnimocni\u200b" as unknown };
  show(text);
  assert.equal(text.props, "⟦U+202E⟧gnimocni⟦U+200B⟧");
  const element = { type: "a", props: { title: "a\u202e", "aria-label": "b\u200b", href: "c\u202e", value: "d\u202e", tabIndex: 0 } };
  show(element);
  assert.deepEqual(element.props, { title: "a⟦U+202E⟧", "aria-label": "b⟦U+200B⟧", href: "c\u202e", value: "d\u202e", tabIndex: 0 });
  const component = { type: () => null, props: { title: "a\u202e" } };
  show(component);
  assert.equal(component.props.title, "a\u202e");
});
