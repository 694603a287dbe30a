import type { JSX } from "preact";
import { now } from "../../store/clock";
import { liveSince, liveState } from "../../store/live";
import { span } from "../../lib/words";

// LiveDot says whether the page hears of changes, and since when not.
export function LiveDot(): JSX.Element {
  const s = liveState.value;
  const away = now.value - liveSince.value;
  const text = s === "open" ? "live" : s === "connecting" && away < 3000 ? "connecting" : `offline ${span(Math.max(away, 1000))}`;
  const title = s === "open" ? "Changes are shown as they happen." : "The connection for live changes is lost, so this view may be outdated. The page reconnects by itself.";
  return (
    <span class={"live " + (s === "open" ? "on" : "off")} role="status" title={title}>
      <span class="dot" aria-hidden="true" />
      <span>{text}</span>
    </span>
  );
}
