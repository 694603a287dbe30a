// Hooks, and the runs of the one that is open.
import { query } from "../api/client";
import type { Hook, Run } from "../api/types";
import { List } from "./list";
import { Named } from "./named";
import { route } from "./route";

export const hooks = new Named<Hook>("/v1/hooks");

// addressOf is where a sender delivers to, by the host at which this browser reaches the gateway.
export const addressOf = (h: Hook): string => location.origin + h.path;

const name = (): string => (route.value.view === "hooks" ? route.value.id : "");
export const hookRuns = new List<Run>(() => (name() ? "/v1/runs" + query({ "metadata.hook": name(), view: "summary", limit: 10 }) : ""), 10_000);
