import assert from "node:assert/strict";
import { test } from "node:test";
import type { JSONValue, Part } from "../api/types";
import { joined, sourcesOf } from "./sources";

const cites = (...citations: JSONValue[]): Part => ({ type: "text", text: "x", opaque: { citations } });

test("each source is listed once, with what was quoted", () => {
  assert.deepEqual(
    sourcesOf([
      cites({ type: "web_search_result_location", url: "https://example.com/lisbon", title: "Lisbon", cited_text: "Founded early. " }),
      { type: "text", text: "y" },
      cites(
        { url: "https://example.com/lisbon", title: "Lisbon", cited_text: "On seven hills." },
        { type: "char_location", document_title: "A report", cited_text: "" },
        { url: "https://example.com/lisbon", cited_text: "Founded early." },
      ),
    ]),
    [
      { title: "Lisbon", url: "https://example.com/lisbon", quotes: ["Founded early.", "On seven hills."] },
      { title: "A report", url: "", quotes: [] },
    ],
  );
});

test("an address that is not of the web is none", () => {
  assert.deepEqual(sourcesOf([cites({ url: "javascript:alert(1)", title: "T" }, { url: "javascript:alert(1)" }, null, "x", [])]), [{ title: "T", url: "", quotes: [] }]);
});

test("other opaque content has no sources", () => {
  assert.deepEqual(
    sourcesOf([
      { type: "text", opaque: "seal" },
      { type: "text", opaque: [1] },
      { type: "text", opaque: { citations: 1 } },
      { ...cites({ title: "T" }), type: "thinking" },
    ]),
    [],
  );
});

test("texts that follow each other are one, but for those of others", () => {
  const text = (t: string, more: Partial<Part> = {}): Part => ({ type: "text", text: t, ...more });
  assert.deepEqual(
    joined([text("Founded "), text("around 1200 BC"), text("said", { origin: "web" }), { type: "thinking" }, text("a"), text("b")]).map((p) => p.text),
    ["Founded around 1200 BC", "said", undefined, "ab"],
  );
});
