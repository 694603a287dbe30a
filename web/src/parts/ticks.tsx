import type { JSX } from "preact";
import { ticked } from "../lib/ticks";

// Ticks draws a text of the gateway, with what stands in backticks as code.
export function Ticks({ text }: { text: string }): JSX.Element {
  return <>{ticked(text).map((p, i) => (p.code ? <code key={i}>{p.text}</code> : p.text))}</>;
}
