import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ended, type Run } from "../../api/types";
import { Copy } from "../../parts/copy";
import { Dialog } from "../../parts/dialog";
import { StatusChip } from "../../parts/status";
import { Ago } from "../../parts/time";
import { count, duration, money, plural, shortId, span, tokens } from "../../lib/words";
import { costFact, percent } from "../../lib/spent";
import { again, canAgain, cancel } from "../../store/actions";
import { now } from "../../store/clock";
import { go, href, runHref, setParams } from "../../store/route";
import type { RunModel } from "../../store/run";
import { failedResult } from "../../lib/timeline";
import { identity, may } from "../../store/session";
import { attempt } from "../../store/toasts";
import { AgentName, title, titleKey } from "../runs/row";
import { Say } from "./say";

export function Head({ model, run, close }: { model: RunModel; run: Run; close?: (() => void) | undefined }): JSX.Element {
  const [ask, setAsk] = useState<"cancel" | "message" | "">("");
  const over = ended(run.status);
  const name = title(run);
  const tryAgain = (): void =>
    void attempt(async () => {
      const fresh = await again(run);
      go(runHref(fresh.id));
    });
  return (
    <header class="run-head">
      <div class="run-title">
        <h1>
          <a href={href("runs", "", { agent: run.agent })} title="All runs of this agent">
            <AgentName run={run} />
          </a>
          {name && <> · {name}</>}
        </h1>
        <span class="run-id">
          <code class="soft" title={run.id}>
            {shortId(run.id)}
          </code>
          <Copy text={run.id} label="Copy the id" />
        </span>
        <StatusChip run={run} />
        <span class="run-acts">
          {!over && mayCancel(model) && (
            <button type="button" class="danger" onClick={() => setAsk("cancel")}>
              Cancel
            </button>
          )}
          {may("submitter") && run.loop !== "single_call" && (
            <button type="button" onClick={() => setAsk("message")}>
              {over ? "Continue" : "Message"}
            </button>
          )}
          {over && may("submitter") && canAgain(run) && (
            <button
              type="button"
              onClick={tryAgain}
              title={run.loop === "single_call" ? "Start a new run with the same input, of the version that the agent has now" : "Start a new run with the same input"}
            >
              Run again
            </button>
          )}
          {close && (
            <button type="button" class="quiet" aria-label="Close this run" onClick={close}>
              ✕
            </button>
          )}
        </span>
      </div>
      <Facts model={model} run={run} />
      {ask === "cancel" && (
        <Ask
          title="Cancel this run?"
          label="Reason"
          verb="Cancel the run"
          danger
          close={() => setAsk("")}
          send={(t) => cancel(run.id, t)}
          done="Cancelled."
          hint="What is in flight is broken off. A message continues the run later."
        />
      )}
      {ask === "message" && <Say run={run} close={() => setAsk("")} />}
    </header>
  );
}

// mayCancel: operators cancel any run, submitters what they have submitted themselves.
function mayCancel(model: RunModel): boolean {
  const by = model.entries.value[0]?.by?.principal;
  return may("operator") || (may("submitter") && by !== undefined && by === identity.value?.principal);
}

interface AskProps {
  title: string;
  label: string;
  verb: string;
  hint: string;
  done: string;
  danger?: boolean;
  close: () => void;
  send: (text: string) => Promise<unknown>;
}

function Ask(p: AskProps): JSX.Element {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (e: SubmitEvent): Promise<void> => {
    e.preventDefault();
    setBusy(true);
    const ok = await attempt(() => p.send(text), p.done);
    setBusy(false);
    if (ok) p.close();
  };
  return (
    <Dialog title={p.title} close={p.close}>
      <form onSubmit={(e) => void submit(e)}>
        <p class="soft">{p.hint}</p>
        <label>
          {p.label}
          <textarea rows={3} value={text} autofocus onInput={(e) => setText((e.target as HTMLTextAreaElement).value)} />
        </label>
        <div class="buttons">
          <button type="button" onClick={p.close}>
            Back
          </button>
          <button type="submit" class={p.danger ? "danger" : "primary"} disabled={busy}>
            {p.verb}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

// tightest names the limit that the run has used most of. The API gives the fraction alone.
function tightest({ budget: b, usage: u, turn_count }: Run): string {
  const limits: [string, number, number | null][] = [
    ["output tokens", u.output_tokens, b.output_tokens],
    ["tokens", u.input_tokens + u.output_tokens, b.total_tokens],
    ["cost limit", u.cost_usd ?? 0, b.cost_usd],
    ["turns", turn_count, b.max_turns],
  ];
  const exact = limits.find(([, used, limit]) => limit && Math.abs(used / limit - b.used_fraction) < 1e-6);
  // Of a deadline it is a fraction of time, and a run that was continued counts its turns anew.
  return exact?.[0] ?? (b.deadline ? "time" : "turns");
}

// waited is how long a run has waited for somebody or something in all, in milliseconds.
function waited(model: RunModel, at: number): number {
  let total = 0;
  let since = 0;
  for (const e of model.entries.value) {
    const t = Date.parse(e.at);
    if (since && (e.type === "transition" || e.type === "run.waiting" || e.type === "run.finished")) {
      total += t - since;
      since = 0;
    }
    if (e.type === "run.waiting") since = t;
  }
  return total + (since ? Math.max(0, at - since) : 0);
}

function Facts({ model, run }: { model: RunModel; run: Run }): JSX.Element {
  const at = run.finished_at ? Date.parse(run.finished_at) : now.value;
  const took = duration(run, at) ?? 0;
  const wait = waited(model, at);
  const b = run.budget;
  const facts: (JSX.Element | string)[] = [];
  facts.push(b.max_turns ? `${run.turn_count} of ${b.max_turns} turns` : plural(run.turn_count, "turn"));
  if (run.started_at) facts.push(wait > 999 ? `${span(Math.max(0, took - wait))} working, ${span(wait)} waiting` : span(took));
  facts.push(`${count(tokens(run))}${b.total_tokens ? ` of ${count(b.total_tokens)}` : ""} tokens${run.usage.estimated ? " (partly estimated)" : ""}`);
  const cost = costFact(run.usage.cost_usd, b.cost_usd, money);
  if (cost) facts.push(cost);
  if (run.confidence !== null) facts.push(`confidence ${run.confidence}`);
  facts.push(
    <span>
      submitted <Ago at={run.created_at} />
    </span>,
  );
  if (b.deadline && !run.finished_at) facts.push(<span title={b.deadline}>deadline {Date.parse(b.deadline) < at ? "passed" : "in " + span(Date.parse(b.deadline) - at)}</span>);
  if (run.parent) facts.push(<a href={runHref(run.parent.run_id)}>started by {shortId(run.parent.run_id)}</a>);
  const broken = model.entries.value.filter((e) => (e.type === "tool.finished" || e.type === "tool.reused") && failedResult(e));
  const used = b.used_fraction;
  const said = titleKey(run);
  const meta = Object.entries(run.metadata).filter(([k]) => k !== said);
  return (
    <div class="facts soft">
      {facts.map((f, i) => (
        <span key={i}>{f}</span>
      ))}
      {broken.length > 0 && (
        <button type="button" class="small quiet failed-calls" title="Show the first" onClick={() => setParams({ at: broken[0]!.call_id ?? String(broken[0]!.seq), fork: "" })}>
          {plural(broken.length, "tool call")} failed
        </button>
      )}
      {used > 0.005 && (
        <span class="budget" title="The limit that is nearest to its end">
          <span class={"budget-bar" + (used > 0.8 ? " high" : "")}>
            <span style={{ width: `${Math.min(100, Math.max(2, used * 100))}%` }} />
          </span>
          {percent(used)} of its {tightest(run)}
        </span>
      )}
      {meta.map(([k, v]) => (
        <a key={k} class="meta clip" href={href("runs", "", { ["metadata." + k]: v })} title="Runs with the same">
          {k}={v}
        </a>
      ))}
    </div>
  );
}
