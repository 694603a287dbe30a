// A chart of steps of time: stacked bars or lines. The steps are read by pointer and arrow keys; the
// step that is read leads to its runs, and a table has the same numbers.
import type { JSX } from "preact";
import { useId, useMemo, useState } from "preact/hooks";
import { Fold } from "../../parts/fold";
import { bars, ceiling, line, move, type Span, totals } from "../../lib/figures";
import { stepName } from "./steps";

export interface Drawn {
  name: string;
  values: (number | null)[]; // null only in lines
}

interface Props {
  title: string;
  span: Span;
  list: Drawn[];
  lines?: boolean;
  format: (n: number) => string;
  // link returns the address of the runs of a step, if the list can select them.
  link?: ((at: number) => string) | undefined;
  hint?: string;
}

const height = 100;
const textures = 6; // most layers of a chart

// Stripes tell layers apart besides their colours: height of the pattern, and its gaps as [from, height].
// The plot is stretched in its width, so all of them lie.
const stripes: [number, [number, number][]][] = [
  [8, []],
  [5, [[0, 1.5]]],
  [9, [[0, 4]]],
  [3, [[0, 1]]],
  [
    10,
    [
      [0, 1.5],
      [3, 1.5],
    ],
  ],
  [6, [[0, 4]]],
];

function Pattern({ id, of }: { id: string; of: number }): JSX.Element {
  const [high, gaps] = stripes[of]!;
  return (
    <pattern id={id} width="1" height={high} patternUnits="userSpaceOnUse">
      <rect width="1" height={high} class={"c-fill c-" + of} />
      {gaps.map(([y, h]) => (
        <rect key={y} y={y} width="1" height={h} class="c-gap" />
      ))}
    </pattern>
  );
}

function Legend({ list, lines, id }: { list: Drawn[]; lines: boolean; id: string }): JSX.Element {
  return (
    <ul class="chart-legend">
      {list.map((l, i) => (
        <li key={l.name}>
          <svg width="14" height="12" aria-hidden="true">
            {lines ? <path d="M0 6h14" class={`c-line c-${i % textures}`} /> : <rect width="12" height="12" fill={`url(#${id}-${i % textures})`} />}
          </svg>
          {l.name}
        </li>
      ))}
    </ul>
  );
}

export function Chart({ title, span, list, lines = false, format, link, hint }: Props): JSX.Element {
  const id = useId().replaceAll(":", "");
  const [at, setAt] = useState<number | null>(null);
  const { shape, max, latest } = useMemo(() => {
    const sums = lines ? [] : totals(list as { name: string; values: number[] }[], span.count);
    const max = ceiling(lines ? Math.max(0, ...list.flatMap((l) => l.values.map((v) => v ?? 0))) : Math.max(0, ...sums));
    const base = new Array<number>(span.count).fill(0);
    const shape = list.map((l) => {
      if (lines) return line(l.values, max, height);
      const values = l.values as number[];
      const d = bars(values, base, max, height);
      values.forEach((v, i) => (base[i]! += v));
      return d;
    });
    let latest = span.count - 1; // that has a number
    while (latest > 0 && !list.some((l) => l.values[latest])) latest--;
    return { shape, max, latest: list.length ? latest : span.count - 1 };
  }, [list, span.count, lines]);
  const step = Math.min(at ?? latest, span.count - 1);

  const parts = list.flatMap((l) => (l.values[step] ? [`${l.name} ${format(l.values[step]!)}`] : []));
  const says = `${stepName(span, step)}: ${parts.join(", ") || "none"}`;
  const to = link?.(step);
  const find = (e: PointerEvent): void => {
    const box = (e.currentTarget as Element).getBoundingClientRect();
    setAt(Math.max(0, Math.min(span.count - 1, Math.floor(((e.clientX - box.left) / box.width) * span.count))));
  };
  const key = (e: KeyboardEvent): void => {
    const next = e.ctrlKey || e.metaKey || e.altKey ? null : move(e.key, step, span.count);
    if (next === null) return;
    e.preventDefault();
    setAt(next);
  };
  const plot = (
    <svg viewBox={`0 0 ${span.count} ${height}`} preserveAspectRatio="none" aria-hidden="true">
      <rect x={step} width="1" height={height} class="chart-at" />
      {shape.map((d, i) => (
        <path key={list[i]!.name} d={d} class={lines ? `c-line c-${i % textures}` : undefined} fill={lines ? undefined : `url(#${id}-${i % textures})`} />
      ))}
    </svg>
  );
  const acts = { class: "chart-plot", onPointerMove: find, onPointerDown: find, onKeyDown: key };
  return (
    <figure class="chart" data-chart={title}>
      <figcaption>
        <h2>{title}</h2>
        {hint && <span class="soft fine">{hint}</span>}
      </figcaption>
      {!lines && (
        <svg class="chart-patterns" aria-hidden="true">
          <defs>
            {list.map((_, i) => (
              <Pattern key={i} id={`${id}-${i}`} of={i % textures} />
            ))}
          </defs>
        </svg>
      )}
      <div class="chart-box">
        <div class="chart-y soft" aria-hidden="true">
          <span>{format(max)}</span>
          <span>{format(max / 2) === format(max) ? "" : format(max / 2)}</span>
          <span>{format(0)}</span>
        </div>
        {to ? (
          <a {...acts} href={to} aria-label={`${title}. ${says}. Arrow keys read other steps, Enter shows the runs that were submitted then.`}>
            {plot}
          </a>
        ) : (
          <div {...acts} tabIndex={0} role="img" aria-label={`${title}. ${says}. Arrow keys read other steps.`}>
            {plot}
          </div>
        )}
        <div class="chart-x soft" aria-hidden="true">
          <span>{stepName(span, 0)}</span>
          <span>{stepName(span, span.count - 1)}</span>
        </div>
      </div>
      <p class="chart-says" aria-live="polite">
        {says}
      </p>
      <Legend list={list} lines={lines} id={id} />
      <Fold class="chart-table" summary={`${title} as a table`}>
        {() => <Numbers title={title} span={span} list={list} format={format} link={link} />}
      </Fold>
    </figure>
  );
}

// Numbers are those of the chart, the latest step first, without the steps that have none.
function Numbers({ title, span, list, format, link }: Omit<Props, "lines" | "hint">): JSX.Element {
  const steps = Array.from({ length: span.count }, (_, i) => span.count - 1 - i).filter((i) => list.some((l) => l.values[i]));
  if (!steps.length) return <p class="soft">No numbers in this time.</p>;
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label={`${title} as a table`}>
      <table class="numbers">
        <thead>
          <tr>
            <th scope="col">Time</th>
            {list.map((l) => (
              <th key={l.name} scope="col" class="num">
                {l.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {steps.map((i) => (
            <tr key={i}>
              <th scope="row">{link ? <a href={link(i)}>{stepName(span, i)}</a> : stepName(span, i)}</th>
              {list.map((l) => (
                <td key={l.name} class="num">
                  {l.values[i] === null ? "" : format(l.values[i]!)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
