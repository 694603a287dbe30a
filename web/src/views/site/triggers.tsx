// Triggers: which streams start runs, how far each has read, and what its author has set.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { tenant } from "../../api/client";
import type { JSONValue, Trigger } from "../../api/types";
import { settingsOf } from "../../lib/settings";
import { JSONTree } from "../../parts/json";
import { Empty, Loading, Problem } from "../../parts/states";
import { Ago } from "../../parts/time";
import { count, plural } from "../../lib/words";
import { href, route } from "../../store/route";
import { may } from "../../store/session";
import { type Column, sorted } from "../../store/sort";
import { attempt } from "../../store/toasts";
import { pauseTrigger, triggers } from "../../store/triggers";
import { Listed, Table } from "./parts";
import { Delete, Edit, Makes } from "./settings";

const columns: Record<string, Column<Trigger>> = {
  trigger: (t) => t.name,
  stream: (t) => t.stream,
  agent: (t) => t.run?.agent ?? null,
  dead: (t) => t.status.dead,
};

const first = `{
  "stream": "ORDERS",
  "subjects": ["orders.paid"],
  "run": {
    "agent": "hello",
    "input": "'Order ' + string(event.number) + ' was paid.'"
  }
}
`;

const trigger = { kind: "trigger", view: "triggers", store: triggers };
const note = "If the stream or “from” changes, the trigger starts over. Expressions are CEL over event, subject, headers and delivery.";

export function TriggersView(): JSX.Element {
  const { id } = route.value;
  return id ? <One key={id + "\n" + tenant.value} name={id} /> : <All />;
}

function All(): JSX.Element {
  useEffect(() => triggers.list.open(), []);
  const [making, setMaking] = useState(false);
  return (
    <section class="page-view">
      <div class="view-head">
        <h1>Triggers</h1>
        <span class="grow" />
        {may("author") && (
          <button type="button" onClick={() => setMaking(true)}>
            New trigger
          </button>
        )}
      </div>
      <Listed
        list={triggers.list}
        what="triggers"
        empty={
          <Empty title="No trigger yet">
            <p>A trigger reads a JetStream stream of yours: each message starts a run, or sends a signal to one. Write one here, or into a file:</p>
            <pre class="command">turnpike triggers put orders orders.yaml</pre>
          </Empty>
        }
      >
        {(items) => (
          <Table label="Triggers" head={["Trigger", "Stream", "Makes", ["Dead letters", "num"], "Latest error", ""]} sorts={["trigger", "stream", "agent", "dead"]}>
            {sorted(items, columns).map((t) => (
              <tr key={t.name} data-trigger={t.name}>
                <th scope="row">
                  <a href={href("triggers", t.name)}>{t.name}</a> {t.paused && <span class="chip">paused</span>}
                </th>
                <td>
                  <code>{t.stream}</code> <span class="soft">{t.subjects?.join(", ") ?? "all subjects"}</span>
                </td>
                <td>
                  <Makes of={t} />
                </td>
                <td class="num">{t.status.dead > 0 && <DeadLink t={t} />}</td>
                <td>
                  <LastError t={t} />
                </td>
                <td class="num">
                  <Pause t={t} />
                </td>
              </tr>
            ))}
          </Table>
        )}
      </Listed>
      {making && <Edit {...trigger} name="" text={first} note={note} close={() => setMaking(false)} />}
    </section>
  );
}

const DeadLink = ({ t }: { t: Trigger }): JSX.Element => (
  <a class="troubled" href={href("dead")} title="Show the dead letters">
    ⚠ {count(t.status.dead)}
  </a>
);

function LastError({ t }: { t: Trigger }): JSX.Element | null {
  if (!t.status.last_error) return null;
  return (
    <span class="row-trouble">
      ⚠ {t.status.last_error} <Ago at={t.status.last_error_at ?? null} />
    </span>
  );
}

function Pause({ t }: { t: Trigger }): JSX.Element | null {
  const [busy, setBusy] = useState(false);
  if (!may("author")) return null;
  const act = async (): Promise<void> => {
    setBusy(true);
    await attempt(() => pauseTrigger(t, !t.paused), t.paused ? `${t.name} reads again.` : `${t.name} is paused: its messages wait in the stream.`);
    setBusy(false);
  };
  return (
    <button type="button" class="small" disabled={busy} onClick={() => void act()}>
      {t.paused ? "Resume" : "Pause"}
    </button>
  );
}

function One({ name }: { name: string }): JSX.Element {
  useEffect(() => triggers.open(name), [name]);
  const [ask, setAsk] = useState<"edit" | "delete" | "">("");
  const t = triggers.one.value;
  const error = triggers.error.value;
  if (!t) return error ? <Problem error={error} again={() => void triggers.read(name)} /> : <Loading what={name} />;
  const { pending, in_flight, dead } = t.status;
  return (
    <section class="page-view narrow" data-trigger={t.name}>
      <div class="view-head">
        <h1>
          <a href={href("triggers")}>Triggers</a> / {t.name}
        </h1>
        {t.paused && <span class="chip">paused</span>}
        <span class="view-acts">
          <Pause t={t} />
          {may("author") && (
            <>
              <button type="button" class="small" onClick={() => setAsk("edit")}>
                Edit
              </button>
              <button type="button" class="small danger" onClick={() => setAsk("delete")}>
                Delete
              </button>
            </>
          )}
        </span>
      </div>
      {error && (
        <p class="stale" role="status">
          {error.message} What stands here is older.
        </p>
      )}
      <p class="trigger-about">
        Messages of the stream <code>{t.stream}</code>{" "}
        {t.subjects && (
          <>
            with the subjects <code>{t.subjects.join(", ")}</code>{" "}
          </>
        )}
        become <Makes of={t} />. It began with {t.from === "all" ? "all messages that the stream had" : "those published after it was stored"}.
      </p>
      <p class="batch-facts trigger-state">
        {pending === undefined ? <span>NATS does not have the stream, or did not answer.</span> : <span>{plural(pending, "message")} not read</span>}
        {in_flight !== undefined && <span>{count(in_flight)} in flight</span>}
        <span>{dead > 0 ? <DeadLink t={t} /> : "0"} dead letters</span>
        <a href={href("runs", "", { "metadata.trigger": t.name })}>Its runs</a>
        <span class="soft">
          changed <Ago at={t.updated_at} /> by {t.updated_by}
        </span>
      </p>
      {t.status.last_error && (
        <p>
          <LastError t={t} />
        </p>
      )}
      <h2 class="sub">Settings</h2>
      <JSONTree value={settingsOf(t) as unknown as JSONValue} open={3} />
      {ask === "edit" && <Edit {...trigger} name={t.name} text={JSON.stringify(settingsOf(t), null, 2) + "\n"} note={note} close={() => setAsk("")} />}
      {ask === "delete" && (
        <Delete
          {...trigger}
          name={t.name}
          says="Messages that it has not read start nothing. If a trigger of this name is stored again, messages that have started a run start no other."
          close={() => setAsk("")}
        />
      )}
    </section>
  );
}
