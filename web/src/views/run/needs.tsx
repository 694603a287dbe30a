// What the run needs from a person, at the top: approve, answer, give a result.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { JSONValue, Run, WaitCall } from "../../api/types";
import { Again, Changes } from "../../parts/again";
import { JSONTree } from "../../parts/json";
import { Provenance } from "../../parts/provenance";
import { Risk } from "../../parts/risk";
import { changes, violations } from "../../lib/schema";
import { escaped } from "../../lib/visible";
import { shortId, until } from "../../lib/words";
import { answer, decide, giveResult } from "../../store/actions";
import { now } from "../../store/clock";
import { runHref } from "../../store/route";
import type { RunModel } from "../../store/run";
import { may } from "../../store/session";
import { attempt } from "../../store/toasts";

export function NeedsYou({ model, run }: { model: RunModel; run: Run }): JSX.Element | null {
  const w = run.waiting;
  if (run.status !== "waiting" || !w) return null;
  const calls = w.calls.filter((c) => c.needs === "approval" || c.needs === "result" || c.needs === "async");
  const asks = w.reason === "waiting_human_input";
  if (!calls.length && !asks) return null;
  return (
    <section class="card needs" aria-label={`${shortId(run.id)} needs you`}>
      <div class="needs-head">
        <h2>Needs you</h2>
        {w.expires_at && <span class="soft">expires {until(w.expires_at, now.value)}</span>}
      </div>
      {asks && <Question key={run.version} run={run} />}
      {calls.map((c) => (c.needs === "approval" ? <Approval key={c.id + c.hash} model={model} run={run} call={c} /> : <Result key={c.id} run={run} call={c} />))}
    </section>
  );
}

function Question({ run }: { run: Run }): JSX.Element {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (e: SubmitEvent): Promise<void> => {
    e.preventDefault();
    setBusy(true);
    await attempt(() => answer(run.id, text), "Answered.");
    setBusy(false);
  };
  const allowed = may("approver", "submitter");
  return (
    <form class="needs-call" onSubmit={(e) => void submit(e)}>
      <p class="question">{run.waiting?.question || run.waiting?.calls[0]?.message || "It asks for an answer."}</p>
      <label>
        <span class="visually-hidden">Answer</span>
        <textarea rows={2} required value={text} placeholder="Your answer" onInput={(e) => setText((e.target as HTMLTextAreaElement).value)} />
      </label>
      <div class="buttons">
        <button type="submit" class="primary" disabled={busy || !allowed}>
          Answer
        </button>
      </div>
      {!allowed && <p class="soft">It needs the role approver or submitter.</p>}
    </form>
  );
}

// schemaOf is what the agent's definition says of a tool's arguments, if it says it.
function schemaOf(model: RunModel, tool: string): JSONValue | undefined {
  const tools = model.agent.value?.definition["tools"];
  if (!Array.isArray(tools)) return undefined;
  for (const t of tools) if (t && typeof t === "object" && !Array.isArray(t) && t["name"] === tool) return t["schema"];
  return undefined;
}

function Approval({ model, run, call }: { model: RunModel; run: Run; call: WaitCall }): JSX.Element {
  const [reason, setReason] = useState("");
  const [text, setText] = useState<string | null>(null); // of the edited arguments
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (text !== null) void model.readAgent();
  }, [text !== null]);
  let edited: JSONValue | undefined;
  let problems: string[] = [];
  if (text !== null) {
    try {
      edited = JSON.parse(text) as JSONValue;
      problems = typeof edited !== "object" || edited === null || Array.isArray(edited) ? ["the arguments must be an object"] : violations(schemaOf(model, call.tool), edited);
    } catch (e) {
      problems = [e instanceof Error ? e.message : "not JSON"];
    }
  }
  const diff = edited === undefined ? [] : changes(call.arguments, edited);
  const send = async (decision: "approve" | "deny"): Promise<void> => {
    setBusy(true);
    const args = decision === "approve" && diff.length ? edited : undefined;
    await attempt(
      () => decide(run.id, call, { decision, reason, ...(args === undefined ? {} : { args }) }),
      args !== undefined ? `${call.tool}: approved with changes, which are checked before it runs` : decision === "approve" ? `${call.tool}: approved` : `${call.tool}: denied`,
    );
    setBusy(false);
  };
  const allowed = may("approver");
  return (
    <div class="needs-call" data-call={call.id}>
      <div class="needs-what">
        <strong class="mono">{call.tool}</strong>
        <Risk call={call} />
        {call.message && !call.again && <span class="soft">{call.message.startsWith(call.tool + " ") ? call.message.slice(call.tool.length + 1) : call.message}</span>}
        <span class="grow" />
        <button type="button" class="small quiet" aria-expanded={text !== null} onClick={() => setText(text === null ? escaped(JSON.stringify(call.arguments, null, 2)) : null)}>
          {text === null ? "Edit arguments" : call.again ? "As they were edited" : "As the model wrote them"}
        </button>
      </div>
      <Again call={call} />
      {text === null ? (
        <JSONTree value={call.arguments} open={3} />
      ) : (
        <>
          <label>
            <span class="visually-hidden">Arguments of {call.tool}, as JSON</span>
            <textarea
              class="mono"
              rows={Math.min(14, text.split("\n").length + 1)}
              spellcheck={false}
              value={text}
              aria-invalid={problems.length > 0}
              onInput={(e) => setText((e.target as HTMLTextAreaElement).value)}
            />
          </label>
          {problems.length > 0 && (
            <ul class="error-text plain" role="alert">
              {problems.slice(0, 5).map((p) => (
                <li key={p}>{p}</li>
              ))}
            </ul>
          )}
          {!problems.length && <Changes list={diff} name="What is changed" />}
        </>
      )}
      <Provenance call={call} />
      <div class="needs-acts">
        <input aria-label="Reason" placeholder="reason; the model reads why not" value={reason} maxLength={1000} onInput={(e) => setReason((e.target as HTMLInputElement).value)} />
        <button type="button" class="danger" disabled={busy || !allowed} onClick={() => void send("deny")}>
          Deny
        </button>
        <button type="button" class="primary" disabled={busy || !allowed || problems.length > 0} onClick={() => void send("approve")}>
          {diff.length && !problems.length ? "Approve with changes" : "Approve"}
        </button>
      </div>
      {!allowed && <p class="soft">It needs the role approver.</p>}
    </div>
  );
}

function Result({ run, call }: { run: Run; call: WaitCall }): JSX.Element {
  const [text, setText] = useState("");
  const [failed, setFailed] = useState(false);
  const [busy, setBusy] = useState(false);
  const submit = async (e: SubmitEvent): Promise<void> => {
    e.preventDefault();
    setBusy(true);
    await attempt(() => giveResult(run.id, call.id, text, failed), `${call.tool}: result sent`);
    setBusy(false);
  };
  const allowed = may("submitter");
  return (
    <form class="needs-call" data-call={call.id} onSubmit={(e) => void submit(e)}>
      <div class="needs-what">
        <strong class="mono">{call.tool}</strong>
        <span class="soft">
          {call.needs === "async" ? "its service sends the result" : "whoever submitted the run sends the result"}
          {allowed ? "; you may, too" : ""}
        </span>
        {call.run_id && <a href={runHref(call.run_id)}>its run</a>}
      </div>
      <JSONTree value={call.arguments} open={3} />
      <label>
        <span class="visually-hidden">Result of {call.tool}</span>
        <textarea class="mono" rows={2} required value={text} placeholder="Result" onInput={(e) => setText((e.target as HTMLTextAreaElement).value)} />
      </label>
      <div class="needs-acts">
        <label class="check">
          <input type="checkbox" checked={failed} onChange={() => setFailed(!failed)} /> the call failed
        </label>
        <span class="grow" />
        <button type="submit" class="primary" disabled={busy || !allowed}>
          Send result
        </button>
      </div>
      {!allowed && <p class="soft">It needs the role submitter.</p>}
    </form>
  );
}
