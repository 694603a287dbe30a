import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Run } from "../../api/types";
import { JSONTree } from "../../parts/json";
import { Markdown } from "../../parts/markdown";
import { Sources } from "../../parts/sources";
import { Ticks } from "../../parts/ticks";
import { shortId, until, words } from "../../lib/words";
import { now } from "../../store/clock";
import { href } from "../../store/route";
import type { RunModel } from "../../store/run";
import { may } from "../../store/session";
import { replayRun } from "../../store/site";
import { attempt } from "../../store/toasts";

const remedies: Record<string, string> = {
  model_error: "The model could not be reached, or its provider refused the call. Check its address and key, then run it again.",
  invalid_output: "The model's answer did not match the schema. Make the schema or the instructions clearer, or use a stronger model.",
  invalid_agent: "The workers cannot run its definition. Find the missing tool or secret with `turnpike doctor`.",
  poisoned: "Each worker that executed this turn crashed or stalled. Fix the cause, then replay it.",
  input_hook_failed: "An input hook must check the message and could not. Repair the hook, then replay it: the hook checks the same message.",
  stop_hook_failed: "A stop hook must judge the answer and could not. Repair the hook, then replay it: the hook judges the same answer.",
  lost: "The store has lost its checkpoint, so it cannot be replayed. Submit its input again as a new run.",
  expired: "No answer came in time. Continue it with a message, or run it again.",
  max_turns: "It reached its limit of turns. Continue it with a message, or raise limits.max_turns.",
  cost_budget_exhausted: "It reached its cost limit. Raise limits.cost_usd, then run it again.",
  token_budget_exhausted: "It reached its token limit. Raise limits.output_tokens or limits.total_tokens, then run it again.",
  deadline_exceeded: "It did not finish before its deadline. Set a later limits.deadline, then run it again.",
  tool_loop: "The model repeated the same tool calls. Make the instructions clearer, or raise loop.tool_loop_threshold.",
  refused: "The model refused to answer. Change the input or the instructions, or use another model.",
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
export function Outcome({ model, run }: { model: RunModel; run: Run }): JSX.Element | null {
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
        <Sources parts={model.entries.value.findLast((e) => e.type === "model.message")?.message?.parts ?? []} />
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
