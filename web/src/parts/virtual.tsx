// A list of rows of one height, of which only those in sight are in the document.
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

interface Props<T> {
  items: T[];
  height: number;
  row: (item: T, i: number) => JSX.Element;
  at?: number; // kept in sight
  end?: () => void; // the end is near
  scrolled?: (top: number) => void;
  label: string;
  offset?: number; // height of what sticks to the top of the window
}

// The rows scroll with the window: the list has no scroll bar of its own.
export function Virtual<T>({ items, height, row, at = -1, end, scrolled, label, offset = 0 }: Props<T>): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState<[number, number]>([0, 40]);
  const measure = (): void => {
    const el = box.current;
    if (!el) return;
    const top = -el.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(top / height) - 8);
    const last = Math.min(items.length, Math.ceil((top + innerHeight) / height) + 8);
    setRange((r) => (r[0] === first && r[1] === last ? r : [first, last]));
    scrolled?.(top);
    if (end && last >= items.length - 10) end();
  };
  const latest = useRef(measure);
  latest.current = measure;
  useLayoutEffect(() => latest.current(), [items.length, height]);
  useEffect(() => {
    let frame = 0;
    const on = (): void => {
      if (!frame) {
        frame = requestAnimationFrame(() => {
          frame = 0;
          latest.current();
        });
      }
    };
    addEventListener("scroll", on, { passive: true });
    addEventListener("resize", on);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", on);
      removeEventListener("resize", on);
    };
  }, []);
  useLayoutEffect(() => {
    const el = box.current;
    if (at < 0 || !el) return;
    const y = el.getBoundingClientRect().top + at * height;
    if (y < offset) scrollBy(0, y - offset);
    else if (y + height > innerHeight) scrollBy(0, y + height - innerHeight + 8);
  }, [at]);
  const [first, last] = [Math.min(range[0], items.length), Math.min(range[1], items.length)];
  return (
    <div class="virtual" ref={box} role="list" aria-label={label} style={{ height: `${items.length * height}px` }}>
      <div class="virtual-rows" style={{ transform: `translateY(${first * height}px)` }}>
        {items.slice(first, last).map((it, i) => row(it, first + i))}
      </div>
    </div>
  );
}
