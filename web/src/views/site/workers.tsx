// Workers and queues: who takes turns, what they hold, and what waits.
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { type Status, statuses, type Worker } from "../../api/types";
import { Empty } from "../../parts/states";
import { StatusMark } from "../../parts/status";
import { Ago } from "../../parts/time";
import { count, plural, shortId, span } from "../../lib/words";
import { runHref } from "../../store/route";
import { queues, workers } from "../../store/site";
import { type Column, sorted } from "../../store/sort";
import { Listed, Table } from "./parts";

export function WorkersView(): JSX.Element {
  useEffect(() => workers.open(), []);
  useEffect(() => queues.open(), []);
  const forbidden = workers.error.value?.status === 403;
  const list = workers.items.value;
  const alive = list.filter((w) => w.status === "alive");
  const slots = alive.reduce((n, w) => n + w.slots, 0);
  const held = list.reduce((n, w) => n + w.holds, 0);
  return (
    <section class="page-view">
      <div class="view-head">
        <h1>Workers</h1>
        {list.length > 0 && <span class="soft">{`${plural(alive.length, "worker")} alive · ${count(held)} of ${plural(slots, "slot")} taken`}</span>}
      </div>
      <Listed
        list={workers}
        what="workers"
        empty={
          <Empty title="No worker is heard">
            <p>Runs wait until one comes. Start one:</p>
            <pre class="command">turnpike-worker</pre>
          </Empty>
        }
      >
        {(items) => (
          <Table label="Workers" head={["Worker", "State", "Build", ["Slots", "num"], "Holds", ["Heard", "num"]]} sorts={["worker", "state", "build", "slots", "holds", "heard"]}>
            {sorted(items, columns).map((w) => (
              <tr key={w.id} data-worker={w.id}>
                <th scope="row">
                  <code>{w.id}</code>
                </th>
                <td>
                  <span class={"state-word " + (w.status === "alive" ? "s-completed" : "s-failed")}>
                    <span class="mark" aria-hidden="true">
                      {w.status === "alive" ? "●" : "○"}
                    </span>{" "}
                    {w.status}
                  </span>
                </td>
                <td class="soft">{w.version}</td>
                <td class="num">{w.slots ? count(w.slots) : ""}</td>
                <td>
                  {w.holds > 0 ? (
                    <span class="holds">
                      <meter min={0} max={Math.max(w.slots, w.holds)} value={w.holds} aria-label={`${w.holds} of ${w.slots} slots`} /> {count(w.holds)}
                      {w.runs.map((id) => (
                        <a key={id} class="mono" href={runHref(id)} title={id}>
                          {shortId(id)}
                        </a>
                      ))}
                      {w.holds > w.runs.length && <span class="soft">and {count(w.holds - w.runs.length)} more</span>}
                    </span>
                  ) : (
                    <span class="soft">nothing</span>
                  )}
                </td>
                <td class="num soft">{w.heard_at ? <Ago at={w.heard_at} /> : "not heard"}</td>
              </tr>
            ))}
          </Table>
        )}
      </Listed>
      {list.some((w) => w.status !== "alive" && w.holds > 0) && <p class="soft fine">What an unreachable worker holds is taken up by another one within seconds of its death; its results are kept.</p>}
      {!forbidden && <QueuesPart />}
    </section>
  );
}

const columns: Record<string, Column<Worker>> = {
  worker: (w) => w.id,
  state: (w) => w.status,
  build: (w) => w.version,
  slots: (w) => w.slots,
  holds: (w) => w.holds,
  heard: (w) => (w.heard_at ? Date.parse(w.heard_at) : null),
};

const lanes: Record<string, string> = { high: "4 of 7", normal: "2 of 7", low: "1 of 7" };

function QueuesPart(): JSX.Element {
  const counts = queues.page.value?.runs ?? {};
  return (
    <>
      <h2 class="sub">Queues</h2>
      <Listed list={queues} what="queues" empty={<Empty title="No lanes" />}>
        {(items) => (
          <>
            <Table label="Queues" head={["Lane", ["Backlog", "num"], ["Oldest waits", "num"], ["Share", "num"]]}>
              {items.map((q) => (
                <tr key={q.lane} data-lane={q.lane}>
                  <th scope="row">{q.lane}</th>
                  <td class="num">{count(q.backlog)}</td>
                  <td class={"num" + (q.oldest_seconds > 60 ? " error-text" : "")}>{q.oldest_at ? span(q.oldest_seconds * 1000) : ""}</td>
                  <td class="num soft">{lanes[q.lane] ?? ""}</td>
                </tr>
              ))}
            </Table>
            <h2 class="sub">Runs of the deployment</h2>
            <p class="statuses">
              {statuses
                .filter((s: Status) => counts[s])
                .map((s) => (
                  <span key={s} class={"count s-" + s}>
                    <StatusMark status={s} /> {count(counts[s]!)} <span class="soft">{s}</span>
                  </span>
                ))}
              {!statuses.some((s) => counts[s]) && <span class="soft">none</span>}
            </p>
            <p class="soft fine">
              Of all tenants. The share is how many of the slots that become free a lane gets while turns wait in all of them. A backlog counts turns that wait or are at work. Rate limits are in the
              metrics: <code>turnpike_rate_limit_…</code>
            </p>
          </>
        )}
      </Listed>
    </>
  );
}
