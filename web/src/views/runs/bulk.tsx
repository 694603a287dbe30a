import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { ended, type Run } from "../../api/types";
import { errorOf } from "../../api/client";
import { Dialog } from "../../parts/dialog";
import { count, plural } from "../../lib/words";
import { again, cancel, cancelMatching, each } from "../../store/actions";
import { cancelFilter, type Filter } from "../../store/filter";
import { clearSelection, filter, items, selected } from "../../store/runs";
import { may } from "../../store/session";
import { toast } from "../../store/toasts";

// BulkBar acts on the runs that are selected, or on all that the filter matches.
export function BulkBar(): JSX.Element | null {
  const [what, setWhat] = useState<"cancel" | "matching" | "">("");
  const [busy, setBusy] = useState(false);
  const chosen = items.value.filter((r) => selected.value.has(r.id));
  const matching = may("operator") && items.value.length > 0 && (chosen.length > 0 || narrowed(filter.value)) && cancelFilter(filter.value, Date.now());
  if (!chosen.length && !what && !matching) return null;
  const open = chosen.filter((r) => !ended(r.status));
  const over = chosen.filter((r) => ended(r.status));
  const replay = async (): Promise<void> => {
    setBusy(true);
    const { done, failed } = await each(over, again);
    setBusy(false);
    if (done) toast(`${plural(done, "run")} started with the same input.`);
    if (failed[0]) toast(`${plural(failed.length, "run")} not: ${failed[0].message}`, "error");
    if (!failed.length) clearSelection();
  };
  return (
    <div class="bulk" role="group" aria-label="What may be done with many runs">
      {chosen.length > 0 && <span>{plural(chosen.length, "run")} selected</span>}
      {chosen.length > 0 && may("operator") && (
        <button type="button" class="small danger" disabled={!open.length} onClick={() => setWhat("cancel")}>
          Cancel {open.length || ""}
        </button>
      )}
      {chosen.length > 0 && may("submitter") && (
        <button type="button" class="small" disabled={!over.length || busy} title="Start new runs with the same input" onClick={() => void replay()}>
          Run again {over.length || ""}
        </button>
      )}
      {matching && (
        <button type="button" class="small quiet" onClick={() => setWhat("matching")}>
          Cancel all that match the filter…
        </button>
      )}
      {chosen.length > 0 && (
        <button type="button" class="small quiet" onClick={clearSelection}>
          Clear
        </button>
      )}
      {what === "cancel" && <CancelChosen runs={open} close={() => setWhat("")} />}
      {what === "matching" && <CancelMatching close={() => setWhat("")} />}
    </div>
  );
}

// narrowed is true of a filter that is one.
const narrowed = (f: Filter): boolean => f.status.length > 0 || [f.waiting, f.agent, f.parent, f.batch, f.since, f.until, ...Object.keys(f.metadata)].some(Boolean);

function Reason({ value, set }: { value: string; set: (v: string) => void }): JSX.Element {
  return (
    <label>
      Reason
      <input value={value} maxLength={500} onInput={(e) => set((e.target as HTMLInputElement).value)} />
    </label>
  );
}

function CancelChosen({ runs, close }: { runs: Run[]; close: () => void }): JSX.Element {
  const [reason, setReason] = useState("");
  const [busy, setBusy] = useState(false);
  const submit = async (e: SubmitEvent): Promise<void> => {
    e.preventDefault();
    setBusy(true);
    const { done, failed } = await each(runs, (r) => cancel(r.id, reason));
    setBusy(false);
    if (done) toast(`${plural(done, "run")} cancelled.`);
    if (failed[0]) toast(`${plural(failed.length, "run")} not: ${failed[0].message}`, "error");
    clearSelection();
    close();
  };
  return (
    <Dialog title={`Cancel ${plural(runs.length, "run")}?`} close={close}>
      <form onSubmit={(e) => void submit(e)}>
        <p class="soft">What is in flight is broken off. A message continues a cancelled run later.</p>
        <Reason value={reason} set={setReason} />
        <div class="buttons">
          <button type="button" onClick={close}>
            Back
          </button>
          <button type="submit" class="danger" disabled={busy}>
            Cancel {plural(runs.length, "run")}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

// CancelMatching asks the gateway first how many it would be.
function CancelMatching({ close }: { close: () => void }): JSX.Element {
  const [reason, setReason] = useState("");
  const [said, setSaid] = useState("");
  const [matched, setMatched] = useState<number | null>(null);
  const [busy, setBusy] = useState(false);
  const run = async (dry: boolean): Promise<void> => {
    const f = cancelFilter(filter.peek(), Date.now());
    if (!f) return;
    setBusy(true);
    try {
      let [total, cursor] = [0, ""];
      do {
        const a = await cancelMatching(f, reason, dry, cursor);
        total += dry ? a.matched : a.cancelled;
        cursor = a.next_cursor ?? "";
      } while (cursor);
      if (dry) setMatched(total);
      else {
        toast(`${plural(total, "run")} cancelled.`);
        clearSelection();
        close();
      }
    } catch (e) {
      setSaid(errorOf(e).message);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title="Cancel all runs in flight that match the filter" close={close}>
      <Reason value={reason} set={setReason} />
      {matched !== null && <p role="status">{count(matched)} match now. Those that end meanwhile are left as they are.</p>}
      {said && (
        <p class="error-text" role="alert">
          {said}
        </p>
      )}
      <div class="buttons">
        <button type="button" onClick={close}>
          Back
        </button>
        {matched === null ? (
          <button type="button" disabled={busy} onClick={() => void run(true)}>
            Count them
          </button>
        ) : (
          <button type="button" class="danger" disabled={busy || !matched} onClick={() => void run(false)}>
            Cancel {plural(matched, "run")}
          </button>
        )}
      </div>
    </Dialog>
  );
}
