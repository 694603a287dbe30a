import assert from "node:assert/strict";
import { test } from "node:test";
import { grow, noBlocks } from "./blocks";
import { html } from "./markdown";

// Each takes the parser seconds or minutes, more memory than a page has, or all of its stack.
const costly: Record<string, string> = {
  stars: "*a**a".repeat(39_000),
  underscores: "_a__a".repeat(14_400),
  "nested marks": "*a ".repeat(9_000) + "a* ".repeat(9_000),
  "three stars": "***a** ".repeat(25_000),
  "links that do not end": "[a](".repeat(47_000) + ")",
  "links in links": "[".repeat(95_000) + "a](b)".repeat(19_000),
  "an address with brackets": "http://a.b/" + "(".repeat(90_000) + ")".repeat(90_000),
  addresses: "a.".repeat(90_000) + "@b",
  "a list with a long item": "- ".repeat(200) + "a\n".repeat(95_000),
  "quotes in quotes": ">".repeat(200) + "a\n" + "b\n".repeat(95_000),
  "deep quotes": "> ".repeat(5_000) + "a",
  "a wide table": "|a".repeat(300) + "\n" + "|-".repeat(300) + "\n" + "|\n".repeat(90_000),
  "one address in many links": `[a]: /${"x".repeat(19_000)}\n\n${"[a] ".repeat(40_000)}`,
  length: "a **b**\n\n".repeat(23_000),
};

for (const [what, text] of Object.entries(costly))
  test(`a text that takes too long is not laid out: ${what}`, () => {
    assert.equal(html(text), null);
    assert.equal(grow(noBlocks, text + "\n").tail.length <= text.length + 1, true);
  });

test("ordinary long texts are laid out", () => {
  const item = "- **Item**: some _words_ and `code_with_underscores`, see [the page](https://example.com/a_b_c)\n";
  assert.equal(html(item.repeat(2_000))?.match(/<strong>Item<\/strong>/g)?.length, 2_000);
  const paragraph = "A **bold** word, an *emphasis*, `code` and a [link](https://example.com) in a long sentence. ".repeat(30) + "\n\n";
  assert.equal(html(paragraph.repeat(60))?.match(/<em>/g)?.length, 1_800);
  assert.equal(html("```go\n" + "\tx := *y // - a | b\n".repeat(9_000) + "```\n")?.startsWith("<pre>"), true);
  const row = "| 1 | **two** | three |\n";
  assert.equal(html("| a | b | c |\n|---|---|---|\n" + row.repeat(2_000))?.match(/<tr>/g)?.length, 2_001);
});

test("HTML in a text is text", () => {
  assert.equal(html("a <b onclick=x>b</b>"), "<p>a &#60;b onclick=x&#62;b&#60;/b&#62;</p>\n");
});
