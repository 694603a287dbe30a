// What triggers and hooks have in common: how a delivery becomes a run or a signal, and the settings as a text.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { errorOf } from "../../api/client";
import type { Mapping } from "../../api/types";
import { readSettings } from "../../lib/settings";
import { Dialog } from "../../parts/dialog";
import type { Named } from "../../store/named";
import { go, href } from "../../store/route";
import { loggedOut } from "../../store/session";
import { attempt, toast } from "../../store/toasts";

export function Makes({ of }: { of: Mapping }): JSX.Element {
  return (
    <>
      {of.run && (
        <>
          runs of <a href={href("agents", of.run.agent)}>{of.run.agent}</a>
        </>
      )}
      {of.run && of.signal && ", then "}
      {of.signal && "signals to a run"}
    </>
  );
}

interface Kind<T extends { name: string }> {
  kind: string; // as people call it
  view: string;
  store: Named<T>;
  name: string;
  close: () => void;
}

// Edit is where settings are written. The gateway checks them, and says what is wrong. Without a name it is for a
// new one.
export function Edit<T extends { name: string }>({ kind, view, store, name, close, text, note }: Kind<T> & { text: string; note: string }): JSX.Element {
  const [as, setAs] = useState(name);
  const [now, setNow] = useState(text);
  const [fault, setFault] = useState("");
  const [busy, setBusy] = useState(false);
  const save = async (e: SubmitEvent): Promise<void> => {
    e.preventDefault();
    const read = readSettings(now);
    if ("fault" in read) return setFault(read.fault);
    setBusy(true);
    setFault("");
    try {
      await store.put(as, read.settings);
      toast(`${as} is saved.`);
      close();
      if (!name) go(href(view, as));
    } catch (x) {
      const err = errorOf(x);
      loggedOut(err);
      setFault(err.message);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title={name ? `Settings of ${name}` : `New ${kind}`} close={close} wide>
      <form onSubmit={(e) => void save(e)}>
        {!name && (
          <label>
            Name
            <input name="name" required value={as} autofocus onInput={(e) => setAs(e.currentTarget.value)} />
          </label>
        )}
        <label>
          Settings, in JSON
          <textarea name="settings" class="mono" rows={14} spellcheck={false} value={now} onInput={(e) => setNow(e.currentTarget.value)} />
        </label>
        <p class="soft fine">{note}</p>
        {fault && (
          <p class="error-text" role="alert">
            {fault}
          </p>
        )}
        <div class="buttons">
          <button type="button" onClick={close}>
            Back
          </button>
          <button type="submit" class="primary" disabled={busy}>
            Save
          </button>
        </div>
      </form>
    </Dialog>
  );
}

export function Delete<T extends { name: string }>({ kind, view, store, name, close, says }: Kind<T> & { says: string }): JSX.Element {
  const act = async (): Promise<void> => {
    if (await attempt(() => store.delete(name), `${name} is deleted.`)) go(href(view));
    else close();
  };
  return (
    <Dialog title={`Delete ${name}?`} close={close}>
      <p>{says}</p>
      <div class="buttons">
        <button type="button" onClick={close}>
          Keep it
        </button>
        <button type="button" class="danger" onClick={() => void act()}>
          Delete the {kind}
        </button>
      </div>
    </Dialog>
  );
}
