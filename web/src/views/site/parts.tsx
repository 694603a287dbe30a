// What the views of the site have in common.
import type { ComponentChildren, JSX } from "preact";
import type { List } from "../../store/list";
import { direction, SortHead } from "../../parts/sort";
import { Loading, Problem } from "../../parts/states";

// Listed draws a list once it is there, and says what is the matter if it is not. What was
// read stays in sight when a later reading fails.
export function Listed<T>({ list, what, empty, children }: { list: List<T, never> | List<T>; what: string; empty: JSX.Element; children: (items: T[]) => JSX.Element }): JSX.Element {
  const l = list as List<T>;
  const error = l.error.value;
  if (error && (!l.loaded.value || error.status === 403 || error.status === 404)) return <Problem error={error} again={error.status === 403 ? undefined : () => void l.load()} />;
  if (!l.loaded.value) return <Loading what={what} />;
  return (
    <>
      {error && (
        <p class="stale" role="status">
          {error.message} What stands here is older.
        </p>
      )}
      {l.items.value.length ? children(l.items.value) : empty}
      {l.cursor.value && (
        <button type="button" class="small more" disabled={l.loading.value} onClick={() => void l.more()}>
          {l.loading.value ? "Reading…" : "More"}
        </button>
      )}
    </>
  );
}

// Table is a table of rows with a head each. In a narrow window the cells stand below the head of
// their row, and the style sheet writes the heads of the columns before them.
// sorts names the columns that the table is sorted by, in the order of the heads; "" is none.
export function Table({ label, head, sorts = [], children }: { label: string; head: (string | [string, "num"])[]; sorts?: string[]; children: ComponentChildren }): JSX.Element {
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label={label}>
      <table class="list" style={Object.fromEntries(head.map((h, i) => [`--head-${i + 1}`, JSON.stringify(typeof h === "string" ? h : h[0])]))}>
        <thead>
          <tr>
            {head.map((h, i) => {
              const [text, number] = typeof h === "string" ? [h, false] : [h[0], true];
              const column = sorts[i];
              return (
                <th key={text} scope="col" class={number ? "num" : ""} aria-sort={column ? direction(column) : undefined}>
                  {text === "" ? <span class="visually-hidden">What may be done</span> : column ? <SortHead column={column} text={text} number={number} /> : text}
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
