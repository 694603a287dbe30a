import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Empty, Loading, Problem } from "../../parts/states";
import { count } from "../../lib/words";
import { SortHead } from "../../parts/sort";
import { Virtual } from "../../parts/virtual";
import { go, href, runHref } from "../../store/route";
import { at, atTop, cursor, filter, fresh, listError, loaded, loading, more, most, reload, rows, selected, showFresh, stopped, toggle } from "../../store/runs";
import { may } from "../../store/session";
import { order } from "../../store/sort";
import { shortcut, typing } from "../../store/shortcuts";
import { BulkBar } from "./bulk";
import { Filters } from "./filters";
import { type Ask, canApprove, DecisionDialog } from "./decide";
import { Health } from "./health";
import { Row } from "./row";

const narrow = matchMedia("(max-width: 760px)");
const headHeight = 120;
const heads: [string, string, string][] = [
  ["took", "Took", "r-dur"],
  ["turns", "Turns", "r-turns"],
  ["tokens", "Tokens", "r-tok"],
  ["cost", "Cost", "r-cost"],
  ["age", "Age", "r-age"],
];

export function RunsView(): JSX.Element {
  const [tall, setTall] = useState(narrow.matches);
  const [ask, setAsk] = useState<Ask | null>(null);
  useEffect(() => {
    const on = (): void => setTall(narrow.matches);
    narrow.addEventListener("change", on);
    return () => narrow.removeEventListener("change", on);
  }, []);
  useEffect(() => {
    const on = (e: KeyboardEvent): void => {
      if (typing(e) || !shortcut(e)) return;
      if (key(e.key, setAsk)) e.preventDefault();
    };
    addEventListener("keydown", on);
    return () => removeEventListener("keydown", on);
  }, []);
  const list = rows.value;
  const sorting = !!order().column;
  return (
    <section class="runs">
      <h1 class="visually-hidden">Runs</h1>
      <Health />
      <div class="runs-head">
        <Filters />
        <BulkBar />
        {fresh.value.length > 0 && (
          <button type="button" class="fresh" onClick={show}>
            {count(fresh.value.length)}
            {fresh.value.length >= most ? " or more" : ""} new
          </button>
        )}
        {list.length > 0 && (
          <div class="row-heads soft">
            <span />
            <span>Run</span>
            <SortHead column="agent" text="Agent" number={false} />
            <span>What matters</span>
            <span />
            {heads.map(([column, text, style]) => (
              <span key={column} class={"row-num " + style}>
                <SortHead column={column} text={text} number />
              </span>
            ))}
          </div>
        )}
      </div>
      {listError.value && <Problem error={listError.value} again={reload} />}
      {!loaded.value && !listError.value && <Loading what="runs" />}
      {loaded.value && !list.length && !listError.value && <Nothing />}
      {list.length > 0 && (
        <Virtual
          items={list}
          height={tall ? 84 : 40}
          label="Runs"
          at={at.value}
          offset={headHeight}
          end={() => void more()}
          scrolled={(top) => {
            atTop.value = top < 60;
          }}
          row={(r, i) => <Row key={r.id} run={r} i={i} of={cursor.value ? -1 : list.length} here={i === at.value} ask={setAsk} />}
        />
      )}
      {list.length > 0 && (
        <p class="soft center" role="status">
          {loading.value
            ? "Reading more…"
            : cursor.value
              ? sorting
                ? "Sorted are the runs that were read. More below"
                : "More below"
              : stopped.value
                ? "These are all within the newest 1,000 that match the other filters."
                : "These are all."}{" "}
          {filter.value.text && !loading.value && (
            <button type="button" class="quiet" onClick={reload}>
              Search again
            </button>
          )}
        </p>
      )}
      {ask && <DecisionDialog ask={ask} close={() => setAsk(null)} />}
    </section>
  );
}

function show(): void {
  showFresh();
  scrollTo({ top: 0 });
}

// key acts on the row of the keyboard, and reports whether it did.
function key(k: string, setAsk: (a: Ask) => void): boolean {
  const list = rows.peek();
  const run = list[at.peek()];
  switch (k) {
    case "j":
    case "ArrowDown":
      at.value = Math.min(at.peek() + 1, list.length - 1);
      return true;
    case "k":
    case "ArrowUp":
      at.value = Math.max(at.peek() - 1, 0);
      return true;
    case "Enter":
    case "o":
      if (!run || (k === "Enter" && document.activeElement?.closest("a, button"))) return false;
      go(runHref(run.id));
      return true;
    case "x":
      if (run) toggle(run.id);
      return !!run;
    case "a":
    case "d":
      if (!run || !canApprove(run) || !may("approver")) return false;
      setAsk({ run, decision: k === "a" ? "approve" : "deny" });
      return true;
    case "Escape":
      if (selected.peek().size) selected.value = new Set();
      else at.value = -1;
      return true;
    default:
      return false;
  }
}

function Nothing(): JSX.Element {
  const f = filter.value;
  const filtered = [...new URLSearchParams(location.hash.split("?")[1] ?? "")].length > 0;
  if (filtered)
    return (
      <Empty title="No run matches">
        {f.trouble && stopped.value && <p class="soft">Failures are looked for within the newest 1,000 runs that match the other filters.</p>}
        {f.text && <p class="soft">Text is looked for in input, answer, error, question, metadata and id{stopped.value ? ", within the newest 1,000 runs that match the other filters" : ""}.</p>}
        <p>
          <a href={href("runs")}>Show all runs</a>
        </p>
      </Empty>
    );
  return (
    <Empty title="No runs yet">
      <p>This writes a first agent and says how to run it. Its runs appear here as they happen.</p>
      <pre class="command">turnpike init hello</pre>
      {may("submitter") && (
        <p>
          Or invoke one of the <a href={href("agents")}>agents</a>.
        </p>
      )}
    </Empty>
  );
}
