import type { ComponentChildren, JSX } from "preact";
import type { Event, JSONValue } from "../../api/types";
import { Fold } from "../../parts/fold";
import { JSONTree } from "../../parts/json";
import { exact } from "../../parts/time";
import { count, money, span, words } from "../../lib/words";
import { setParams } from "../../store/route";
import type { RunModel } from "../../store/run";
import { ResultView } from "./message";

// Detail is all that is known of one bar, message or entry. at is the number of an entry, or
// the id of a call.
export function Detail({ model, at }: { model: RunModel; at: string }): JSX.Element {
  const entries = model.entries.value;
  const entry = /^\d+$/.test(at) ? entries.find((e) => String(e.seq) === at) : entries.find((e) => e.call_id === at);
  const asked = entries.find((e) => e.message?.parts?.some((p) => p.type === "tool_call" && p.id === (entry?.call_id ?? at)));
  const call = asked?.message?.parts?.find((p) => p.id === (entry?.call_id ?? at));
  const live = model.working.value?.calls.find((c) => c.id === at);
  const title = call ? (call.name ?? "call") : entry ? entry.type : at === "live" ? "In flight" : "Not here";
  return (
    <div class="detail">
      <div class="section-head">
        <h2 class="clip">{title}</h2>
        <span class="grow" />
        <button type="button" class="quiet" aria-label="Close the detail" onClick={() => setParams({ at: "" })}>
          ✕
        </button>
      </div>
      {entry && <Facts entry={entry} />}
      {call && (
        <>
          <h3>Arguments</h3>
          <JSONTree value={call.arguments ?? null} open={3} />
          {entry?.arguments !== undefined && (
            <>
              <h3>Arguments as edited</h3>
              <JSONTree value={entry.arguments} open={3} />
            </>
          )}
        </>
      )}
      {live && <p class="soft">In flight{live.progress ? ": " + live.progress : ""}</p>}
      {entry?.call_id && entry.message?.parts?.map((p, i) => <ResultView key={i} content={p.content ?? ""} isError={!!p.is_error} part={p} />)}
      {!entry && !call && <p class="soft">{at === "live" ? "A worker is at it. What it says appears in the conversation." : "The log has no such entry yet."}</p>}
      {entry && <Fold summary={`Entry ${entry.seq} as JSON`}>{() => <JSONTree value={entry as unknown as JSONValue} open={2} />}</Fold>}
    </div>
  );
}

function Fact({ name, children }: { name: string; children: ComponentChildren }): JSX.Element {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

function Facts({ entry: e }: { entry: Event }): JSX.Element {
  const u = e.usage;
  return (
    <dl class="detail-facts">
      <Fact name="at">{exact(e.at)}</Fact>
      <Fact name="turn">{e.attempt > 1 ? `${e.turn}, attempt ${e.attempt}` : e.turn}</Fact>
      {e.worker && <Fact name="worker">{e.worker}</Fact>}
      {!!e.duration_ms && <Fact name="took">{span(e.duration_ms)}</Fact>}
      {e.reason && <Fact name="reason">{words(e.reason)}</Fact>}
      {e.detail && <Fact name="detail">{e.detail}</Fact>}
      {e.by && (
        <Fact name="by">
          {e.by.principal} ({e.by.via})
        </Fact>
      )}
      {e.message?.model && <Fact name="model">{e.message.model}</Fact>}
      {e.stop_reason && <Fact name="stopped">{words(e.stop_reason)}</Fact>}
      {!!e.failed_calls && <Fact name="failed before">{e.failed_calls}</Fact>}
      {u && (
        <Fact name="tokens">
          {count(u.input_tokens)} in{u.cache_read_tokens ? ` (${count(u.cache_read_tokens)} cached)` : ""}, {count(u.output_tokens)} out {money(u.cost_usd)}
          {u.estimated ? " (estimated)" : ""}
        </Fact>
      )}
      {e.error && (
        <Fact name="error">
          {e.error.code}: {e.error.message}
        </Fact>
      )}
    </dl>
  );
}
