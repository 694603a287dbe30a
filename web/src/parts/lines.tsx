import type { JSX } from "preact";
import type { Line } from "../lib/diff";

const signs = { same: " ", old: "−", new: "+", gap: "⋯" };
const spoken = { same: "", old: "taken away: ", new: "added: ", gap: "" };

// Lines draws the difference of two texts.
export function Lines({ lines }: { lines: Line[] }): JSX.Element {
  return (
    <div class="diff" role="region" tabIndex={0} aria-label="Lines that differ">
      {lines.map((l, i) => (
        <div key={i} class={"d-" + l.kind}>
          <span class="d-num" aria-hidden="true">
            {l.a ?? ""}
          </span>
          <span class="d-num" aria-hidden="true">
            {l.b ?? ""}
          </span>
          <span class="d-sign" aria-hidden="true">
            {signs[l.kind]}
          </span>
          <code>
            {spoken[l.kind] && <span class="visually-hidden">{spoken[l.kind]}</span>}
            {l.text}
          </code>
        </div>
      ))}
    </div>
  );
}
