import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { plural, shortId } from "../../parts/words";
import { conversationOf, type Item } from "../../store/conversation";
import type { RunModel } from "../../store/run";
import { ItemView, Live } from "./conversation";

function byTurn(items: Item[]): Map<number, Item[]> {
  const out = new Map<number, Item[]>();
  let turn = 0;
  for (const i of items) {
    if (i.kind === "message") turn = Math.max(turn, i.turn);
    out.set(turn, [...(out.get(turn) ?? []), i]);
  }
  return out;
}

// shared is the last turn that both have: one is a fork of the other.
function shared(a: RunModel, b: RunModel): number {
  for (const [x, y] of [[a, b], [b, a]] as const) {
    const m = /^(run_\w+) turn (\d+)/.exec(x.entries.value[0]?.detail ?? "");
    if (m?.[1] === y.id) return Number(m[2]);
  }
  return -1;
}

// Aligned shows two conversations turn by turn. What they share is folded.
export function Aligned({ left, right }: { left: RunModel; right: RunModel }): JSX.Element {
  const [unfolded, setUnfolded] = useState(false);
  const a = useMemo(() => byTurn(conversationOf(left.entries.value)), [left.entries.value]);
  const b = useMemo(() => byTurn(conversationOf(right.entries.value)), [right.entries.value]);
  const same = shared(left, right);
  const all = [...new Set([...a.keys(), ...b.keys()])].sort((x, y) => x - y);
  // The turn of the fork has what was said anew behind it, so it is shown.
  const turns = unfolded ? all : all.filter((t) => t >= same);
  const folded = all.length - turns.length;
  return (
    <section class="aligned" aria-label="Both conversations, turn by turn">
      {folded > 0 && (
        <button type="button" class="earlier" onClick={() => setUnfolded(true)}>
          {plural(folded, "shared turn")} before
        </button>
      )}
      {turns.map((t) => (
        <div key={t} class={"aligned-row" + (t <= same ? " shared" : "")}>
          <h3>
            turn {t}
            {t === same && <span class="soft"> shared up to here</span>}
          </h3>
          <Side items={a.get(t)} model={left} />
          <Side items={b.get(t)} model={right} />
        </div>
      ))}
      {(left.live.value || right.live.value) && (
        <div class="aligned-row">
          <h3>in flight</h3>
          <div>{left.live.value && <Live live={left.live.value} />}</div>
          <div>{right.live.value && <Live live={right.live.value} />}</div>
        </div>
      )}
    </section>
  );
}

function Side({ items, model }: { items: Item[] | undefined; model: RunModel }): JSX.Element {
  const run = model.run.value;
  if (!items || !run) return <div class="soft aligned-none">no such turn in {shortId(model.id)}</div>;
  return (
    <div>
      {items.map((i) => (
        <ItemView key={i.key} item={i} run={run} fork={false} />
      ))}
    </div>
  );
}
