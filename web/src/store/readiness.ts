// What the gateway says of the deployment, beside the runs.
import { signal } from "@preact/signals";
import { get } from "../api/client";
import type { Readiness } from "../api/types";

const every = 5000;

// waitingRestore is why the deployment waits for an operator, or empty.
export const waitingRestore = signal("");

// look asks at once and then again while the page is looked at, until the function that it returns
// is called. A gateway that is not ready says nothing new.
export function look(): () => void {
  const ask = (): void => {
    if (document.hidden) return;
    get<Readiness>("/readyz").then(
      (r) => (waitingRestore.value = r.restore.startsWith("waiting_restore") ? r.restore : ""),
      () => undefined,
    );
  };
  ask();
  const timer = setInterval(ask, every);
  return () => clearInterval(timer);
}
