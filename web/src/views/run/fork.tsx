import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { errorOf } from "../../api/client";
import { Loading } from "../../parts/states";
import { shortId } from "../../parts/words";
import { fork } from "../../store/actions";
import { go, href, setParams } from "../../store/route";
import type { RunModel } from "../../store/run";

// Fork starts a run that shares the history up to the end of a turn, and opens it beside its
// original.
export function Fork({ model, turn }: { model: RunModel; turn: number }): JSX.Element {
  const [text, setText] = useState("");
  const [said, setSaid] = useState("");
  const [busy, setBusy] = useState(false);
  const run = model.run.value;
  if (!run) return <Loading what="the run" />;
  const submit = async (e: SubmitEvent): Promise<void> => {
    e.preventDefault();
    setBusy(true);
    try {
      const made = await fork(run.id, text ? { turn, input: text } : { turn });
      go(href("run", run.id, { beside: made.id }));
    } catch (err) {
      setSaid(errorOf(err).message);
      setBusy(false);
    }
  };
  return (
    <form class="detail" onSubmit={(e) => void submit(e)}>
      <div class="section-head">
        <h2>Fork after turn {turn}</h2>
        <span class="grow" />
        <button type="button" class="quiet" aria-label="Close the fork" onClick={() => setParams({ fork: "" })}>
          ✕
        </button>
      </div>
      <p class="soft">
        A new run that shares the history of {shortId(run.id)} up to the end of {turn ? `turn ${turn}` : "its submission"}. The original is not changed. Tools that ran before are not called again.
      </p>
      <label>
        Message
        <textarea rows={4} value={text} placeholder="What is said next (needed behind an answer of the model)" onInput={(e) => setText((e.target as HTMLTextAreaElement).value)} />
      </label>
      {said && (
        <p class="error-text" role="alert">
          {said}
        </p>
      )}
      <div class="buttons">
        <button type="submit" class="primary" disabled={busy}>
          Fork
        </button>
      </div>
    </form>
  );
}
