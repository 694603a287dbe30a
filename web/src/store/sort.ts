// The order of a list: the parameter sort of the address is a column, after - in descending order.
import { route, setParams } from "./route";

// Column returns what a list is sorted by; null stands at the end in both orders.
export type Column<T> = (item: T) => string | number | null;

// order is the column that the list of this view is sorted by, and its direction.
export function order(): { column: string; down: boolean } {
  const sort = route.value.params.get("sort") ?? "";
  return { column: sort.replace(/^-/, ""), down: sort.startsWith("-") };
}

export function sorted<T>(items: T[], columns: Record<string, Column<T>>): T[] {
  const { column, down } = order();
  const value = Object.hasOwn(columns, column) ? columns[column]! : null;
  if (!value) return items;
  const keyed = items.map((item) => ({ item, key: value(item) }));
  keyed.sort((a, b) => {
    if (a.key === null || b.key === null) return a.key === b.key ? 0 : a.key === null ? 1 : -1;
    const n = typeof a.key === "string" || typeof b.key === "string" ? String(a.key).localeCompare(String(b.key)) : a.key - b.key;
    return down ? -n : n;
  });
  return keyed.map((k) => k.item);
}

// sortBy sorts by a column, then the other way round, then not at all. Numbers begin with the largest.
export function sortBy(column: string, number: boolean): void {
  const now = order();
  const first = number ? "-" : "";
  const next = now.column !== column ? first + column : now.down === number ? (number ? "" : "-") + column : "";
  setParams({ sort: next }, true);
}
