import type { JSX } from "preact";
import { now } from "../store/clock";
import { ago } from "./words";

// Ago is an instant as seen from now; on hover, exactly, in the viewer's zone.
export function Ago({ at }: { at: string | null }): JSX.Element | null {
  if (!at) return null;
  return (
    <time dateTime={at} title={exact(at)}>
      {ago(at, now.value)}
    </time>
  );
}

export function exact(at: string): string {
  const d = new Date(at);
  return d.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" }) + ` (${at})`;
}

export const clock = (at: string): string => {
  const d = new Date(at);
  const two = (n: number, w = 2): string => String(n).padStart(w, "0");
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}.${two(d.getMilliseconds(), 3)}`;
};
