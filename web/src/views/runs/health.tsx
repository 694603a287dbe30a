import type { JSX } from "preact";
import { useEffect } from "preact/hooks";
import { followHealth, looked, signs } from "../../store/health";

// Health answers whether anything is wrong. Each sign leads to what it counts.
export function Health(): JSX.Element | null {
  useEffect(followHealth, []);
  const bad = signs.value.some((s) => s.bad);
  return (
    <ul class="health" aria-label="Is anything wrong?">
      {!bad && <li class="soft">{looked.value ? "Nothing is wrong." : ""}</li>}
      {signs.value.map((s) => (
        <li key={s.key} class={s.bad ? "bad" : ""}>
          <a href={s.href} data-sign={s.key}>
            {s.bad && <span aria-hidden="true">⚠ </span>}
            {s.text}
          </a>
        </li>
      ))}
    </ul>
  );
}
