import type { JSX } from "preact";
import type { Run } from "../api/types";
import { waitsFor, words } from "../lib/words";

// Shapes beside colours, for those who do not see them.
const marks: Record<string, string> = { queued: "◦", running: "▸", waiting: "‖", completed: "✓", incomplete: "◐", failed: "✕", cancelled: "⊘" };

export function StatusMark({ status }: { status: string }): JSX.Element {
  return (
    <span class={"mark s-" + status} aria-hidden="true">
      {marks[status] ?? "·"}
    </span>
  );
}

export function StatusChip({ run }: { run: Run }): JSX.Element {
  const more = run.status === "waiting" && run.reason ? " for " + waitsFor(run.reason) : run.status === "incomplete" && run.reason ? ": " + words(run.reason) : "";
  return (
    <span class={"chip s-" + run.status}>
      <StatusMark status={run.status} /> {run.status}
      {more}
    </span>
  );
}
