// The stream of changes of the tenant's runs: one for the whole page. Who shows runs
// listens here, and lists after the stream has opened, so that nothing falls between.
import { effect, signal } from "@preact/signals";
import { tenant } from "../api/client";
import { openStream, type StreamState } from "../api/stream";
import type { Run } from "../api/types";
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
  let wait: Run[] = [];
  let gone = new Set<string>(); // nothing changes in a run after it was deleted
  let frame = 0;
  const flush = (): void => {
    frame = 0;
    const [runs, ids] = [wait.filter((r) => !gone.has(r.id)), gone];
    [wait, gone] = [[], new Set()];
    for (const l of listeners) {
      if (runs.length) l.changed(runs);
      if (ids.size) l.deleted(ids);
    }
  };
  const batch = batchOf();
  close = openStream("/v1/events" + (batch ? "?batch=" + encodeURIComponent(batch) : ""), {
    types: ["stream.open", "run.changed", "run.deleted", "stream.reset"],
    state: (s) => {
      setState(s);
      // A session that has ended looks like a lost stream from here.
      if (s === "lost" && session.peek()?.principal) void loadSession();
    },
    event: (type, data) => {
      if (type === "run.changed" || type === "run.deleted") {
        const change = JSON.parse(data) as { run?: Run; run_id?: string };
        if (change.run) wait.push(change.run);
        if (change.run_id) gone.add(change.run_id);
        // A timer beside the frame: hidden pages have no frames.
        if (!frame) frame = document.hidden ? window.setTimeout(flush, 200) : requestAnimationFrame(flush);
        return;
      }
      if (frame) flush();
      if (type === "stream.reset") for (const l of listeners) l.reset();
      else if (!opened) {
        opened = true;
        for (const l of listeners) l.open();
      }
    },
  });
});
