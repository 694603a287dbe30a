import assert from "node:assert/strict";
import { test } from "node:test";
import { gather } from "./gather";

function clock(): { frames: Set<() => void>; later: (f: () => void) => () => void; tick: () => void } {
  const frames = new Set<() => void>();
  const later = (f: () => void): (() => void) => {
    frames.add(f);
    return () => frames.delete(f);
  };
  const tick = (): void => {
    for (const f of [...frames]) {
      frames.delete(f);
      f();
    }
  };
  return { frames, later, tick };
}

test("what comes between two frames is handed on once", () => {
  const { later, tick } = clock();
  const got: number[][] = [];
  const g = gather<number>(later, (n) => got.push(n));
  g.add(1);
  g.add(2);
  tick();
  tick();
  g.add(3);
  g.flush();
  tick();
  assert.deepEqual(got, [[1, 2], [3]]);
});

test("what was dropped is never handed on, and its frame is cancelled", () => {
  const { frames, later, tick } = clock();
  const got: number[][] = [];
  const g = gather<number>(later, (n) => got.push(n));
  g.add(1);
  g.drop();
  assert.equal(frames.size, 0);
  tick();
  g.add(2);
  tick();
  assert.deepEqual(got, [[2]]);
});
