// Why a call that an approver has edited asks for approval again.
import type { JSX } from "preact";
import type { AskedAgain, WaitCall } from "../api/types";
import { type Change, changes } from "../lib/schema";
import { escaped } from "../lib/visible";

const because: Record<AskedAgain["reason"], string> = {
  rule: "The approval rule of the tool matches the new arguments, so the call asks again.",
  hook: "A hook requires approval for the new arguments, so the call asks again.",
  four_eyes: "With four eyes another person must approve the new arguments.",
};

export function Again({ call }: { call: WaitCall }): JSX.Element | null {
  const again = call.again;
  if (!again) return null;
  return (
    <div class="provenance asks-again" role="note" aria-label="Why it asks again">
      <p>
        {again.edited_by || "An approver"} edited the arguments. {because[again.reason]}
      </p>
      {again.original_arguments !== null && call.arguments !== null && <Changes list={changes(again.original_arguments, call.arguments)} name="What was changed" />}
    </div>
  );
}

// Changes lists how arguments differ from those before.
export function Changes({ list, name }: { list: Change[]; name: string }): JSX.Element | null {
  if (!list.length) return null;
  return (
    <ul class="diff plain" aria-label={name}>
      {list.map((d) => (
        <li key={d.path}>
          <span class="mono">{d.path}</span> {d.from !== undefined && <del>{escaped(JSON.stringify(d.from))}</del>} {d.to !== undefined && <ins>{escaped(JSON.stringify(d.to))}</ins>}
        </li>
      ))}
    </ul>
  );
}
