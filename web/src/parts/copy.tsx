import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { Icon } from "./icon";

export function Copy({ text, label = "Copy" }: { text: string; label?: string }): JSX.Element {
  const [done, setDone] = useState(false);
  const copy = async (): Promise<void> => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      return; // pages without TLS have no clipboard
    }
    setDone(true);
    setTimeout(() => setDone(false), 1200);
  };
  return (
    <button type="button" class="quiet small" aria-label={label} title={label} onClick={() => void copy()}>
      <Icon name={done ? "check" : "copy"} />
    </button>
  );
}
