// What a message does to a run that is busy.
import type { Status } from "../api/types";

export type Mode = "enqueue" | "interrupt" | "rollback" | "reject";

export interface Choice {
  mode: Mode;
  name: string;
  does: string;
}

// modesOf returns what may be chosen for a run of a status, the usual one first. An ended run continues
// with any message: there is nothing to choose.
export function modesOf(status: Status): Choice[] {
  switch (status) {
    case "queued":
    case "running":
      return [
        { mode: "enqueue", name: "Enqueue", does: "The run reads it at its next turn." },
        { mode: "interrupt", name: "Interrupt", does: "The turn in flight is aborted, and the run continues with the message. The history keeps what the turn has done." },
        { mode: "rollback", name: "Roll back", does: "As interrupt, and the model never reads the turn in flight. Refused once a tool call of the turn has started." },
        { mode: "reject", name: "Only if idle", does: "Nothing is sent if the run is queued or running when the message arrives." },
      ];
    case "waiting":
      return [
        { mode: "enqueue", name: "Enqueue", does: "The run reads it, and continues to wait." },
        { mode: "interrupt", name: "Interrupt", does: "All that the run waits for is closed: calls that wait for approval are denied, and child runs are aborted. It continues with the message." },
        { mode: "rollback", name: "Roll back", does: "As interrupt, and the model never reads the turn in flight. Refused if a tool call of the turn has started." },
        { mode: "reject", name: "Only if idle", does: "As enqueue, but nothing is sent if the run has become busy." },
      ];
    default:
      return [];
  }
}

export interface Refusal {
  title: string;
  next: string; // what the user can do
  modes: Mode[]; // that would be taken
}

// refusalOf explains an error of the API that is about the mode; null of any other.
export function refusalOf(code: string, mode: Mode): Refusal | null {
  switch (code) {
    case "run_busy":
      return mode === "reject"
        ? { title: "The run is busy, so nothing was sent.", next: "Send it when the run waits or has ended, or choose what the message does to the turn in flight.", modes: ["enqueue", "interrupt"] }
        : { title: "The run continued while the message was being sent, so nothing was sent.", next: "Send it again, or interrupt the run.", modes: ["rollback", "interrupt"] };
    case "effects_started":
      return {
        title: "A tool call of this turn has started, or may have, so the turn cannot be withdrawn. Nothing was sent.",
        next: "With Interrupt, the history keeps the work done. With Enqueue, the turn ends first.",
        modes: ["interrupt", "enqueue"],
      };
    default:
      return null;
  }
}
