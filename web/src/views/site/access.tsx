// Access: keys, tokens of users, tenants, and the audit.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { APIKey, AuditEntry, Role } from "../../api/types";
import { Copy } from "../../parts/copy";
import { Dialog } from "../../parts/dialog";
import { Empty } from "../../parts/states";
import { Ago } from "../../parts/time";
import { until, words } from "../../lib/words";
import { now } from "../../store/clock";
import { href, route, runHref, setParams } from "../../store/route";
import { identity, may, session } from "../../store/session";
import { audit, keys, makeKey, type NewKey, revokeKey, tenants } from "../../store/site";
import { attempt } from "../../store/toasts";
import { Listed, Table } from "./parts";
import { Tokens } from "./tokens";

const tabs: [string, string, () => JSX.Element][] = [
  ["keys", "API keys", Keys],
  ["tokens", "User tokens", Tokens],
  ["tenants", "Tenants", Tenants],
  ["audit", "Audit", Audit],
];

export function AccessView(): JSX.Element {
  // The key of a program that issues tokens can do nothing else here.
  const tab = route.value.params.get("tab") ?? (may("admin") ? "keys" : may("issuer") ? "tokens" : "keys");
  const who = identity.value;
  const Show = (tabs.find(([key]) => key === tab) ?? tabs[0]!)[2];
  return (
    <section class="page-view">
      <div class="view-head">
        <h1>Access</h1>
        {who && <span class="soft">{`${who.principal} in ${who.tenant}: ${who.roles.join(", ")}`}</span>}
        {session.value && !session.value.ways.length && <span class="soft">Authentication is off: every client that reaches this gateway has full access.</span>}
      </div>
      <div class="tabs" role="group" aria-label="What is shown">
        {tabs.map(([key, title]) => (
          <button type="button" key={key} class="quiet" aria-pressed={tab === key} onClick={() => setParams({ tab: key })}>
            {title}
          </button>
        ))}
      </div>
      <Show />
    </section>
  );
}

function Keys(): JSX.Element {
  useEffect(() => keys.open(), []);
  const [making, setMaking] = useState(false);
  const [ends, setEnds] = useState<APIKey | null>(null);
  return (
    <>
      <Listed
        list={keys}
        what="keys"
        empty={
          <Empty title="No keys">
            <p class="soft">A key lets a program, or a person without an account, in.</p>
          </Empty>
        }
      >
        {(items) => (
          <Table label="API keys" head={["Name", "Tenant", "Roles", "Made", "Ends", ""]}>
            {items.map((k) => (
              <tr key={k.id} data-key={k.id}>
                <th scope="row">
                  {k.name} <code class="soft">{k.id}</code>
                </th>
                <td>{k.tenant === "*" ? "all of them" : k.tenant}</td>
                <td>{k.roles.join(", ")}</td>
                <td class="soft">
                  <Ago at={k.created_at} /> by {k.created_by}
                </td>
                <td class="soft">{k.expires_at ? (Date.parse(k.expires_at) < now.value ? "has ended" : until(k.expires_at, now.value)) : "never"}</td>
                <td class="num">
                  <button type="button" class="small" aria-label={`Revoke ${k.name}`} onClick={() => setEnds(k)}>
                    Revoke
                  </button>
                </td>
              </tr>
            ))}
          </Table>
        )}
      </Listed>
      {keys.loaded.value && (
        <p>
          <button type="button" onClick={() => setMaking(true)}>
            Make a key
          </button>
        </p>
      )}
      {making && <MakeKey close={() => setMaking(false)} />}
      {ends && (
        <Dialog title={`Revoke ${ends.name}?`} close={() => setEnds(null)}>
          <p>Within five seconds requests with it are refused, and its sessions end. You cannot undo this.</p>
          <div class="buttons">
            <button type="button" onClick={() => setEnds(null)}>
              Keep it
            </button>
            <button type="button" class="danger" onClick={() => void attempt(() => revokeKey(ends.id), `${ends.name} is revoked.`).then(() => setEnds(null))}>
              Revoke
            </button>
          </div>
        </Dialog>
      )}
    </>
  );
}

// Each role reads, and does what stands here: none includes another.
const roles: [Role, string][] = [
  ["viewer", "reads"],
  ["submitter", "starts runs, says things to them, cancels its own"],
  ["approver", "approves and denies calls, answers questions"],
  ["operator", "cancels and deletes any run, replays dead letters"],
  ["author", "saves and publishes agents"],
  ["admin", "keys, tenants, the audit; publishes agents"],
  ["issuer", "issues short-lived tokens to the users of a program"],
];
const days: [string, string][] = [
  ["30", "30 days"],
  ["90", "90 days"],
  ["365", "a year"],
  ["", "never"],
];

function MakeKey({ close }: { close: () => void }): JSX.Element {
  const [name, setName] = useState("");
  const [has, setHas] = useState<Role[]>(["viewer"]);
  const [ends, setEnds] = useState("90");
  const [made, setMade] = useState<NewKey | null>(null);
  if (made)
    return (
      <Dialog title={`The key ${made.name}`} close={close}>
        <p>This is the key. It is not shown again: store it now.</p>
        <p class="secret">
          <code>{made.key}</code> <Copy text={made.key} label="Copy the key" />
        </p>
        <div class="buttons">
          <button type="button" class="primary" onClick={close}>
            I have it
          </button>
        </div>
      </Dialog>
    );
  const make = async (): Promise<void> => {
    const expires = ends ? new Date(Date.now() + Number(ends) * 86_400e3).toISOString() : null;
    await attempt(async () => setMade(await makeKey({ name, roles: has, expires_at: expires })));
  };
  return (
    <Dialog title="Make a key" close={close}>
      <form
        onSubmit={(e) => {
          e.preventDefault();
          void make();
        }}
      >
        <label>
          What it is for
          <input value={name} maxLength={100} required onInput={(e) => setName((e.target as HTMLInputElement).value)} />
        </label>
        <fieldset>
          <legend>May</legend>
          {roles.map(([role, what]) => (
            <label key={role} class="inline">
              <input type="checkbox" checked={has.includes(role)} onChange={() => setHas(has.includes(role) ? has.filter((r) => r !== role) : [...has, role])} /> {role}{" "}
              <span class="soft">{what}</span>
            </label>
          ))}
        </fieldset>
        <label>
          Ends after
          <select value={ends} onChange={(e) => setEnds((e.target as HTMLSelectElement).value)}>
            {days.map(([n, text]) => (
              <option key={n} value={n}>
                {text}
              </option>
            ))}
          </select>
        </label>
        <div class="buttons">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={!name.trim() || !has.length}>
            Make it
          </button>
        </div>
      </form>
    </Dialog>
  );
}

const any = (list: string[] | undefined, none: string): string => (list === undefined ? "all that the deployment lets" : list.length ? list.join(", ") : none);

function Tenants(): JSX.Element {
  useEffect(() => tenants.open(), []);
  return (
    <Listed
      list={tenants}
      what="tenants"
      empty={
        <Empty title="No tenant has settings of its own">
          <p class="soft">A tenant is there as soon as somebody has a role in it. An admin of the deployment sets what it may do:</p>
          <pre class="command">turnpike tenants put NAME --four-eyes --model 'claude-*'</pre>
        </Empty>
      }
    >
      {(items) => (
        <Table label="Tenants" head={["Tenant", "State", "Approvals", "Hosts", "Models", "MCP programs", "Provider tools", "Secrets"]}>
          {items.map((t) => (
            <tr key={t.name} data-tenant={t.name}>
              <th scope="row">{t.name}</th>
              <td>{t.suspended ? <span class="error-text">suspended: reads and cancels only</span> : "works"}</td>
              <td>{t.four_eyes ? "by somebody else than the submitter" : "by any approver"}</td>
              <td>{any(t.hosts, "none")}</td>
              <td>{any(t.models, "none")}</td>
              <td>{any(t.mcp_commands, "none")}</td>
              <td>{any(t.provider_tools, "none")}</td>
              <td>
                {t.secrets === undefined && t.name !== "default"
                  ? "those of its directory only"
                  : any(
                      t.secrets?.map((s) => s.name + (s.hosts?.length ? ` (to ${s.hosts.join(", ")})` : "")),
                      "none",
                    )}
              </td>
            </tr>
          ))}
        </Table>
      )}
    </Listed>
  );
}

function Audit(): JSX.Element {
  useEffect(() => audit.open(), []);
  return (
    <Listed list={audit} what="the audit" empty={<Empty title="Nothing was done yet" />}>
      {(items) => (
        <Table label="Audit" head={["When", "Who", "Did", "To"]}>
          {items.map((e, i) => (
            <tr key={`${e.at} ${i}`}>
              <td class="soft">
                <Ago at={e.at} />
              </td>
              <th scope="row">
                {e.by.principal} <span class="soft">by {e.by.via}</span>
              </th>
              <td>{words(e.action)}</td>
              <td>
                <Target e={e} />
              </td>
            </tr>
          ))}
        </Table>
      )}
    </Listed>
  );
}

function Target({ e }: { e: AuditEntry }): JSX.Element {
  if (e.target.startsWith("run_"))
    return (
      <a class="mono" href={runHref(e.target)}>
        {e.target}
      </a>
    );
  if (e.action.startsWith("agent.") && e.action !== "agent.delete") return <a href={href("agents", e.target)}>{e.target}</a>;
  return <code>{e.target}</code>;
}
