import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Dialog } from "../../parts/dialog";
import { invoke } from "../../store/actions";
import { go, runHref } from "../../store/route";
import { attempt } from "../../store/toasts";

// Invoke starts a run of the newest version of an agent, and opens it.
export function Invoke({ agent, close }: { agent: string; close: () => void }): JSX.Element {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (e: Event): Promise<void> => {
    e.preventDefault();
    if (busy || !text.trim()) return;
    setBusy(true);
    let id = "";
    const ok = await attempt(async () => (id = (await invoke(agent, text)).id));
    setBusy(false);
    if (!ok) return;
    close();
    go(runHref(id));
  };
  return (
    <Dialog title={`Run ${agent}`} close={close}>
      <form onSubmit={(e) => void submit(e)}>
        <label>
          Input
          <textarea name="input" rows={4} required autofocus value={text} onInput={(e) => setText((e.target as HTMLTextAreaElement).value)} />
        </label>
        <div class="buttons">
          <button type="button" onClick={close}>
            Back
          </button>
          <button type="submit" class="primary" disabled={busy} title="Ctrl-Enter">
            Run it
          </button>
        </div>
      </form>
    </Dialog>
  );
}
