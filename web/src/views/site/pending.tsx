// Events of webhooks that their receivers have not accepted yet.
import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { PendingEvent } from "../../api/types";
import { Fold } from "../../parts/fold";
import { Problem } from "../../parts/states";
import { Ago } from "../../parts/time";
import { count, plural, shortId } from "../../lib/words";
import { runHref } from "../../store/route";
import { pendingEvents } from "../../store/site";
import { Table } from "./parts";

const reasons: Record<PendingEvent["reason"], string> = {
  first_attempt: "No attempt was made yet.",
  failed: "The latest attempt failed.",
  earlier_event: "An earlier event of the run comes first.",
  receiver_failing: "The receiver fails: workers send it one event at a time.",
  busy: "The receiver or the tenant has reached its limit of requests in flight.",
};

// PendingEvents draws nothing while no event waits.
export function PendingEvents(): JSX.Element | null {
  useEffect(() => pendingEvents.open(), []);
  const { items, cursor, error } = pendingEvents;
  if (error.value && error.value.status !== 403) return <Problem error={error.value} again={() => void pendingEvents.load()} />;
  if (!items.value.length) return null;
  const n = items.value.length;
  return (
    <Fold summary={cursor.value ? `More than ${n} events wait for their receivers` : `${plural(n, "event waits", "events wait")} for ${n === 1 ? "its receiver" : "their receivers"}`}>
      {() => (
        <>
          <p class="soft">Workers deliver them again for three days. What is not accepted then becomes a dead letter.</p>
          <Table label="Events that wait" head={["Event", "Run", "Receiver", ["Attempts", "num"], "Why it waits"]}>
            {items.value.map((e) => (
              <tr key={e.id} data-event={e.id}>
                <th scope="row">
                  {e.type}{" "}
                  <span class="soft">
                    <Ago at={e.since} />
                  </span>
                </th>
                <td>
                  <a class="mono" href={runHref(e.run_id)} title={e.run_id}>
                    {shortId(e.run_id)}
                  </a>{" "}
                  <span class="soft">{e.agent}</span>
                </td>
                <td>
                  <code>{e.host}</code>
                </td>
                <td class="num">{count(e.attempts)}</td>
                <td>
                  {reasons[e.reason]} {e.last_error && <code>{e.last_error}</code>}
                </td>
              </tr>
            ))}
          </Table>
          {cursor.value && (
            <button type="button" class="small more" disabled={pendingEvents.loading.value} onClick={() => void pendingEvents.more()}>
              {pendingEvents.loading.value ? "Reading…" : "More"}
            </button>
          )}
        </>
      )}
    </Fold>
  );
}
