import assert from "node:assert/strict";
import { test } from "node:test";
import { diff, folded } from "./diff";

const text = (a: string, b: string): string[] => diff(a, b).map((l) => ({ same: " ", old: "-", new: "+", gap: "~" })[l.kind] + l.text);

test("lines that both have stay, in their order", () => {
  assert.deepEqual(text("a\nb\nc\nd\n", "a\nx\nc\ny\nd\n"), [" a", "-b", "+x", " c", "+y", " d"]);
  assert.deepEqual(text("same", "same\n"), [" same"]);
});

test("each line has its numbers in both texts", () => {
  assert.deepEqual(
    diff("a\nb", "b\nc").map((l) => [l.a, l.b]),
    [
      [1, undefined],
      [2, 1],
      [undefined, 2],
    ],
  );
});

test("a middle that is too long to compare counts as changed as a whole", () => {
  const many = (of: string): string => ["head", ...Array.from({ length: 2100 }, (_, i) => `${of}${i}`), "tail"].join("\n");
  const lines = diff(many("a"), many("b"));
  assert.equal(lines.filter((l) => l.kind === "same").length, 2);
  assert.equal(lines.filter((l) => l.kind === "old").length, 2100);
});

test("what is the same is left out, but for lines around a change", () => {
  const before = Array.from({ length: 20 }, (_, i) => `line ${i}`);
  const after = before.map((l, i) => (i === 10 ? "changed" : l));
  assert.deepEqual(
    folded(diff(before.join("\n"), after.join("\n")), 1).map((l) => l.text),
    ["9 lines the same", "line 9", "line 10", "changed", "line 11", "8 lines the same"],
  );
  assert.deepEqual(folded(diff("a", "a")), []);
});
