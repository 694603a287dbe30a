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

const shortest = 5000; // a pause that is shown as it is, however little work there is

export function scaleOf(lanes: Lane[], start: number, now: number): Scale {
  const busy: [number, number][] = [];
  for (const l of lanes) for (const b of l.bars) if (b.kind !== "wait" && b.kind !== "queue" && b.kind !== "retry" && b.kind !== "lost") busy.push([b.from, b.to ?? now]);
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
  // A pause becomes at most as wide as a quarter of all work, or some seconds if that is more.
  const most = Math.max(shortest, active / 4);
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

export interface Tick {
  at: number;
  x: number; // share of the whole
  label: string;
}

const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3, 3600e3, 7200e3, 21_600e3, 43_200e3, 86_400e3];

// ticksOf marks the time since the start, at least apart of the whole from each other. Compressed
// pauses have none: the next tick says how long they were.
export function ticksOf(scale: Scale, start: number, end: number, apart: number): Tick[] {
  const step = steps.find((s) => s >= scale.total * apart) ?? Math.ceil((scale.total * apart) / 86_400e3) * 86_400e3;
  const out: Tick[] = [];
  let gap = 0;
  let last = -1;
  for (let t = start; t <= end; t += step) {
    while (scale.gaps[gap] && scale.gaps[gap]!.to <= t) gap++;
    const g = scale.gaps[gap];
    if (g && t > g.from) {
      t = start + Math.floor((g.to - start) / step) * step; // the loop goes on behind the pause
      continue;
    }
    const x = scale.x(t) / scale.total;
    if (last >= 0 && x - last < apart) continue;
    out.push({ at: t, x, label: elapsed(t - start) });
    last = x;
  }
  return out;
}

// elapsed is a time on the axis, exactly: ticks stand at whole steps.
function elapsed(ms: number): string {
  if (ms === 0) return "0";
  if (ms < 1000) return `${ms} ms`;
  if (ms < 60e3) return `${ms / 1000} s`;
  const [d, h, m, s] = [Math.floor(ms / 86_400e3), Math.floor(ms / 3600e3) % 24, Math.floor(ms / 60e3) % 60, (ms / 1000) % 60];
  return [d && `${d} d`, h && `${h} h`, m && `${m} m`, s && `${s} s`].filter(Boolean).slice(0, 2).join(" ");
}
