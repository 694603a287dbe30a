// gather collects items and hands them on all at once, at the time that later chooses.
export interface Gathered<T> {
  add: (item: T) => void;
  flush: () => void; // now
  drop: () => void; // what was not handed on never is
}

// later calls f once, and returns how to cancel that.
export function gather<T>(later: (f: () => void) => () => void, take: (items: T[]) => void): Gathered<T> {
  let items: T[] = [];
  let cancel: (() => void) | null = null;
  const drop = (): void => {
    cancel?.();
    cancel = null;
    items = [];
  };
  const flush = (): void => {
    const all = items;
    drop();
    if (all.length) take(all);
  };
  const add = (item: T): void => {
    items.push(item);
    cancel ??= later(flush);
  };
  return { add, flush, drop };
}
