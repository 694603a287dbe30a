import type { JSX } from "preact";
import { statuses } from "../../api/types";
import { count, needsPerson, plural, waitReasons, waitsFor } from "../../lib/words";
import { route, setParams } from "../../store/route";
import { cursor, filter, items, loaded } from "../../store/runs";
import { SavedViews } from "./saved";

const times: [string, string][] = [
  ["", "any time"],
  ["15m", "last 15 minutes"],
  ["1h", "last hour"],
  ["24h", "last 24 hours"],
  ["7d", "last 7 days"],
];

// Filters are the parameters of the address: a view is saved as a bookmark, and shared as a link.
export function Filters(): JSX.Element {
  const f = filter.value;
  const agents = [...new Set([...items.value.map((r) => r.agent), f.agent].filter(Boolean))].sort();
  const set = (name: string) => (e: Event) => setParams({ [name]: (e.target as HTMLSelectElement).value });
  const status = f.status.length > 1 ? f.status.join(",") : (f.status[0] ?? "");
  return (
    <div class="filters">
      <select aria-label="Status" value={status} onChange={set("status")} class={status ? "on" : ""}>
        <option value="">any status</option>
        <option value="queued,running,waiting">in flight</option>
        {statuses.map((s) => (
          <option key={s} value={s}>
            {s}
          </option>
        ))}
        {f.status.length > 1 && status !== "queued,running,waiting" && <option value={status}>{f.status.join(", ")}</option>}
      </select>
      <select aria-label="Waiting for" value={f.waiting} onChange={set("waiting")} class={f.waiting ? "on" : ""}>
        <option value="">waiting for…</option>
        {waitReasons.map((w) => (
          <option key={w} value={w}>
            {waitsFor(w)}
          </option>
        ))}
      </select>
      <select aria-label="Agent" value={f.agent} onChange={set("agent")} class={f.agent ? "on" : ""}>
        <option value="">any agent</option>
        {agents.map((a) => (
          <option key={a} value={a}>
            {a}
          </option>
        ))}
      </select>
      <select aria-label="Created" value={f.since} onChange={set("since")} class={f.since ? "on" : ""}>
        {times.map(([v, t]) => (
          <option key={v} value={v}>
            {t}
          </option>
        ))}
        {f.since && !times.some(([v]) => v === f.since) && <option value={f.since}>since {f.since}</option>}
      </select>
      <form class="find" onSubmit={find}>
        <input name="q" type="search" aria-label="Text, or key=value of metadata" placeholder="text, or key=value" defaultValue={f.text} key={f.text} />
      </form>
      <button
        type="button"
        class={f.trouble ? "on" : ""}
        aria-pressed={f.trouble}
        title="Only runs in which a tool call or a hook failed, a model call was repeated, or an attempt was lost"
        onClick={() => setParams({ trouble: f.trouble ? "" : "true" })}
      >
        <span aria-hidden="true">⚠ </span>with failures
      </button>
      <SavedViews />
      <Chips />
      <Counts />
    </div>
  );
}

function find(e: SubmitEvent): void {
  e.preventDefault();
  const input = (e.target as HTMLFormElement).elements.namedItem("q") as HTMLInputElement;
  const text = input.value.trim();
  const m = /^([\w.-]+)=(.*)$/.exec(text);
  if (m) {
    input.value = "";
    setParams({ ["metadata." + m[1]!.replace(/^metadata\./, "")]: m[2]!, q: "" });
  } else {
    setParams({ q: text });
  }
}

// What is filtered by and has no box of its own.
function Chips(): JSX.Element {
  const chips = [...route.value.params].filter(([k]) => k.startsWith("metadata.") || ["parent", "batch", "until", "q"].includes(k));
  return (
    <>
      {chips.map(([k, v]) => (
        <button type="button" key={k} class="chip on" title="Take this filter away" onClick={() => setParams({ [k]: "" })}>
          {k === "q" ? `“${v}”` : `${k.replace(/^metadata\./, "")}=${v}`} ✕
        </button>
      ))}
      {[...route.value.params].length > 1 && (
        <a class="quiet" href="#/runs">
          clear
        </a>
      )}
    </>
  );
}

function Counts(): JSX.Element {
  const list = items.value;
  const running = list.filter((r) => r.status === "running").length;
  const people = list.filter(needsPerson).length;
  return (
    <span class="counts soft" title={cursor.value ? "of those that were read; there are more below" : ""}>
      {loaded.value && (cursor.value ? `${count(list.length)}+ runs` : plural(list.length, "run"))}
      {running > 0 && ` · ${running} running`}
      {people > 0 && ` · ${people} waiting for a person`}
    </span>
  );
}
