import type { JSX } from "preact";
import { now } from "../store/clock";
import { ago } from "../lib/words";

// Ago is an instant as seen from now; on hover, exactly, in the viewer's zone.
export function Ago({ at }: { at: string | null }): JSX.Element | null {
  if (!at) return null;
  return (
    <time dateTime={at} title={exact(at)}>
      {ago(at, now.value)}
    </time>
  );
}

// One for all: to make one takes longer than to draw a message.
const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

export const exact = (at: string): string => `${format.format(new Date(at))} (${at})`;

export const clock = (at: string): string => {
  const d = new Date(at);
  const two = (n: number, w = 2): string => String(n).padStart(w, "0");
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}.${two(d.getMilliseconds(), 3)}`;
};
