import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { look, waitingRestore } from "../../store/readiness";

// Waiting says that an operator has to decide about an older copy of the store.
export function Waiting(): JSX.Element | null {
  useEffect(look, []);
  if (!waitingRestore.value) return null;
  return (
    <div class="waiting-restore" role="alert">
      <strong>waiting_restore</strong> The store is older than NATS, as after restoring a backup. No run starts or continues until an operator decides: <code>turnpike restore status</code>, then{" "}
      <code>turnpike restore accept</code> or <code>turnpike restore abandon</code>.
    </div>
  );
}
