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
const hiddenFor = 20_000;

// openStream follows path until the function that it returns is called. A browser opens a
// stream again that broke off; one that was refused it gives up, and this does it then.
export function openStream(path: string, h: Handlers): () => void {
  let source: EventSource | null = null;
  let timer = 0;
  let pause = firstPause;
  let last = "";
  let closed = false;
  let hide = 0;

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
  // A browser has six connections to a gateway without TLS, for all of its tabs together.
  // A tab that nobody looks at gives its own back, and reads on when it is looked at.
  const rest = (): void => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const wake = (): void => {
    clearTimeout(hide);
    if (!closed && !source) open();
  };
  const visibility = (): void => {
    clearTimeout(hide);
    if (document.hidden) hide = window.setTimeout(rest, hiddenFor);
    else wake();
  };
  const listeners: [EventTarget, string, () => void][] = [
    [window, "online", again],
    [window, "pagehide", rest],
    [window, "pageshow", wake],
    [document, "visibilitychange", visibility],
  ];
  for (const [target, type, f] of listeners) target.addEventListener(type, f);

  const close = (): void => {
    closed = true;
    clearTimeout(hide);
    rest();
    for (const [target, type, f] of listeners) target.removeEventListener(type, f);
  };
  open();
  return close;
}
