import assert from "node:assert/strict";
import { test } from "node:test";
import { modesOf, refusalOf } from "./modes";

test("a run that has not ended has four modes, and an ended one has none", () => {
  for (const s of ["queued", "running", "waiting"] as const)
    assert.deepEqual(
      modesOf(s).map((m) => m.mode),
      ["enqueue", "interrupt", "rollback", "reject"],
    );
  for (const s of ["completed", "failed", "incomplete", "cancelled"] as const) assert.deepEqual(modesOf(s), []);
});

test("a refusal never offers the mode that was refused for what it is", () => {
  assert.deepEqual(refusalOf("run_busy", "reject")!.modes, ["enqueue", "interrupt"]);
  assert.deepEqual(refusalOf("run_busy", "rollback")!.modes, ["rollback", "interrupt"]);
  assert.deepEqual(refusalOf("effects_started", "rollback")!.modes, ["interrupt", "enqueue"]);
  assert.equal(refusalOf("inbox_full", "enqueue"), null);
});
