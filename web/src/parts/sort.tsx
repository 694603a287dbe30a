import type { JSX } from "preact";
import { order, sortBy } from "../store/sort";

// direction is the aria-sort of a column.
export function direction(column: string): "ascending" | "descending" | undefined {
  const now = order();
  if (now.column !== column) return undefined;
  return now.down ? "descending" : "ascending";
}

// SortHead is the head of a column that sorts by it.
export function SortHead({ column, text, number }: { column: string; text: string; number: boolean }): JSX.Element {
  const way = direction(column);
  return (
    <button type="button" class="sort-head" data-sort={column} title={`Sort by ${text}`} onClick={() => sortBy(column, number)}>
      {text}
      {way && <span aria-hidden="true">{way === "ascending" ? "\u00a0▴" : "\u00a0▾"}</span>}
      {way && <span class="visually-hidden">, {way}</span>}
    </button>
  );
}
