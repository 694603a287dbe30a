// A message to a run: what it says, and what it does to a run that is busy.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { errorOf } from "../../api/client";
import { ended, type Run } from "../../api/types";
import { Dialog } from "../../parts/dialog";
import { type Mode, modesOf, type Refusal, refusalOf } from "../../lib/modes";
import { say } from "../../store/actions";
import { loggedOut } from "../../store/session";
import { toast } from "../../store/toasts";

export function Say({ run, close }: { run: Run; close: () => void }): JSX.Element {
  const [text, setText] = useState("");
  const [mode, setMode] = useState<Mode>("enqueue");
  const [busy, setBusy] = useState(false);
  const [refusal, setRefusal] = useState<Refusal | null>(null);
  const over = ended(run.status);
  const modes = modesOf(run.status);
  const choose = (m: Mode): void => {
    setMode(m);
    setRefusal(null);
  };
  const send = async (as: Mode): Promise<void> => {
    setBusy(true);
    try {
      await say(run.id, text, as);
      toast("Sent.");
      close();
    } catch (e) {
      const err = errorOf(e);
      loggedOut(err);
      const why = refusalOf(err.code, as);
      setRefusal(why);
      if (!why) toast(err.message, "error");
    } finally {
      setBusy(false);
    }
  };
  const submit = (e: SubmitEvent): void => {
    e.preventDefault();
    void send(modes.length ? mode : "enqueue");
  };
  return (
    <Dialog title={over ? "Continue with a message" : "Say something to the run"} close={close}>
      <form onSubmit={submit}>
        <label>
          Message
          <textarea rows={3} required value={text} autofocus onInput={(e) => setText(e.currentTarget.value)} />
        </label>
        {modes.length > 0 ? (
          <fieldset class="modes">
            <legend>{run.status === "waiting" ? "The run waits" : "The run is busy"}</legend>
            {modes.map((m) => (
              <label key={m.mode}>
                <input type="radio" name="mode" value={m.mode} checked={mode === m.mode} onChange={() => choose(m.mode)} /> {m.name}
                <span class="soft fine">{m.does}</span>
              </label>
            ))}
          </fieldset>
        ) : (
          <p class="soft">The run continues with it.</p>
        )}
        {refusal && (
          <div class="stale refusal" role="alert">
            <p>
              <strong>{refusal.title}</strong>
            </p>
            <p>{refusal.next}</p>
            <div class="buttons">
              {modes
                .filter((m) => refusal.modes.includes(m.mode))
                .map((m) => (
                  <button
                    type="button"
                    key={m.mode}
                    class="small"
                    disabled={busy || !text}
                    onClick={() => {
                      choose(m.mode);
                      void send(m.mode);
                    }}
                  >
                    {m.name}
                  </button>
                ))}
            </div>
          </div>
        )}
        <div class="buttons">
          <button type="button" onClick={close}>
            Back
          </button>
          <button type="submit" class="primary" disabled={busy}>
            Send
          </button>
        </div>
      </form>
    </Dialog>
  );
}
