import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Event } from "../../api/types";
import { clock, exact } from "../../parts/time";
import { span, words } from "../../lib/words";
import { route, setParams } from "../../store/route";
import type { RunModel } from "../../store/run";

const step = 300;

// gist says in a line what an entry has beyond its type.
export function entryGist(e: Event): string {
  const texts = (e.message?.parts ?? []).map((p) => p.text ?? (p.type === "tool_call" ? `${p.name}(…)` : (p.content ?? "")));
  const bits = [e.reason && words(e.reason), e.detail, e.name, ...texts, e.output, e.error?.message, e.by && "by " + e.by.principal];
  return bits.filter(Boolean).join(" · ").slice(0, 240);
}

const tie = (e: Event): string => (e.call_id ? "c" + e.call_id : "s" + e.seq);

export function Log({ model }: { model: RunModel }): JSX.Element {
  const [most, setMost] = useState(step);
  const entries = model.entries.value;
  const at = route.value.params.get("at");
  const hidden = Math.max(0, entries.length - most);
  return (
    <section class="log" aria-label="Log">
      {hidden > 0 && (
        <button type="button" class="earlier" onClick={() => setMost(most + step)}>
          {hidden} earlier
        </button>
      )}
      <table>
        <thead>
          <tr>
            <th scope="col">#</th>
            <th scope="col">at</th>
            <th scope="col">type</th>
            <th scope="col" class="num">
              turn
            </th>
            <th scope="col" class="num">
              took
            </th>
            <th scope="col" class="wide-only">
              worker
            </th>
            <th scope="col">says</th>
          </tr>
        </thead>
        <tbody>
          {entries.slice(hidden).map((e) => (
            <tr key={e.seq} data-tie={tie(e)} class={at === String(e.seq) ? "here" : ""}>
              <td>
                <button type="button" class="quiet small" aria-label={`Entry ${e.seq}`} onClick={() => setParams({ at: String(e.seq), fork: "" })}>
                  {e.seq}
                </button>
              </td>
              <td class="soft">
                <time dateTime={e.at} title={exact(e.at)}>
                  {clock(e.at)}
                </time>
              </td>
              <td class="mono">{e.type}</td>
              <td class="num">
                {e.turn}
                {e.attempt > 1 ? `/${e.attempt}` : ""}
              </td>
              <td class="num">{e.duration_ms ? span(e.duration_ms) : ""}</td>
              <td class="wide-only soft">{e.worker}</td>
              <td class="log-says clip">{entryGist(e)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
