import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Run } from "../../api/types";
import { StatusMark } from "../../parts/status";
import { shortId, span } from "../../lib/words";
import { now } from "../../store/clock";
import { route, runHref, setParams } from "../../store/route";
import type { RunModel } from "../../store/run";
import { type Bar, type Lane, lanesOf } from "../../lib/timeline";
import { type Scale, scaleOf, ticksOf } from "../../lib/timescale";

const rowHeight = 26;
const room = 1.01; // where a label behind the last bar may end
const axisHeight = 20;
const apart = 76; // pixels between two ticks
const letter = 6.8; // how wide a letter of a label is, about, in pixels
const mostRows = 14; // before the timeline scrolls
const zooms: [string, string, number][] = [
  ["", "fit", 0],
  ["1m", "1 m", 60_000],
  ["10s", "10 s", 10_000],
];

export function Timeline({ model, run }: { model: RunModel; run: Run }): JSX.Element | null {
  const box = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState<[number, number]>([0, mostRows + 4]);
  const [follow, setFollow] = useState(true);
  const entries = model.entries.value;
  const live = model.working.value;
  const lanes = useMemo(
    () => lanesOf({ run, entries, live, starts: model.starts.value, children: model.children.value, below: model.below.value }),
    [entries, live, run, model.starts.value, model.children.value, model.below.value],
  );
  const open = !run.finished_at || model.children.value.some((c) => !c.finished_at);
  const at = open ? now.value : Date.parse(run.finished_at!);
  const start = Date.parse(run.created_at ?? entries[0]?.at ?? "");
  const scale = useMemo(() => scaleOf(lanes, start, at), [lanes, start, at]);
  const zoom = route.value.params.get("zoom") ?? "";
  const per = zooms.find(([z]) => z === zoom)?.[2] ?? 0;
  const width = per ? Math.max(100, (scale.total / per) * 100) : 100;
  useEffect(() => {
    const el = box.current;
    if (!el || !follow || !open) return;
    el.scrollTop = el.scrollHeight;
    if (per) el.scrollLeft = el.scrollWidth;
  }, [lanes.length, follow, open, per, width]);
  const track = useTrack(box, entries.length > 0 && lanes.length > 0) * (width / 100);
  const end = useMemo(() => lanes.reduce((n, l) => l.bars.reduce((m, b) => Math.max(m, b.to ?? at), n), start), [lanes, start, at]);
  const ticks = useMemo(() => (track ? ticksOf(scale, start, end, Math.min(1, apart / track)) : []), [scale, start, end, track]);
  if (!entries.length) return <div class="timeline-space" aria-hidden="true" />;
  if (!lanes.length) return null;
  const scrolled = (): void => {
    const el = box.current!;
    const first = Math.max(0, Math.floor(el.scrollTop / rowHeight) - 6);
    setSeen((s) => (s[0] === first ? s : [first, first + mostRows + 14]));
    if (open) setFollow(el.scrollTop + el.clientHeight >= el.scrollHeight - rowHeight);
  };
  const shown = track ? lanes.slice(seen[0], seen[1]) : []; // where labels stand depends on the width
  return (
    <section class="timeline" aria-label={`Timeline of ${shortId(run.id)}`}>
      <div class="section-head">
        <h2>Timeline</h2>
        <span class="soft">{lanes.length > 0 && span(Math.max(0, at - start - (run.idle_ms ?? 0)))}</span>
        <span class="grow" />
        <div role="group" aria-label="Zoom">
          {zooms.map(([name, text]) => (
            <button type="button" key={name} class="small quiet" aria-pressed={zoom === name} onClick={() => setParams({ zoom: name }, true)}>
              {text}
            </button>
          ))}
          {open && (
            <button type="button" class="small quiet" aria-pressed={follow} onClick={() => setFollow(!follow)}>
              follow
            </button>
          )}
        </div>
      </div>
      <div class="tl-box" ref={box} onScroll={scrolled} style={{ maxHeight: `${mostRows * rowHeight + axisHeight + 8}px` }} tabIndex={0} role="group" aria-label={`Bars of ${shortId(run.id)}`}>
        <div class="tl-axis" style={{ width: `${width}%` }} aria-hidden="true">
          {ticks.map((t) => (
            <span key={t.at} style={{ left: across(t.x) }}>
              {t.label}
            </span>
          ))}
        </div>
        <div class="tl-rows" style={{ height: `${lanes.length * rowHeight}px`, width: `${width}%` }}>
          {ticks.map((t) => (
            <div key={t.at} class="tl-tick" style={{ left: across(t.x) }} />
          ))}
          {scale.gaps.map((g) => (
            <div
              key={g.from}
              class="tl-gap"
              style={{ left: across(g.x / scale.total), width: `calc((100% - var(--label) - var(--tail)) * ${g.width / scale.total})` }}
              title={`${span(g.to - g.from)}, compressed`}
            />
          ))}
          {shown.map((l, i) => (
            <LaneRow key={l.key} lane={l} scale={scale} top={(seen[0] + i) * rowHeight} now={at} track={track} model={model} />
          ))}
        </div>
      </div>
    </section>
  );
}

// across is where a share of the time is, in the box.
const across = (share: number): string => `calc(var(--label) + (100% - var(--label) - var(--tail)) * ${share})`;

// useTrack is how wide the part of the box is that has the bars, in pixels.
function useTrack(box: { current: HTMLDivElement | null }, shown: boolean): number {
  const [wide, setWide] = useState(0);
  useLayoutEffect(() => {
    const el = box.current;
    if (!el) return;
    const measure = (): void => setWide(Math.max(0, el.clientWidth - parseFloat(getComputedStyle(el).getPropertyValue("--label")) - parseFloat(getComputedStyle(el).getPropertyValue("--tail"))));
    measure();
    const seen = new ResizeObserver(measure);
    seen.observe(el);
    return () => seen.disconnect();
  }, [shown]);
  return wide;
}

function LaneRow({ lane, scale, top, now: at, track, model }: { lane: Lane; scale: Scale; top: number; now: number; track: number; model: RunModel }): JSX.Element {
  const c = lane.child;
  const ends = lane.bars.map((b) => scale.x(b.from) / scale.total);
  return (
    <div class="tl-row" style={{ top: `${top}px` }}>
      <span class="tl-label clip" style={{ paddingLeft: `${8 + lane.depth * 10}px` }}>
        {c ? (
          <>
            <button type="button" class="fold" aria-label={lane.unfolded ? "Hide the runs below" : "Show the runs below"} aria-expanded={!!lane.unfolded} onClick={() => void model.unfold(c.id)}>
              {lane.unfolded ? "▾" : "▸"}
            </button>
            <StatusMark status={c.status} />
            <a href={runHref(c.id)} title={c.id}>
              {lane.label}
            </a>
          </>
        ) : (
          lane.label
        )}
      </span>
      <div class="tl-track">
        {lane.bars.map((b, i) => (
          <BarMark
            key={i}
            bar={b}
            left={ends[i]!}
            right={scale.x(b.to ?? at) / scale.total}
            before={Math.max(0, ...lane.bars.filter((o, j) => j !== i && o.from <= b.from).map((o) => scale.x(o.to ?? at) / scale.total))}
            next={Math.min(room, ...ends.filter((x, j) => j !== i && (x > ends[i]! || j > i)))}
            at={at}
            track={track}
            child={c}
          />
        ))}
      </div>
    </div>
  );
}

// A label stands in its bar if that is wide, else behind or before it, where there is room.
function BarMark({
  bar,
  left,
  right,
  before,
  next,
  at,
  track,
  child,
}: {
  bar: Bar;
  left: number;
  right: number;
  before: number;
  next: number;
  at: number;
  track: number;
  child?: Run | undefined;
}): JSX.Element {
  const width = Math.max(0, right - left);
  const length = span((bar.to ?? at) - bar.from);
  const label = bar.to === null ? `${bar.label} ${length}` : bar.kind === "wait" || bar.kind === "retry" ? `${bar.label} ${length}` : bar.label;
  const needs = (label.length * letter + 12) / Math.max(track, 1);
  const place =
    width > needs ? "tl-in" : bar.kind === "queue" ? "visually-hidden" : next - right > needs ? "tl-out" : left - before > needs ? "tl-before" : width * track > 72 ? "tl-in" : "visually-hidden";
  const cls = ["tl-bar", "k-" + bar.kind, bar.to === null ? "going" : "", bar.to === bar.from ? "moment" : "", bar.bad ? "bad" : "", child ? "s-" + child.status : ""].join(" ");
  const open = (): void => {
    if (child) location.hash = runHref(child.id);
    else setParams({ at: bar.at, fork: "" });
  };
  return (
    <button type="button" class={cls} data-tie={bar.tie} title={label} aria-label={label} style={{ left: `${left * 100}%`, width: `max(3px, ${width * 100}%)` }} onClick={open}>
      {bar.ends === "death" && (
        <span class="tl-death" aria-hidden="true">
          ☠
        </span>
      )}
      <span class={place} style={place === "tl-out" ? { maxWidth: `${(next - right) * track}px` } : {}}>
        {label}
      </span>
    </button>
  );
}
