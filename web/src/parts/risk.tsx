import type { JSX } from "preact";
import type { WaitCall } from "../api/types";

// What a call does, as its tool says.
const risks = { reads: "only reads", writes: "changes data", pays: "pays money", sends: "sends something out" };

export function Risk({ call }: { call: WaitCall }): JSX.Element | null {
  return call.risk && <span class={`risk risk-${call.risk}`}>{risks[call.risk]}</span>;
}
