// The difference of two texts, line by line.
export interface Line {
  kind: "same" | "old" | "new" | "gap";
  text: string;
  a?: number; // its number in the old text, from 1
  b?: number;
}

const most = 4_000_000; // comparisons; beyond that the middle counts as changed as a whole

export function diff(a: string, b: string): Line[] {
  const [x, y] = [a.replace(/\n$/, "").split("\n"), b.replace(/\n$/, "").split("\n")];
  let head = 0;
  while (head < x.length && head < y.length && x[head] === y[head]) head++;
  let tail = 0;
  while (tail < x.length - head && tail < y.length - head && x[x.length - 1 - tail] === y[y.length - 1 - tail]) tail++;
  const [n, m] = [x.length - head - tail, y.length - head - tail];
  const out: Line[] = [];
  const same = (i: number, j: number): number => out.push({ kind: "same", text: x[i]!, a: i + 1, b: j + 1 });
  const old = (i: number): number => out.push({ kind: "old", text: x[i]!, a: i + 1 });
  const fresh = (j: number): number => out.push({ kind: "new", text: y[j]!, b: j + 1 });
  for (let i = 0; i < head; i++) same(i, i);
  if (n * m > most) {
    for (let i = 0; i < n; i++) old(head + i);
    for (let j = 0; j < m; j++) fresh(head + j);
  } else {
    const w = m + 1;
    const len = new Uint32Array((n + 1) * w);
    for (let i = n - 1; i >= 0; i--)
      for (let j = m - 1; j >= 0; j--) len[i * w + j] = x[head + i] === y[head + j] ? len[(i + 1) * w + j + 1]! + 1 : Math.max(len[(i + 1) * w + j]!, len[i * w + j + 1]!);
    let [i, j] = [0, 0];
    while (i < n || j < m) {
      if (i < n && j < m && x[head + i] === y[head + j]) same(head + i++, head + j++);
      else if (i < n && (j === m || len[(i + 1) * w + j]! >= len[i * w + j + 1]!)) old(head + i++);
      else fresh(head + j++);
    }
  }
  for (let k = tail; k > 0; k--) same(x.length - k, y.length - k);
  return out;
}

// folded leaves out what is the same, but for a few lines around each change.
export function folded(lines: Line[], around = 3): Line[] {
  const near = new Set<number>();
  lines.forEach((l, i) => {
    if (l.kind !== "same") for (let k = i - around; k <= i + around; k++) near.add(k);
  });
  const out: Line[] = [];
  let left = 0;
  lines.forEach((l, i) => {
    if (near.has(i)) {
      if (left) out.push({ kind: "gap", text: `${left} ${left === 1 ? "line" : "lines"} the same` });
      left = 0;
      out.push(l);
    } else left++;
  });
  if (left && out.length) out.push({ kind: "gap", text: `${left} ${left === 1 ? "line" : "lines"} the same` });
  return out;
}
