import assert from "node:assert/strict";
import { test } from "node:test";
import type { Event, Message } from "../api/types";
import { endsWithAnswer } from "./history";

const message = (id: string, role: Message["role"]): Message => ({ id, role, turn: 0, parts: [] }) as unknown as Message;
const entry = (type: string, turn: number, more: Partial<Event>): Event => ({ type, turn, ...more }) as Event;
const log = [
  entry("run.submitted", 0, { messages: [message("m1", "user")] }),
  entry("model.message", 1, { message: message("m2", "assistant") }),
  entry("tool.finished", 1, { message: message("m3", "tool") }),
  entry("transition", 1, {}),
  entry("model.message", 2, { message: message("m4", "assistant") }),
  entry("run.finished", 2, {}),
];

test("a fork needs a message behind an answer of the model", () => {
  assert.equal(endsWithAnswer(log, 0), false);
  assert.equal(endsWithAnswer(log, 1), false);
  assert.equal(endsWithAnswer(log, 2), true);
});

test("a message that continued the run is not shared with its turn", () => {
  const more = [...log, entry("transition", 2, { messages: [message("m5", "user")] }), entry("model.message", 3, { message: message("m6", "assistant") })];
  assert.equal(endsWithAnswer(more, 2), true);
  assert.equal(endsWithAnswer(more, 3), true);
});

test("what was withdrawn does not count", () => {
  assert.equal(endsWithAnswer([...log, entry("message.tombstoned", 2, { message_ids: ["m4"] })], 2), false);
});

test("the gateway refuses a turn that there is not", () => {
  assert.equal(endsWithAnswer(log, 3), false);
  assert.equal(endsWithAnswer([], 0), false);
});
