// Hooks: the addresses at which other systems deliver events, what an author has set for each, and its runs.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { tenant } from "../../api/client";
import type { Hook, JSONValue } from "../../api/types";
import { settingsOf } from "../../lib/settings";
import { Copy } from "../../parts/copy";
import { JSONTree } from "../../parts/json";
import { Empty, Loading, Problem } from "../../parts/states";
import { StatusChip } from "../../parts/status";
import { Ago } from "../../parts/time";
import { shortId } from "../../lib/words";
import { addressOf, hookRuns, hooks } from "../../store/hooks";
import { href, route, runHref } from "../../store/route";
import { may } from "../../store/session";
import { type Column, sorted } from "../../store/sort";
import { Listed, Table } from "./parts";
import { Delete, Edit, Makes } from "./settings";

const senders: Record<Hook["verify"], string> = { github: "GitHub", stripe: "Stripe", slack: "Slack", standard: "Standard Webhooks" };
const senderOf = (h: Hook): string => senders[h.verify] ?? h.verify;

const columns: Record<string, Column<Hook>> = {
  hook: (h) => h.name,
  sender: senderOf,
  agent: (h) => h.run?.agent ?? null,
  changed: (h) => Date.parse(h.updated_at),
};

const first = `{
  "verify": "github",
  "secret": "secret://GITHUB_WEBHOOK",
  "filter": "event.action == 'opened'",
  "run": {
    "agent": "hello",
    "input": "'Issue: ' + event.issue.title"
  }
}
`;

const hook = { kind: "hook", view: "hooks", store: hooks };
const note = "verify is github, stripe, slack or standard. The gateways must have the secret. Expressions are CEL over event, headers, delivery and digest.";

export function HooksView(): JSX.Element {
  const { id } = route.value;
  return id ? <One key={id + "\n" + tenant.value} name={id} /> : <All />;
}

function All(): JSX.Element {
  useEffect(() => hooks.list.open(), []);
  const [making, setMaking] = useState(false);
  return (
    <section class="page-view">
      <div class="view-head">
        <h1>Hooks</h1>
        <span class="grow" />
        {may("author") && (
          <button type="button" onClick={() => setMaking(true)}>
            New hook
          </button>
        )}
      </div>
      <Listed
        list={hooks.list}
        what="hooks"
        empty={
          <Empty title="No hook yet">
            <p>A hook is an address at which GitHub, Stripe, Slack or another system delivers events: each starts a run, or sends a signal to one. Write one here, or into a file:</p>
            <pre class="command">turnpike hooks put triage triage.yaml</pre>
          </Empty>
        }
      >
        {(items) => (
          <Table label="Hooks" head={["Hook", "Sender", "Makes", "Address", ["Changed", "num"]]} sorts={["hook", "sender", "agent", "", "changed"]}>
            {sorted(items, columns).map((h) => (
              <tr key={h.name} data-hook={h.name}>
                <th scope="row">
                  <a href={href("hooks", h.name)}>{h.name}</a>
                </th>
                <td>{senderOf(h)}</td>
                <td>
                  <Makes of={h} />
                </td>
                <td>
                  <code>{h.path}</code> <Copy text={addressOf(h)} label={`Copy the address of ${h.name}`} />
                </td>
                <td class="num soft" title={`by ${h.updated_by}`}>
                  <Ago at={h.updated_at} />
                </td>
              </tr>
            ))}
          </Table>
        )}
      </Listed>
      {making && <Edit {...hook} name="" text={first} note={note} close={() => setMaking(false)} />}
    </section>
  );
}

function One({ name }: { name: string }): JSX.Element {
  useEffect(() => hooks.open(name), [name]);
  const [ask, setAsk] = useState<"edit" | "delete" | "">("");
  const h = hooks.one.value;
  const error = hooks.error.value;
  if (!h) return error ? <Problem error={error} again={() => void hooks.read(name)} /> : <Loading what={name} />;
  const secrets = [h.secret].flat();
  return (
    <section class="page-view narrow" data-hook={h.name}>
      <div class="view-head">
        <h1>
          <a href={href("hooks")}>Hooks</a> / {h.name}
        </h1>
        {may("author") && (
          <span class="view-acts">
            <button type="button" class="small" onClick={() => setAsk("edit")}>
              Edit
            </button>
            <button type="button" class="small danger" onClick={() => setAsk("delete")}>
              Delete
            </button>
          </span>
        )}
      </div>
      {error && (
        <p class="stale" role="status">
          {error.message} What stands here is older.
        </p>
      )}
      <p class="hook-about">
        Deliveries that {h.verify === "standard" ? "a sender of Standard Webhooks" : senderOf(h)} signs become <Makes of={h} />.
      </p>
      <p class="batch-facts hook-state">
        {h.run && <a href={href("runs", "", { "metadata.hook": h.name })}>Its runs</a>}
        <span class="soft">
          changed <Ago at={h.updated_at} /> by {h.updated_by}
        </span>
      </p>
      <h2 class="sub">Address</h2>
      <p class="secret hook-address">
        <code>{addressOf(h)}</code> <Copy text={addressOf(h)} label="Copy the address" />
      </p>
      <p class="soft fine">
        Enter it at the sender, with the value of{" "}
        {secrets.map((s, i) => (
          <span key={s}>
            {i > 0 && " or "}
            <code>{s}</code>
          </span>
        ))}
        . If the sender reaches the gateway by another host than this browser, it needs that one in the address.
      </p>
      {h.run && <Runs />}
      <h2 class="sub">Settings</h2>
      <JSONTree value={settingsOf(h) as unknown as JSONValue} open={3} />
      {ask === "edit" && <Edit {...hook} name={h.name} text={JSON.stringify(settingsOf(h), null, 2) + "\n"} note={note} close={() => setAsk("")} />}
      {ask === "delete" && (
        <Delete
          {...hook}
          name={h.name}
          says="Within two seconds, deliveries to its address get 401. Its runs continue. If a hook of this name is stored again, deliveries that have started a run start no other."
          close={() => setAsk("")}
        />
      )}
    </section>
  );
}

// Runs are those that deliveries started. Other deliveries leave no trace that viewers read: the filter ignored
// them, they sent a signal, or the gateway refused them.
function Runs(): JSX.Element {
  useEffect(() => hookRuns.open(), []);
  return (
    <>
      <h2 class="sub">Latest runs</h2>
      <Listed list={hookRuns} what="its runs" empty={<p class="soft">No run yet. Deliveries that the filter ignores start none, and the sender shows the answers to those that were refused.</p>}>
        {(items) => (
          <Table label="Latest runs" head={["Run", "Delivery", "Status", ["Started", "num"]]}>
            {items.map((r) => (
              <tr key={r.id} data-delivery={r.metadata["delivery"]}>
                <th scope="row">
                  <a class="mono" href={runHref(r.id)} title={r.id}>
                    {shortId(r.id)}
                  </a>
                </th>
                <td>
                  <code>{r.metadata["delivery"]}</code>
                </td>
                <td>
                  <StatusChip run={r} />
                </td>
                <td class="num soft">
                  <Ago at={r.created_at} />
                </td>
              </tr>
            ))}
          </Table>
        )}
      </Listed>
    </>
  );
}
