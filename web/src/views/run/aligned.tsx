import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { plural, shortId } from "../../lib/words";
import { conversationOf, type Item } from "../../lib/conversation";
import type { ForkSource } from "../../api/types";
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

// forkOf is where one of two runs was forked from the other.
function forkOf(a: RunModel, b: RunModel): ForkSource | undefined {
  return [a.entries.value[0]?.forked_from, b.entries.value[0]?.forked_from].find((f) => f?.run_id === a.id || f?.run_id === b.id);
}

// text is what was said in a turn, and what its calls came to, without what differs in any fork.
const text = (items: Item[] | undefined): string =>
  JSON.stringify(
    (items ?? [])
      .filter((i) => i.kind !== "note")
      .map((i) => [i.message?.role, i.message?.parts, [...(i.results ?? [])].map(([id, e]) => [id, (e.message?.parts ?? []).map((p) => [p.content, p.is_error])])]),
  );

// Aligned shows two conversations turn by turn. What they share is folded.
export function Aligned({ left, right }: { left: RunModel; right: RunModel }): JSX.Element {
  const [unfolded, setUnfolded] = useState(false);
  const a = useMemo(() => byTurn(conversationOf(left.entries.value)), [left.entries.value]);
  const b = useMemo(() => byTurn(conversationOf(right.entries.value)), [right.entries.value]);
  const fork = forkOf(left, right);
  const same = fork?.turn ?? -1;
  const all = [...new Set([...a.keys(), ...b.keys()])].sort((x, y) => x - y);
  // The turn of the fork has what was said anew behind it, so it is shown, and so is a turn of
  // which the fork has changed something.
  const other = useMemo(() => new Set(all.filter((t) => t < same && text(a.get(t)) !== text(b.get(t)))), [a, b, same]);
  const turns = unfolded ? all : all.filter((t) => t >= same || other.has(t));
  const folded = all.length - turns.length;
  return (
    <section class="aligned" aria-label="Both conversations, turn by turn">
      {fork?.changed && <p class="fork-changed">The fork changes {fork.changed.join(", ")}.</p>}
      {folded > 0 && (
        <button type="button" class="earlier" onClick={() => setUnfolded(true)}>
          {plural(folded, "shared turn")} before
        </button>
      )}
      {turns.map((t) => (
        <div key={t} class={"aligned-row" + (t <= same && !other.has(t) ? " shared" : "")}>
          <h3>
            turn {t}
            {other.has(t) && <span class="soft"> changed by the fork</span>}
            {t === same && <span class="soft"> shared up to here</span>}
          </h3>
          <Side items={a.get(t)} model={left} />
          <Side items={b.get(t)} model={right} />
        </div>
      ))}
      <InFlight left={left} right={right} />
    </section>
  );
}

// InFlight alone is drawn again with each word that arrives.
function InFlight({ left, right }: { left: RunModel; right: RunModel }): JSX.Element | null {
  if (!left.live.value && !right.live.value) return null;
  return (
    <div class="aligned-row">
      <h3>in flight</h3>
      <div>{left.live.value && <Live live={left.live.value} />}</div>
      <div>{right.live.value && <Live live={right.live.value} />}</div>
    </div>
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
