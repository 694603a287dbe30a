import type { JSX } from "preact";
import { Ticks } from "../../parts/ticks";
import { dismiss, toasts } from "../../store/toasts";

export function Toasts(): JSX.Element {
  return (
    <div class="toasts" aria-live="polite">
      {toasts.value.map((t) => (
        <div key={t.id} class={"toast " + t.kind} role={t.kind === "error" ? "alert" : undefined}>
          <span>
            <Ticks text={t.text} />
          </span>
          <button type="button" class="quiet small" aria-label="Dismiss" onClick={() => dismiss(t.id)}>
            ✕
          </button>
        </div>
      ))}
    </div>
  );
}
