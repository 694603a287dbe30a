import type { JSX } from "preact";
import type { JSONValue, Run } from "../../api/types";
import { JSONTree } from "../../parts/json";
import type { RunModel } from "../../store/run";

export function Raw({ model, run }: { model: RunModel; run: Run }): JSX.Element {
  const save = (): void => {
    const text = JSON.stringify({ run, events: model.entries.peek() }, null, 2);
    const a = document.createElement("a");
    a.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    a.download = run.id + ".json";
    a.click();
    URL.revokeObjectURL(a.href);
  };
  return (
    <section aria-label="JSON" class="raw">
      <p>
        <button type="button" class="small" onClick={save}>
          Save with all events
        </button>
      </p>
      <JSONTree value={run as unknown as JSONValue} open={2} />
    </section>
  );
}
