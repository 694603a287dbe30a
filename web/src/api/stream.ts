// An event stream that comes back by itself, and says truthfully how it stands.
import { tenant } from "./client";

export type StreamState = "connecting" | "open" | "lost";

interface Handlers {
  types: string[];
  event: (type: string, data: string, id: string) => void;
  state: (s: StreamState) => void;
  // ended is asked when the server has closed the stream: true is not to open it again.
  ended?: () => boolean;
}

const firstPause = 500;
const longestPause = 15_000;

// openStream follows path until the function that it returns is called. A browser opens a
// stream again that broke off; one that was refused it gives up, and this does it then.
export function openStream(path: string, h: Handlers): () => void {
  let source: EventSource | null = null;
  let timer = 0;
  let pause = firstPause;
  let last = "";
  let closed = false;

  const open = (): void => {
    const url = new URL(path, location.origin);
    if (tenant.value) url.searchParams.set("tenant", tenant.value);
    if (last) url.searchParams.set("after", last);
    h.state("connecting");
    const s = new EventSource(url);
    source = s;
    s.onopen = () => {
      pause = firstPause;
      h.state("open");
    };
    s.onerror = () => {
      if (closed || source !== s) return;
      if (h.ended?.()) return close();
      h.state("lost");
      if (s.readyState === EventSource.CLOSED) {
        timer = window.setTimeout(open, pause);
        pause = Math.min(2 * pause, longestPause);
      }
    };
    for (const type of h.types) {
      s.addEventListener(type, (e) => {
        if (closed || source !== s) return;
        if (e.lastEventId) last = e.lastEventId;
        h.event(type, e.data as string, e.lastEventId);
      });
    }
  };

  const again = (): void => {
    if (closed || !source || source.readyState !== EventSource.CLOSED) return;
    clearTimeout(timer);
    open();
  };
  window.addEventListener("online", again);

  const close = (): void => {
    closed = true;
    clearTimeout(timer);
    window.removeEventListener("online", again);
    source?.close();
  };
  open();
  return close;
}
