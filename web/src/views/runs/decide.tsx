import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { Run } from "../../api/types";
import { Again } from "../../parts/again";
import { Dialog } from "../../parts/dialog";
import { JSONTree } from "../../parts/json";
import { Provenance } from "../../parts/provenance";
import { Risk } from "../../parts/risk";
import { shortId } from "../../lib/words";
import { decide } from "../../store/actions";
import { runHref } from "../../store/route";
import { attempt } from "../../store/toasts";

export interface Ask {
  run: Run;
  decision: "approve" | "deny";
}

// canApprove is true where the list shows the whole of the one call that waits: its
// arguments were not cut out of the summary, so what is looked at is what is approved.
export function canApprove(r: Run): boolean {
  const c = r.waiting?.calls;
  return r.reason === "waiting_approval" && c?.length === 1 && c[0]!.needs === "approval" && c[0]!.arguments !== null;
}

export function DecisionDialog({ ask, close }: { ask: Ask; close: () => void }): JSX.Element {
  const [reason, setReason] = useState("");
  const [busy, setBusy] = useState(false);
  const call = ask.run.waiting!.calls[0]!;
  const verb = ask.decision === "approve" ? "Approve" : "Deny";
  const submit = async (e: SubmitEvent): Promise<void> => {
    e.preventDefault();
    setBusy(true);
    const ok = await attempt(() => decide(ask.run.id, call, { decision: ask.decision, reason }), `${call.tool}: ${ask.decision === "approve" ? "approved" : "denied"}`);
    setBusy(false);
    if (ok) close();
  };
  return (
    <Dialog title={`${verb} ${call.tool}?`} close={close}>
      <form onSubmit={(e) => void submit(e)}>
        <p class="soft">
          <Risk call={call} /> {ask.run.agent} · <a href={runHref(ask.run.id)}>{shortId(ask.run.id)}</a> · {call.message}
        </p>
        <Again call={call} />
        <JSONTree value={call.arguments} open={3} />
        <Provenance call={call} />
        <label>
          Reason {ask.decision === "deny" && <span class="soft">(the model reads it)</span>}
          <input value={reason} onInput={(e) => setReason((e.target as HTMLInputElement).value)} maxLength={1000} />
        </label>
        <div class="buttons">
          <button type="button" onClick={close} autofocus>
            Back
          </button>
          <button type="submit" class={ask.decision === "approve" ? "primary" : "danger"} disabled={busy}>
            {verb}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
