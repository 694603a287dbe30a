// The schedules: when each fires next, what became of its latest firing, and what may be done about it.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Schedule } from "../../api/types";
import { Empty } from "../../parts/states";
import { Ago, exact } from "../../parts/time";
import { count, shortId, until } from "../../lib/words";
import { now } from "../../store/clock";
import { href, runHref } from "../../store/route";
import { may } from "../../store/session";
import { actOnSchedule, schedules } from "../../store/site";
import { type Column, sorted } from "../../store/sort";
import { attempt } from "../../store/toasts";
import { Listed, Table } from "./parts";

const columns: Record<string, Column<Schedule>> = {
  schedule: (s) => s.name,
  agent: (s) => s.run.agent,
  next: (s) => (s.next[0] ? Date.parse(s.next[0]) : Infinity),
  started: (s) => s.fired,
};

export function SchedulesView(): JSX.Element {
  useEffect(() => schedules.open(), []);
  return (
    <section class="page-view">
      <div class="view-head">
        <h1>Schedules</h1>
      </div>
      <Listed
        list={schedules}
        what="schedules"
        empty={
          <Empty title="No schedule yet">
            <p>A schedule starts a run at fixed times. Write one into a file and store it:</p>
            <pre class="command">turnpike schedules put daily daily.yaml</pre>
          </Empty>
        }
      >
        {(items) => (
          <Table label="Schedules" head={["Schedule", "Times", "Agent", "Next", "Latest run", ["Started", "num"], ""]} sorts={["schedule", "", "agent", "next", "", "started"]}>
            {sorted(items, columns).map((s) => (
              <Row key={s.name} s={s} />
            ))}
          </Table>
        )}
      </Listed>
    </section>
  );
}

function Row({ s }: { s: Schedule }): JSX.Element {
  const [busy, setBusy] = useState(false);
  const act = (action: "pause" | "resume" | "run", done: string) => async (): Promise<void> => {
    setBusy(true);
    await attempt(() => actOnSchedule(s.name, action), done);
    setBusy(false);
  };
  return (
    <tr data-schedule={s.name}>
      <th scope="row">{s.name}</th>
      <td>
        <code>{s.cron}</code> <span class="soft">{s.timezone ?? "UTC"}</span>
      </td>
      <td>
        <a href={href("agents", s.run.agent)}>{s.run.agent}</a>
      </td>
      <td>{s.paused ? <span class="chip">paused</span> : s.next[0] ? <span title={s.next.map(exact).join("\n")}>{until(s.next[0], now.value)}</span> : "never again"}</td>
      <td>
        {s.last?.run_id && (
          <a class="mono" href={runHref(s.last.run_id)} title={s.last.run_id}>
            {shortId(s.last.run_id)}
          </a>
        )}
        {s.last?.error && <span class="row-trouble">⚠ {s.last.error}</span>}
        {s.last ? (
          <>
            {" "}
            <span class="soft">
              <Ago at={s.last.at} />
            </span>
          </>
        ) : (
          <span class="soft">none yet</span>
        )}
        {s.waiting && <span class="chip">one waits for its end</span>}
      </td>
      <td class="num">
        {count(s.fired)}
        {s.skipped > 0 && <span class="soft">, {count(s.skipped)} skipped</span>}
      </td>
      <td class="num">
        {may("author", "operator") && (
          <button type="button" class="small" disabled={busy} onClick={() => void act(s.paused ? "resume" : "pause", s.paused ? "It fires again." : "It is paused.")()}>
            {s.paused ? "Resume" : "Pause"}
          </button>
        )}{" "}
        {may("submitter") && (
          <button type="button" class="small" disabled={busy} onClick={() => void act("run", "Its run has started.")()}>
            Run now
          </button>
        )}
      </td>
    </tr>
  );
}
