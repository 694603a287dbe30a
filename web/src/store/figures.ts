// Figures over time: what the charts show, of the range and the grouping in the address.
import { computed } from "@preact/signals";
import { errorOf, get, query, request, tenant } from "../api/client";
import type { Identity, Page, Tenant } from "../api/types";
import { type Range, rangeOf, spanOf, type Span, type StatsRow } from "../lib/figures";
import { now } from "./clock";
import { List } from "./list";
import { route } from "./route";
import { identity, may, session } from "./session";

export interface Stats extends Page<StatsRow> {
  bounds_ms: number[];
}

export type By = "agent" | "model" | "tenant";

export const range = (): Range => rangeOf(route.value.params.get("range"));

// mayTenants is true of those who read more than one tenant.
export const mayTenants = (): boolean => {
  const of = session.value?.tenants ?? [];
  const all = of.includes("*") || session.value?.ways.length === 0; // their names are read from the gateway
  return all ? may("admin") : of.length > 1;
};

export function by(): By {
  const text = route.value.params.get("by");
  return text === "model" ? "model" : text === "tenant" && mayTenants() ? "tenant" : "agent";
}

const hour = computed(() => Math.floor(now.value / 3_600_000) * 3_600_000);
export const shown = (): Span => spanOf(range(), hour.value);

// The path does not change with what is sorted or selected.
const path = computed(() => {
  if (route.value.view !== "figures") return "";
  const span = shown();
  const group = by();
  const at = (ms: number): string => new Date(ms).toISOString();
  return "/v1/stats" + query({ from: at(span.from), to: at(span.from + span.count * span.every), step: span.step, ...(group === "tenant" ? {} : { by: group, limit: 50 }) });
});

const mostTenants = 50;

class Figures extends List<StatsRow, Stats> {
  constructor() {
    super(() => path.value, 60_000);
  }

  protected override async read(path: string): Promise<Stats> {
    return path.includes("&by=") ? get<Stats>(path) : ofTenants(path);
  }
}

// ofTenants reads the figures of each tenant, and names their rows after it.
async function ofTenants(path: string): Promise<Stats> {
  const had = session.peek()?.tenants ?? [];
  const names = new Set(had.filter((t) => t !== "*"));
  if (names.size !== had.length || !had.length) for (const t of (await get<Page<Tenant>>("/v1/tenants?limit=1000")).items) names.add(t.name);
  names.add(identity.peek()?.tenant ?? (tenant.peek() || (await get<Identity>("/v1/whoami")).tenant));
  const todo = [...names].slice(0, mostTenants);
  const out: Stats = { items: [], next_cursor: null, bounds_ms: [] };
  const work = async (): Promise<void> => {
    for (let of = todo.shift(); of !== undefined; of = todo.shift()) {
      const one = await request<Stats>("GET", path, { of }).catch((e: unknown) => {
        if (errorOf(e).status === 403) return null; // the role there does not read
        throw e;
      });
      if (!one) continue;
      out.bounds_ms = one.bounds_ms;
      for (const r of one.items) out.items.push({ ...r, name: of });
    }
  };
  await Promise.all([work(), work(), work(), work()]);
  return out;
}

export const figures = new Figures();
