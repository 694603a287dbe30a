// The stream of changes of the tenant's runs: one for the whole page. Who shows runs
// listens here, and lists after the stream has opened, so that nothing falls between.
import { effect, signal } from "@preact/signals";
import { tenant } from "../api/client";
import { openStream, type StreamState } from "../api/stream";
import type { Run } from "../api/types";
import { gather } from "../lib/gather";
import { route } from "./route";
import { loadSession, ready, session } from "./session";

export const liveState = signal<StreamState>("connecting");
export const liveSince = signal(Date.now());

interface Listener {
  changed: (runs: Run[]) => void;
  deleted: (ids: ReadonlySet<string>) => void;
  open: () => void; // anew: what was listed before may have missed changes
  reset: () => void;
}

const listeners = new Set<Listener>();
let opened = false;

// listen returns how to stop. open is called at once if the stream is open already.
export function listen(l: Listener): () => void {
  listeners.add(l);
  if (opened) queueMicrotask(() => listeners.has(l) && l.open());
  return () => listeners.delete(l);
}

function setState(s: StreamState): void {
  if (liveState.peek() === s) return;
  liveState.value = s;
  liveSince.value = Date.now();
}

// Only the gateway knows which runs are of a batch, so it filters by it.
const batchOf = (): string => (route.value.view === "runs" ? (route.value.params.get("batch") ?? "") : "");

// nextFrame is a timer in hidden pages: they have no frames.
function nextFrame(f: () => void): () => void {
  if (document.hidden) {
    const timer = setTimeout(f, 200);
    return () => clearTimeout(timer);
  }
  const frame = requestAnimationFrame(f);
  return () => cancelAnimationFrame(frame);
}

let close: (() => void) | null = null;
let following = "";

effect(() => {
  if (!ready.value) {
    close?.();
    close = null;
    return;
  }
  const key = tenant.value + "\n" + batchOf();
  if (close && key === following) return;
  following = key;
  close?.();
  opened = false;
  const changes = gather<{ run?: Run; run_id?: string }>(nextFrame, (list) => {
    const gone = new Set(list.flatMap((c) => c.run_id ?? [])); // nothing changes in a run after it was deleted
    const runs = list.flatMap((c) => (c.run && !gone.has(c.run.id) ? c.run : []));
    for (const l of listeners) {
      if (runs.length) l.changed(runs);
      if (gone.size) l.deleted(gone);
    }
  });
  const batch = batchOf();
  const stop = openStream("/v1/events" + (batch ? "?batch=" + encodeURIComponent(batch) : ""), {
    types: ["stream.open", "run.changed", "run.deleted", "stream.reset"],
    state: (s) => {
      setState(s);
      // A session that has ended looks like a lost stream from here.
      if (s === "lost" && session.peek()?.principal) void loadSession();
    },
    event: (type, data) => {
      if (type === "run.changed" || type === "run.deleted") {
        changes.add(JSON.parse(data) as { run?: Run; run_id?: string });
        return;
      }
      changes.flush();
      if (type === "stream.reset") for (const l of listeners) l.reset();
      else if (!opened) {
        opened = true;
        for (const l of listeners) l.open();
      }
    },
  });
  // What came for another tenant or batch is not handed on.
  close = () => {
    stop();
    changes.drop();
  };
});
