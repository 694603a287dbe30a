import assert from "node:assert/strict";
import { test } from "node:test";
import { readSettings, settingsOf } from "./settings";

test("settings are what an author has set, and what this page does not know of", () => {
  const t = { name: "a", path: "/v1/hooks/a", status: { dead: 2 }, updated_at: "", updated_by: "", stream: "S", run: { agent: "a" }, later: 1 };
  assert.deepEqual(settingsOf(t), { stream: "S", run: { agent: "a" }, later: 1 });
});

test("a text that is not an object in JSON is refused with the reason", () => {
  assert.deepEqual(readSettings('{"stream": "S"}'), { settings: { stream: "S" } });
  const fault = (text: string): boolean => "fault" in readSettings(text);
  assert.deepEqual(["[]", "null", "3", "{", ""].map(fault), [true, true, true, true, true]);
});
