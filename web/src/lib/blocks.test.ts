import assert from "node:assert/strict";
import { test } from "node:test";
import { marked } from "marked";
import { type Blocks, grow, isPlain, noBlocks } from "./blocks";

const text = `# Title

A paragraph
of two lines.

- one

- two

  of two paragraphs
- three

\`\`\`go
func main() {

}
\`\`\`
Directly behind.

| a | b |
|---|---|
| 1 | 2 |

    indented

    more

> quoted

Heading
---

1. first
2. second

The end.
`;

const html = (b: Blocks): string => [...b.done, b.tail].map((t) => marked.parse(t, { async: false })).join("");

test("finished blocks never change, and the whole is the text", () => {
  let b = noBlocks;
  for (let i = 0; i <= text.length; i++) {
    const next = grow(b, text.slice(0, i));
    b.done.forEach((d, k) => assert.equal(next.done[k], d));
    assert.equal(next.read + next.tail, text.slice(0, i));
    b = next;
  }
  assert.equal(html(b), marked.parse(text, { async: false }));
  assert.equal(b.done.length, 9);
  assert.equal(b.tail.trim(), "The end.");
});

test("only what is not finished is looked at again", () => {
  const paragraphs = Array.from({ length: 500 }, (_, i) => `Paragraph ${i}.\n\n`);
  let b = noBlocks;
  let all = "";
  for (const p of paragraphs) {
    b = grow(b, (all += p));
    assert.equal(b.tail.length <= 2 * p.length + 2, true);
  }
  assert.equal(b.done.length, 499);
});

test("another text begins at its beginning", () => {
  const b = grow(noBlocks, "One.\n\nTwo.\n");
  assert.deepEqual(grow(b, "Uno.\n\nDos.\n").done, ["Uno.\n\n"]);
  assert.deepEqual(grow(b, ""), noBlocks);
});

test("a plain text is a paragraph for the parser too", () => {
  const marks = [
    "# a",
    "- a",
    "1. a",
    "1) a",
    "+ a",
    "> a",
    "    a",
    "a *b*",
    "_a_",
    "`a`",
    "~~a~~",
    "[a](b)",
    "![a](b)",
    "<b>",
    "a & b",
    "&amp;",
    "a\\*",
    "a | b",
    "a@b.org",
    "http://a.org",
    "see www.a.org",
    "WWW.a.org",
    "a\nb",
    "a\n===",
    "---",
    "===",
    "[ ] a",
    "",
  ];
  for (const t of marks) assert.equal(isPlain(t), false, t);
  for (const t of ["Step 12.", 'I look up the order A-17 (of 3.5 items), then: pay; right? “Yes” – it\'s 5 % "off".', "élan", "a - b + c = d # e > f".replace(">", "")]) {
    assert.equal(isPlain(t), true, t);
    assert.equal(marked.parse(t, { async: false }), `<p>${t.replace(/"/g, "&quot;").replace(/'/g, "&#39;")}</p>\n`);
  }
});
