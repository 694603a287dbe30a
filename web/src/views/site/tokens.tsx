// Tokens of users: issue one, and end all. The gateway keeps none, so there is no list.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { errorOf } from "../../api/client";
import type { NewToken, TokenKeys } from "../../api/types";
import { Copy } from "../../parts/copy";
import { Dialog } from "../../parts/dialog";
import { Ago } from "../../parts/time";
import { until } from "../../lib/words";
import { now } from "../../store/clock";
import { href } from "../../store/route";
import { identity, loggedOut, may, session } from "../../store/session";
import { issueToken, rotateTokens, type TokenSpec } from "../../store/site";
import { attempt } from "../../store/toasts";

export function Tokens(): JSX.Element {
  const [ask, setAsk] = useState<"issue" | "rotate" | "">("");
  const lacks = lacking();
  const admin = !!identity.value && may("admin");
  return (
    <div class="tokens">
      <p>A token is for one user of a program of yours: with it, their browser reaches the runs of that user, or one run, and nothing else.</p>
      <p>
        The gateway keeps no tokens, so there is no list of them, and none is revoked alone. A token ends at its time, when the{" "}
        {admin ? <a href={href("access", "", { tab: "keys" })}>API key</a> : "API key"} that issued it is revoked, or when the signing key was rotated twice since.{" "}
        {admin && (
          <>
            The <a href={href("access", "", { tab: "audit" })}>audit</a> has who issued which.
          </>
        )}
      </p>
      {lacks && <p class="soft">{lacks}</p>}
      <p class="tokens-acts">
        {!lacks && (
          <button type="button" onClick={() => setAsk("issue")}>
            Issue a token
          </button>
        )}
        {admin && (
          <button type="button" onClick={() => setAsk("rotate")}>
            Rotate the signing key
          </button>
        )}
      </p>
      {ask === "issue" && <Issue close={() => setAsk("")} />}
      {ask === "rotate" && <Rotate close={() => setAsk("")} />}
    </div>
  );
}

// lacking says what keeps the caller from issuing tokens, or nothing.
function lacking(): string {
  const who = identity.value;
  if (!who) return session.value?.ways.length ? "The gateway decides who may issue tokens, and has not said who you are." : "Nobody logs in here, so there are no tokens.";
  if (!may("issuer")) return "You cannot issue one: log in with an API key that has the role issuer.";
  if (who.via !== "key") return "You have the role issuer, but only an API key issues tokens: each token ends with its key. Log in with such a key.";
  return "";
}

const roles: [string, string][] = [
  ["viewer", "reads the runs"],
  ["submitter", "starts runs, sends messages to them, cancels them"],
  ["approver", "approves and denies calls, answers questions"],
];
const times: [string, string][] = [
  ["5m", "5 minutes"],
  ["15m", "15 minutes"],
  ["1h", "an hour"],
  ["8h", "8 hours"],
  ["24h", "a day"],
];
type Reach = "user" | "agents" | "run";

function Issue({ close }: { close: () => void }): JSX.Element {
  const [user, setUser] = useState("");
  const [has, setHas] = useState(["viewer", "submitter"]);
  const [reach, setReach] = useState<Reach>("user");
  const [agents, setAgents] = useState("");
  const [run, setRun] = useState("");
  const [expires, setExpires] = useState("15m");
  const [fault, setFault] = useState("");
  const [busy, setBusy] = useState(false);
  const [made, setMade] = useState<NewToken | null>(null);
  if (made) return <Issued token={made} close={close} />;
  const names = agents.split(/[\s,]+/).filter(Boolean);
  const issue = async (e: SubmitEvent): Promise<void> => {
    e.preventDefault();
    const spec: TokenSpec = { user, roles: has, expires_in: expires };
    if (reach === "agents") spec.agents = names;
    if (reach === "run") spec.run = run.trim();
    setBusy(true);
    setFault("");
    try {
      setMade(await issueToken(spec));
    } catch (x) {
      const err = errorOf(x);
      loggedOut(err);
      setFault(err.message);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title="Issue a token" close={close}>
      <form onSubmit={(e) => void issue(e)}>
        <label>
          User, by the name in your own system
          <input name="user" required autofocus autocomplete="off" value={user} onInput={(e) => setUser(e.currentTarget.value)} />
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
          Reaches
          <select name="reach" value={reach} onChange={(e) => setReach(e.currentTarget.value as Reach)}>
            <option value="user">all runs of the user</option>
            <option value="agents">runs of the user with some agents</option>
            <option value="run">one run and those below it, whoever started it</option>
          </select>
        </label>
        {reach === "agents" && (
          <label>
            Agents, separated by commas
            <input name="agents" required autocomplete="off" value={agents} onInput={(e) => setAgents(e.currentTarget.value)} />
          </label>
        )}
        {reach === "run" && (
          <label>
            Id of the run
            <input name="run" class="mono" required autocomplete="off" placeholder="run_…" value={run} onInput={(e) => setRun(e.currentTarget.value)} />
          </label>
        )}
        <label>
          Ends after
          <select name="expires" value={expires} onChange={(e) => setExpires(e.currentTarget.value)}>
            {times.map(([n, text]) => (
              <option key={n} value={n}>
                {text}
              </option>
            ))}
          </select>
        </label>
        {fault && (
          <p class="error-text" role="alert">
            {fault}
          </p>
        )}
        <div class="buttons">
          <button type="button" onClick={close}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={busy || !has.length || (reach === "agents" && !names.length) || (reach === "run" && !run.trim())}>
            Issue it
          </button>
        </div>
      </form>
    </Dialog>
  );
}

function Issued({ token: t, close }: { token: NewToken; close: () => void }): JSX.Element {
  return (
    <Dialog title={`The token of ${t.user}`} close={close}>
      <p>This is its text. Nobody can read it again, so keep it where it belongs now.</p>
      <p class="secret">
        <code>{t.token}</code> <Copy text={t.token} label="Copy the token" />
      </p>
      <p>
        It has the roles {t.roles.join(", ")} in tenant {t.tenant}, reaches {t.run ? <code>{t.run}</code> : `runs of ${t.user}${t.agents?.length ? " with " + t.agents.join(", ") : ""}`}, and ends{" "}
        {until(t.expires_at, now.value)}.
      </p>
      <div class="buttons">
        <button type="button" class="primary" onClick={close}>
          I have it
        </button>
      </div>
    </Dialog>
  );
}

function Rotate({ close }: { close: () => void }): JSX.Element {
  const [valid, setValid] = useState<TokenKeys | null>(null);
  const [busy, setBusy] = useState(false);
  const rotate = async (): Promise<void> => {
    setBusy(true);
    await attempt(async () => setValid(await rotateTokens()));
    setBusy(false);
  };
  if (valid)
    return (
      <Dialog title="The signing key was rotated" close={close}>
        <p>Tokens with the signature of these keys are valid, and new ones get that of the first:</p>
        <ul class="plain">
          {valid.keys.map((k) => (
            <li key={k.id} data-signing-key={k.id}>
              <code>{k.id}</code>{" "}
              <span class="soft">
                made <Ago at={k.created_at} />
              </span>
            </li>
          ))}
        </ul>
        <div class="buttons">
          <button type="button" class="primary" onClick={close}>
            Close
          </button>
        </div>
      </Dialog>
    );
  return (
    <Dialog title="Rotate the signing key?" close={close}>
      <p>New tokens get the signature of a new key. Tokens of the key before it stay valid; those of older keys are refused within five seconds. To end all tokens of the tenant, rotate twice.</p>
      <div class="buttons">
        <button type="button" onClick={close}>
          Back
        </button>
        <button type="button" class="danger" disabled={busy} onClick={() => void rotate()}>
          Rotate it
        </button>
      </div>
    </Dialog>
  );
}
