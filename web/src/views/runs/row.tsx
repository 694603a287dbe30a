import { memo } from "../../parts/memo";
import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Run } from "../../api/types";
import { Ago } from "../../parts/time";
import { StatusMark } from "../../parts/status";
import { count, duration, gist, money, plural, shortId, span, tokens, troubles } from "../../lib/words";
import { again, canAgain } from "../../store/actions";
import { now } from "../../store/clock";
import { go, runHref } from "../../store/route";
import { at, past, selected, toggle } from "../../store/runs";
import { may } from "../../store/session";
import { attempt, toast } from "../../store/toasts";
import { type Ask, canApprove } from "./decide";

interface Props {
  run: Run;
  i: number;
  here: boolean;
  of: number; // so many rows
  ask: (a: Ask) => void;
}

// What may name a run for people, in its metadata.
const titles = ["title", "name", "ticket", "subject"];

export const titleKey = (r: Run): string => titles.find((k) => r.metadata[k]) ?? "";
export const title = (r: Run): string => r.metadata[titleKey(r)] ?? "";

// AgentName is the agent with its version. A draft has a name that nobody chose: it is shown as
// what it is a draft of.
export function AgentName({ run }: { run: Run }): JSX.Element {
  const of = run.agent.startsWith("draft-") ? (run.metadata["draft"] ?? "") : "";
  return (
    <>
      {of || run.agent}
      <span class="soft">{of ? " draft" : `@${run.agent_version}`}</span>
    </>
  );
}

export const Row = memo(function Row({ run, i, of, here, ask }: Props): JSX.Element {
  const g = gist(run, run.status === "waiting" ? now.value : Date.now());
  const took = duration(run, run.finished_at ? 0 : now.value);
  const marked = selected.value.has(run.id);
  const name = title(run);
  const wrong = troubles(run);
  const link = useRef<HTMLAnchorElement>(null);
  // The focus is where the keyboard is, unless the reader is busy outside of the list.
  useLayoutEffect(() => {
    if (here && (document.activeElement === document.body || document.activeElement?.closest(".virtual"))) link.current?.focus({ preventScroll: true });
  }, [here]);
  return (
    <div
      role="listitem"
      aria-setsize={of}
      aria-posinset={i + 1}
      class={"row s-" + run.status + (here ? " here" : "") + (past.value.has(run.id) ? " past" : "")}
      aria-current={here ? "true" : undefined}
      data-run={run.id}
      onClick={(e) => open(e, run, i)}
    >
      <input type="checkbox" checked={marked} aria-label={`Select run ${shortId(run.id)}`} onClick={(e) => e.stopPropagation()} onChange={() => toggle(run.id)} />
      <a ref={link} class={name ? "row-id named" : "row-id mono"} href={runHref(run.id)} title={name ? `${titleKey(run)} of ${run.id}: ${name}` : run.id}>
        {name ? (
          <>
            <span>{name}</span> <small class="mono soft">{shortId(run.id)}</small>
          </>
        ) : (
          shortId(run.id)
        )}
      </a>
      <span class="row-agent clip" title={`${run.agent}, version ${run.agent_version}`}>
        <AgentName run={run} />
      </span>
      {/* in narrow windows, in the place of the columns */}
      <span class="row-facts clip">
        {[run.status, took !== null && run.started_at ? span(took) : "", run.turn_count ? plural(run.turn_count, "turn") : "", money(run.usage.cost_usd)].filter(Boolean).join(" · ")}
      </span>
      <span class="row-gist clip">
        <StatusMark status={run.status} /> <span class="visually-hidden">{run.status}: </span>
        {g.lead && <strong>{g.lead}</strong>}
        {g.lead && g.text ? ": " : ""}
        {wrong.length > 0 && (
          <span class="row-trouble" title={wrong.join(", ")}>
            <span aria-hidden="true">⚠ </span>
            {wrong.join(" · ")}
          </span>
        )}
        {g.text}
      </span>
      <span class="row-acts">
        <Acts run={run} ask={ask} />
      </span>
      <span class="row-num r-dur" title="time from start to end">
        {took !== null && run.started_at ? span(took) : ""}
      </span>
      <span class="row-num r-turns">{run.turn_count ? count(run.turn_count) : ""}</span>
      <span class="row-num r-tok">{tokens(run) ? count(tokens(run)) : ""}</span>
      <span class="row-num r-cost">{money(run.usage.cost_usd)}</span>
      <span class="row-num r-age">
        <Ago at={run.created_at} />
      </span>
    </div>
  );
});

function open(e: MouseEvent, run: Run, i: number): void {
  if ((e.target as HTMLElement).closest("a, button, input") || getSelection()?.toString()) return;
  at.value = i;
  if (e.metaKey || e.ctrlKey) window.open(runHref(run.id));
  else go(runHref(run.id));
}

function Acts({ run, ask }: { run: Run; ask: (a: Ask) => void }): JSX.Element | null {
  if (canApprove(run) && may("approver"))
    return (
      <>
        <button type="button" class="small primary" onClick={() => ask({ run, decision: "approve" })}>
          Approve
        </button>
        <button type="button" class="small" onClick={() => ask({ run, decision: "deny" })}>
          Deny
        </button>
      </>
    );
  if (run.status === "waiting" && ["waiting_human_input", "waiting_client_tool", "waiting_tool", "waiting_approval"].includes(run.reason ?? ""))
    return (
      <a class="button small" href={runHref(run.id)}>
        Answer
      </a>
    );
  if (run.status === "failed" && may("submitter") && canAgain(run))
    return (
      <button type="button" class="small" title="Start a new run with the same input" onClick={() => void retry(run)}>
        Try again
      </button>
    );
  return null;
}

async function retry(run: Run): Promise<void> {
  let fresh: Run | null = null;
  if (await attempt(async () => (fresh = await again(run)))) toast(`Run ${shortId(fresh!.id)} tries the same again.`);
}
