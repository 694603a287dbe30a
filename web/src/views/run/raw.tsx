import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import type { JSONValue, Run } from "../../api/types";
import { JSONTree } from "../../parts/json";
import { Loading, Problem } from "../../parts/states";
import type { RunModel } from "../../store/run";

// Raw shows the run as the API gives it, read again whenever it has changed.
export function Raw({ model, run }: { model: RunModel; run: Run }): JSX.Element {
  useEffect(() => void model.readWhole(), [model, run.version, run.status]);
  const whole = model.whole.value;
  const error = model.wholeError.value;
  const save = (): void => {
    const text = JSON.stringify({ run: whole, events: model.entries.peek() }, null, 2);
    const a = document.createElement("a");
    a.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    a.download = run.id + ".json";
    a.click();
    URL.revokeObjectURL(a.href);
  };
  return (
    <section aria-label="JSON" class="raw">
      {error && <Problem error={error} again={() => void model.readWhole()} />}
      {!whole && !error && <Loading what="the run" />}
      {whole && (
        <>
          <p>
            <button type="button" class="small" onClick={save}>
              Save with all events
            </button>
          </p>
          <JSONTree value={whole as unknown as JSONValue} open={2} />
        </>
      )}
    </section>
  );
}
