// Dead letters: what was given up on, why, and what to do about it.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { DeadLetter } from "../../api/types";
import { Dialog } from "../../parts/dialog";
import { Fold } from "../../parts/fold";
import { JSONTree, parsed } from "../../parts/json";
import { Empty } from "../../parts/states";
import { Ticks } from "../../parts/ticks";
import { Ago } from "../../parts/time";
import { bytes, call, plural, shortId } from "../../lib/words";
import { each } from "../../store/actions";
import { href, route, runHref, setParams } from "../../store/route";
import { may } from "../../store/session";
import { dead, replay } from "../../store/site";
import { attempt, toast } from "../../store/toasts";
import { Listed } from "./parts";
import { PendingEvents } from "./pending";

const kinds: Record<string, string> = {
  poisoned: "A turn whose workers crashed or stalled",
  input_hook_failed: "A message that an input hook could not check",
  stop_hook_failed: "An answer that a stop hook could not judge",
  submission: "A submission that was refused",
  webhook: "An event that a webhook's receiver did not accept",
  trigger: "A message that a trigger could not process",
  lost: "A turn of a run that the store does not have",
  turn: "A malformed turn message",
  abort: "An abort of a run that does not exist",
};

export function DeadView(): JSX.Element {
  useEffect(() => dead.open(), []);
  const [asks, setAsks] = useState(false);
  const all = route.value.params.get("all") === "1";
  const open = dead.items.value.filter((l) => l.status === "open");
  const again = async (): Promise<void> => {
    setAsks(false);
    const { done, failed } = await each(open, replay);
    if (done) toast(`${plural(done, "letter")} replayed.`);
    if (failed[0]) toast(failed[0].message, "error");
  };
  return (
    <section class="page-view narrow">
      <div class="view-head">
        <h1>Dead letters</h1>
        {dead.loaded.value && <span class="soft">{plural(open.length, "is", "are")} open</span>}
        <span class="grow" />
        {dead.items.value.length > 0 && (
          <label class="inline">
            <input type="checkbox" checked={all} onChange={() => setParams({ all: all ? "" : "1" }, true)} /> closed ones, too
          </label>
        )}
        {open.length > 1 && may("operator") && (
          <button type="button" onClick={() => setAsks(true)}>
            Replay all {open.length}
          </button>
        )}
      </div>
      <PendingEvents />
      <Listed
        list={dead}
        what="dead letters"
        empty={
          <Empty title="There are no dead letters">
            <p class="soft">Messages that could not be processed are stored here with their cause.</p>
          </Empty>
        }
      >
        {(items) => {
          const shown = items.filter((l) => all || l.status === "open" || l.status === "replaying" || fresh.has(l.seq));
          return shown.length ? (
            <div class="letters">
              {shown.map((l) => (
                <Letter key={l.seq} l={l} />
              ))}
            </div>
          ) : (
            <Empty title={dead.cursor.value ? "None of the loaded letters can be replayed" : "None is open"}>
              <p class="soft">
                {plural(items.length, "letter")} {items.length === 1 ? "was" : "were"} dealt with.
              </p>
            </Empty>
          );
        }}
      </Listed>
      {asks && (
        <Dialog title={`Replay ${open.length} letters?`} close={() => setAsks(false)}>
          <p>Each is replayed at most once. Fix the causes first: a turn that still crashes its workers becomes a dead letter again.</p>
          <div class="buttons">
            <button type="button" onClick={() => setAsks(false)}>
              Not now
            </button>
            <button type="button" class="primary" onClick={() => void again()}>
              Replay {open.length}
            </button>
          </div>
        </Dialog>
      )}
    </section>
  );
}

// Letters that were replayed here stay in sight, so that one sees what came of it.
const fresh = new Set<number>();

function Letter({ l }: { l: DeadLetter }): JSX.Element {
  const [busy, setBusy] = useState(false);
  const again = async (): Promise<void> => {
    setBusy(true);
    fresh.add(l.seq);
    await attempt(() => replay(l), "It was replayed.");
    setBusy(false);
  };
  const data = parsed(l.data);
  return (
    <article class={"letter " + (l.status === "open" ? "s-failed" : "s-cancelled")} data-seq={l.seq} data-status={l.status}>
      <div class="letter-head">
        <strong>{kinds[l.kind] ?? l.kind}</strong>
        <span class="chip">{l.status}</span>
        {l.agent && <a href={href("agents", l.agent)}>{l.agent}</a>}
        {l.run_id && (
          <a class="mono" href={runHref(l.run_id)} title={l.run_id}>
            run {shortId(l.run_id)}
          </a>
        )}
        <span class="grow" />
        <span class="soft">
          {l.seq} · <Ago at={l.at} />
        </span>
      </div>
      <p class="cause">
        <Ticks text={l.cause} />
      </p>
      {l.attempts > 0 && <p class="soft">{plural(l.attempts, "worker")} took the turn.</p>}
      {l.calls.length > 0 && (
        <p>
          A replay makes again:{" "}
          {l.calls.map((c, i) => (
            <code key={c.id}>
              {i ? ", " : ""}
              {call(c.tool, parsed(c.arguments) ?? c.arguments)}
            </code>
          ))}
        </p>
      )}
      <p class="advice">
        <strong>{l.status === "open" ? "What to do: " : ""}</strong>
        <Ticks text={l.advice} />.
      </p>
      <div class="letter-foot">
        {l.data && <Fold summary={`the message as it came, ${bytes(l.data.length)}`}>{() => (data === undefined ? <pre>{l.data!.slice(0, 20_000)}</pre> : <JSONTree value={data} open={2} />)}</Fold>}
        <span class="grow" />
        {l.replay?.run_id && <a href={runHref(l.replay.run_id)}>See what came of it</a>}
        {l.status === "open" &&
          (may("operator") ? (
            <button type="button" class="primary" disabled={busy} onClick={() => void again()}>
              Replay
            </button>
          ) : (
            <span class="soft">Replaying it needs the role operator.</span>
          ))}
      </div>
    </article>
  );
}
