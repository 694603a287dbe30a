import type { JSX } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Run } from "../../api/types";
import { Fold } from "../../parts/fold";
import { parsed } from "../../parts/json";
import { Growing } from "../../parts/markdown";
import { clock } from "../../parts/time";
import { conversationOf, type Item } from "../../lib/conversation";
import type { LiveTurn } from "../../lib/live";
import type { RunModel } from "../../store/run";
import { may } from "../../store/session";
import { Bubble, CallCard } from "./message";

const atFirst = 12; // items that are drawn at first: more than a large window shows below the timeline
const step = 240; // and with each click more

// Conversation shows the newest of a long run, and what was before on demand.
export function Conversation({ model, run }: { model: RunModel; run: Run }): JSX.Element {
  const [most, setMost] = useState(atFirst);
  const entries = model.entries.value;
  const items = useMemo(() => conversationOf(entries), [entries]);
  const hidden = Math.max(0, items.length - most);
  const shown = items.slice(hidden);
  const forkable = may("submitter") && run.loop !== "single_call";
  const ends = useMemo(() => lastOfTurns(items), [items]);
  return (
    <section class="conversation" aria-label="Conversation">
      {hidden > 0 && (
        <button type="button" class="earlier" onClick={() => setMost(most + step)}>
          {hidden} earlier
        </button>
      )}
      {shown.map((i) => (
        <div key={i.key} class="turn-item" data-turn={i.turn}>
          <ItemView item={i} run={run} fork={forkable && ends.get(i.turn) === i.key && whole(i.turn, run)} />
        </div>
      ))}
      <Tail model={model} run={run} length={items.length} />
      {!items.length && <p class="soft center">{entries.length ? "Nothing was said yet." : "Reading the log…"}</p>}
    </section>
  );
}

// Tail is what is not committed yet. It alone is drawn again with each word that arrives.
function Tail({ model, run, length }: { model: RunModel; run: Run; length: number }): JSX.Element {
  const live = model.live.value;
  return (
    <>
      {model.superseded.value.map((l) => (
        <Live key={`${l.turn}/${l.attempt}`} live={l} />
      ))}
      {live && !run.finished_at && <Live live={live} />}
      <Follow on={run.status === "running" || run.status === "queued"} length={length} text={live?.text.length ?? 0} />
    </>
  );
}

// Follow keeps the end in sight while it grows, if the reader is there.
function Follow({ on, length, text }: { on: boolean; length: number; text: number }): null {
  const was = useRef(false);
  const near = (): boolean => scrollY > 0 && innerHeight + scrollY > document.documentElement.scrollHeight - 120;
  useEffect(() => {
    const scrolled = (): void => {
      was.current = near();
    };
    addEventListener("scroll", scrolled, { passive: true });
    return () => removeEventListener("scroll", scrolled);
  }, []);
  useEffect(() => {
    if (on && was.current) scrollTo({ top: document.documentElement.scrollHeight });
  }, [length, text]);
  return null;
}

// whole is true of a turn that has ended: a fork shares whole turns.
const whole = (turn: number, run: Run): boolean => turn < run.turn_count || (turn === run.turn_count && (run.status !== "waiting" || run.reason === "waiting_schedule"));

function lastOfTurns(items: Item[]): Map<number, string> {
  const last = new Map<number, string>();
  for (const i of items) if (i.kind === "message") last.set(i.turn, i.key);
  return last;
}

export function ItemView({ item, run, fork }: { item: Item; run: Run; fork: boolean }): JSX.Element {
  if (item.kind === "note") {
    return (
      <div class={"note " + (item.tone ?? "")} data-tie={"s" + item.entry.seq}>
        <time class="soft" title={item.entry.at}>
          {clock(item.entry.at)}
        </time>{" "}
        {item.text}
        {item.by && <span class="soft"> by {item.by}</span>}
      </div>
    );
  }
  return <Bubble item={item} run={run} fork={fork} />;
}

// Live is what is heard of a turn while it happens. What a dead worker had said stays, marked.
export function Live({ live }: { live: LiveTurn }): JSX.Element | null {
  const written = live.calls.filter((c) => c.arguments && !c.since);
  if (!live.text && !live.thinking && !written.length) {
    if (live.superseded) return null;
    return live.calls.length ? null : (
      <div class="bubble assistant live-bubble" data-tie="live">
        <div class="who-line">
          turn {live.turn} <span class="soft">{live.worker} asks the model</span>
          <span class="caret" aria-hidden="true" />
        </div>
      </div>
    );
  }
  return (
    <div class={"bubble assistant live-bubble" + (live.superseded ? " gone" : "")} data-tie="live">
      <div class="who-line">
        turn {live.turn} <span class="soft">{live.superseded ? `attempt ${live.attempt} on ${live.worker}: superseded, its worker died` : `${live.worker} streams`}</span>
      </div>
      {live.cut && <p class="soft fine">The page did not receive its beginning. The whole text appears when the turn is committed.</p>}
      {live.thinking && (
        <Fold class="thinking" summary="Reasoning">
          {() => <Growing text={live.thinking} />}
        </Fold>
      )}
      {live.text && (
        <div class="streaming" aria-live="off">
          <Growing text={live.text} />
          {!live.superseded && <span class="caret" aria-hidden="true" />}
        </div>
      )}
      {written.map((c) => (
        <CallCard key={c.id} id={c.id} name={c.name} args={parsed(c.arguments) ?? c.arguments} state="writing" />
      ))}
    </div>
  );
}
