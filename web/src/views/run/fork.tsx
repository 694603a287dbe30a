// A fork: exactly what may be changed of it, and the difference before it is sent.
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { errorOf } from "../../api/client";
import type { Run } from "../../api/types";
import { endsWithAnswer } from "../../lib/history";
import { diff, folded } from "../../lib/diff";
import { Lines } from "../../parts/lines";
import { Loading } from "../../parts/states";
import { shortId } from "../../lib/words";
import { toYAML } from "../../lib/yaml";
import { fork } from "../../store/actions";
import { calledIn, changeOf, type Edits, ForkModel, submittedIn, textOf } from "../../store/fork";
import { go, href, setParams } from "../../store/route";
import type { RunModel } from "../../store/run";
import { may } from "../../store/session";

// Fork starts a run that shares the history up to the end of a turn, and opens it beside its
// original.
export function Fork({ model, turn }: { model: RunModel; turn: number }): JSX.Element {
  const run = model.run.value;
  const caught = model.entries.value.length > 0;
  if (!run || !caught) return <Loading what="the run" />;
  return <Editor model={model} run={run} turn={turn} />;
}

function Editor({ model, run, turn }: { model: RunModel; run: Run; turn: number }): JSX.Element {
  const [edits, setEdits] = useState<Edits>({ results: {} });
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);
  const of = useMemo(() => new ForkModel(run), [run.id]);
  const entries = model.entries.value;
  const calls = useMemo(() => calledIn(entries, turn), [entries, turn]);
  const said = useMemo(() => (turn === 0 ? submittedIn(entries) : null), [entries, turn]);
  const needs = useMemo(() => !said && endsWithAnswer(entries, turn), [entries, turn, said]);
  const version = edits.version ?? run.agent_version;
  useEffect(() => void of.want(version), [of, version]);
  const change = changeOf(of, turn, said, calls, edits);
  const edit = (more: Partial<Edits>): void => setEdits({ ...edits, ...more });
  const submit = async (e: SubmitEvent): Promise<void> => {
    e.preventDefault();
    setBusy(true);
    try {
      const made = await fork(run.id, change);
      go(href("run", run.id, { beside: made.id }));
    } catch (err) {
      setProblem(errorOf(err).message);
      setBusy(false);
    }
  };
  const instructions = of.instructions(version);
  return (
    <form class="detail fork" onSubmit={(e) => void submit(e)}>
      <div class="section-head">
        <h2>Fork after {turn ? `turn ${turn}` : "the submission"}</h2>
        <span class="grow" />
        <button type="button" class="quiet" aria-label="Close the fork" onClick={() => setParams({ fork: "" })}>
          ✕
        </button>
      </div>
      <p class="soft">
        A new run that shares the history of {shortId(run.id)} up to the end of {turn ? `turn ${turn}` : "its submission"}. The original is not changed. Tools that ran before are not called again.
      </p>
      {of.versions.value.length > 1 && (
        <label>
          Version of {run.agent}
          <select name="version" value={String(version)} onChange={(e) => edit({ version: Number((e.target as HTMLSelectElement).value) })}>
            {[...new Set([...of.versions.value, run.agent_version])].map((v) => (
              <option key={v} value={String(v)}>
                {v}
                {v === run.agent_version ? " (that of the run)" : ""}
              </option>
            ))}
          </select>
        </label>
      )}
      {instructions !== null && (
        <label>
          Instructions
          <textarea
            name="instructions"
            rows={3}
            disabled={!may("author")}
            value={edits.instructions ?? instructions}
            placeholder="It has none"
            onInput={(e) => edit({ instructions: (e.target as HTMLTextAreaElement).value })}
          />
          {!may("author") && <span class="soft fine">Other instructions need the role author.</span>}
        </label>
      )}
      {calls.map((c) => (
        <label key={c.key}>
          Result of <span class="mono">{c.name}</span>
          <textarea
            name={"result-" + c.id}
            class="mono"
            rows={3}
            spellcheck={false}
            value={edits.results[c.key] ?? c.content}
            onInput={(e) => edit({ results: { ...edits.results, [c.key]: (e.target as HTMLTextAreaElement).value } })}
          />
        </label>
      ))}
      <label>
        {said ? "What was submitted" : "What is said next"}
        <textarea
          name="message"
          rows={3}
          required={!!said || needs}
          value={edits.message ?? (said ? (textOf(said) ?? "") : "")}
          onInput={(e) => edit({ message: (e.target as HTMLTextAreaElement).value })}
        />
        {!said && <span class="soft fine">{needs ? "The history ends with an answer of the model, so the fork needs a message." : "Optional. Without it the model is asked again."}</span>}
      </label>
      <Changes of={of} run={run} version={version} edits={edits} change={change} calls={calls} said={said ? textOf(said) : null} />
      {problem && (
        <p class="error-text" role="alert">
          {problem}
        </p>
      )}
      <div class="buttons">
        <button type="submit" class="primary" disabled={busy || (needs && !edits.message?.trim())}>
          Fork
        </button>
      </div>
    </form>
  );
}

interface ChangesProps {
  of: ForkModel;
  run: Run;
  version: number;
  edits: Edits;
  change: ReturnType<typeof changeOf>;
  calls: ReturnType<typeof calledIn>;
  said: string | null;
}

// Changes is the difference between what was and what will be sent.
function Changes({ of, run, version, edits, change, calls, said }: ChangesProps): JSX.Element {
  const parts: [string, string, string][] = [];
  const [before, after] = [of.definitions.value.get(run.agent_version), of.definitions.value.get(version)];
  if (change.agent_version !== undefined && before && after) parts.push([`${run.agent}@${run.agent_version} → @${version}`, toYAML(before.definition), toYAML(after.definition)]);
  if (change.instructions !== undefined) parts.push(["Instructions, for this run alone", of.instructions(version) ?? "", change.instructions]);
  for (const c of calls)
    if (change.tool_results?.some((r) => r.call_id === c.id) && edits.results[c.key] !== undefined) parts.push([`Result of ${c.name}: it counts as your words`, c.content, edits.results[c.key]!]);
  if (change.messages) parts.push(["What was submitted", said ?? "", edits.message ?? ""]);
  if (change.input) parts.push(["What is said next", "", change.input]);
  return (
    <section class="fork-changes" aria-label="What is different">
      <h3>What is different</h3>
      {!parts.length && <p class="soft">Nothing: the model is asked again with the same history.</p>}
      {parts.map(([title, old, fresh]) => (
        <div key={title}>
          <p class="soft fine">{title}</p>
          <Lines lines={folded(diff(old, fresh), 1).filter((l) => l.kind !== "old" || old !== "")} />
        </div>
      ))}
    </section>
  );
}
