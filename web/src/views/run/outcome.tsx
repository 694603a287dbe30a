import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Run } from "../../api/types";
import { JSONTree } from "../../parts/json";
import { Markdown } from "../../parts/markdown";
import { Ticks } from "../../parts/ticks";
import { shortId, until, words } from "../../lib/words";
import { now } from "../../store/clock";
import { href } from "../../store/route";
import { may } from "../../store/session";
import { replayRun } from "../../store/site";
import { attempt } from "../../store/toasts";

const remedies: Record<string, string> = {
  model_error: "The model could not be reached or refused. See that its address and key are right, then run it again.",
  invalid_output: "The model's answer did not fit the schema. Make the schema or the instructions clearer, or take a stronger model.",
  invalid_agent: "Its definition cannot be run by the workers. `turnpike doctor` says which tool or secret they lack.",
  poisoned: "Each worker that took this turn died of it. Mend the cause, then replay it.",
  input_hook_failed: "An input hook must check the message and could not. Repair the hook, then replay it: the hook checks the same message.",
  stop_hook_failed: "A stop hook must judge the answer and could not. Repair the hook, then replay it: the hook judges the same answer.",
  lost: "The store has lost its checkpoint, so there is nothing to replay. Submit it again.",
  expired: "Nobody answered in time. Continue it with a message, or run it again.",
  max_turns: "It used all turns that it may take. Continue it with a message, or raise limits.max_turns.",
  cost_budget_exhausted: "It used all the money that it may spend. Raise limits.cost_usd to run it again.",
  token_budget_exhausted: "It used all tokens that it may use.",
  deadline_exceeded: "It was not done when its deadline came.",
  tool_loop: "The model made the same calls over and over.",
  refused: "The model refuses to answer this.",
};

// Replay continues a run whose end is a dead letter.
function Replay({ run }: { run: Run }): JSX.Element {
  const [busy, setBusy] = useState(false);
  const again = async (): Promise<void> => {
    setBusy(true);
    await attempt(() => replayRun(run.id), "It was replayed.");
    setBusy(false);
  };
  return (
    <div class="needs-acts">
      {may("operator") ? (
        <button type="button" class="primary" disabled={busy} onClick={() => void again()}>
          Replay
        </button>
      ) : (
        <span class="soft">A replay needs the role operator.</span>
      )}
      <a href={href("dead")}>Dead letters</a>
    </div>
  );
}

const replayable = ["poisoned", "input_hook_failed", "stop_hook_failed"];

// Outcome is what matters most: the error, the answer, or why it waits by itself.
export function Outcome({ run }: { run: Run }): JSX.Element | null {
  if (run.status === "failed" || run.status === "incomplete" || run.status === "cancelled") {
    const code = run.error?.code ?? run.reason ?? run.status;
    const text = run.error?.message ?? run.transition.detail;
    return (
      <section class={"card outcome " + { failed: "bad", incomplete: "part", cancelled: "over" }[run.status]} aria-label={`How ${shortId(run.id)} ended`}>
        <h2>{words(code)}</h2>
        {text && (
          <p class="outcome-text">
            <Ticks text={text} />
          </p>
        )}
        {remedies[code] && (
          <p class="soft">
            <Ticks text={remedies[code]} />
          </p>
        )}
        {replayable.includes(code) && <Replay run={run} />}
        {run.output && (
          <details>
            <summary>What it had said by then</summary>
            <Markdown text={run.output} />
          </details>
        )}
      </section>
    );
  }
  if (run.status === "completed") {
    if (!run.output && run.structured_output === null) return null;
    return (
      <section class="card outcome good" aria-label={`Answer of ${shortId(run.id)}`}>
        {run.structured_output !== null ? <JSONTree value={run.structured_output} open={3} /> : <Markdown text={run.output ?? ""} />}
      </section>
    );
  }
  if (run.waiting?.reason === "waiting_schedule" && run.waiting.expires_at) {
    return (
      <section class="card outcome warn" aria-label={`Why ${shortId(run.id)} waits`}>
        <p>
          {run.transition.detail || "It waits for its time."} <strong>Goes on {until(run.waiting.expires_at, now.value)}.</strong>
        </p>
      </section>
    );
  }
  return null;
}
