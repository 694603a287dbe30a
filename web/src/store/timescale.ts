// Where an instant is on the timeline. Long times in which nothing happens are compressed:
// a wait of a day is as wide as one of some seconds, and says its length.
import type { Lane } from "./timeline";

interface Piece {
  from: number;
  to: number;
  x: number; // where it begins, in compressed milliseconds
  width: number;
}

export interface Scale {
  total: number; // compressed milliseconds
  x: (t: number) => number;
  gaps: Piece[]; // those that are compressed
}

const shortest = 3000; // a pause that is shown as it is, beside enough work
const idle = 1000; // how wide a pause is in which there is no work at all

export function scaleOf(lanes: Lane[], start: number, now: number): Scale {
  const busy: [number, number][] = [];
  for (const l of lanes) for (const b of l.bars) if (b.kind !== "wait" && b.kind !== "retry" && b.kind !== "lost") busy.push([b.from, b.to ?? now]);
  let end = start + 1;
  for (const l of lanes) for (const b of l.bars) end = Math.max(end, b.to ?? now);
  busy.sort((a, b) => a[0] - b[0]);
  const union: [number, number][] = [];
  for (const [a, b] of busy) {
    const last = union.at(-1);
    if (last && a <= last[1]) last[1] = Math.max(last[1], b);
    else union.push([a, b]);
  }
  const active = union.reduce((n, [a, b]) => n + (b - a), 0);
  // A pause becomes at most as wide as a tenth of all work, or some seconds if that is more,
  // and never hides the work beside it.
  const most = Math.min(Math.max(shortest, active / 10), active / 2 || idle);
  const pieces: Piece[] = [];
  let x = 0;
  let t = start;
  const add = (to: number, squeeze: boolean): void => {
    if (to <= t) return;
    const width = squeeze ? Math.min(to - t, most) : to - t;
    pieces.push({ from: t, to, x, width });
    x += width;
    t = to;
  };
  for (const [a, b] of union) {
    add(a, true);
    add(b, false);
  }
  add(end, true);
  const total = Math.max(x, 1);
  return {
    total,
    gaps: pieces.filter((p) => p.to - p.from > p.width + 1),
    x: (at) => {
      if (at <= start) return 0;
      let [lo, hi] = [0, pieces.length - 1];
      while (lo < hi) {
        const mid = (lo + hi) >> 1;
        if (pieces[mid]!.to < at) lo = mid + 1;
        else hi = mid;
      }
      const p = pieces[lo];
      if (!p) return total;
      return Math.min(p.x + p.width, p.x + ((at - p.from) / (p.to - p.from)) * p.width);
    },
  };
}
