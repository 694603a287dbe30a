// The filter of the list of runs: read from the address, sent to the gateway, and applied
// here to runs that change.
import type { Run } from "../api/types";
import { failures } from "../lib/words";

export interface Filter {
  status: string[];
  waiting: string;
  agent: string;
  parent: string;
  batch: string;
  metadata: Record<string, string>;
  since: string; // 15m, 24h, 7d, or an instant
  until: string;
  text: string;
  trouble: boolean; // only runs with failures
}

export function filterOf(p: URLSearchParams): Filter {
  const metadata: Record<string, string> = {};
  for (const [k, v] of p) if (k.startsWith("metadata.")) metadata[k.slice("metadata.".length)] = v;
  return {
    status: (p.get("status") ?? "").split(",").filter(Boolean),
    waiting: p.get("waiting") ?? "",
    agent: p.get("agent") ?? "",
    parent: p.get("parent") ?? "",
    batch: p.get("batch") ?? "",
    metadata,
    since: p.get("since") ?? "",
    until: p.get("until") ?? "",
    text: p.get("q") ?? "",
    trouble: p.get("trouble") === "true",
  };
}

const units: Record<string, number> = { m: 60e3, h: 3600e3, d: 86_400e3 };

// instant reads 15m, 24h, 7d (ago), or an instant.
export function instant(text: string, now: number): string {
  const m = /^(\d+)([mhd])$/.exec(text);
  if (m) return new Date(now - Number(m[1]) * units[m[2]!]!).toISOString();
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? "" : at.toISOString();
}

// parameters are those of GET /v1/runs.
export function parameters(f: Filter, now: number): Record<string, string> {
  const q: Record<string, string> = {
    status: f.status.join(","),
    waiting_reason: f.waiting,
    agent: f.agent,
    parent: f.parent,
    batch: f.batch,
    created_after: f.since ? instant(f.since, now) : "",
    created_before: f.until ? instant(f.until, now) : "",
    text: f.text,
    trouble: f.trouble ? "true" : "",
  };
  for (const [k, v] of Object.entries(f.metadata)) q["metadata." + k] = v;
  return q;
}

// cancelFilter is the filter of POST /v1/runs:cancel, or null where it cannot say the same.
export function cancelFilter(f: Filter, now: number): Record<string, unknown> | null {
  if (f.text || f.trouble) return null;
  const open = ["queued", "running", "waiting"];
  const status = f.status.length ? f.status.filter((s) => open.includes(s)) : open;
  if (!status.length) return null;
  const { status: _, ...rest } = parameters(f, now);
  const filter: Record<string, unknown> = { status };
  for (const [k, v] of Object.entries(rest)) if (v && !k.startsWith("metadata.")) filter[k] = v;
  if (Object.keys(f.metadata).length) filter["metadata"] = f.metadata;
  return filter;
}

// matches leaves the text aside, which only the gateway looks for.
export function matches(f: Filter, r: Run, now: number): boolean {
  if (f.status.length && !f.status.includes(r.status)) return false;
  if (f.waiting && r.waiting?.reason !== f.waiting) return false;
  if (f.agent && r.agent !== f.agent) return false;
  if (f.trouble && !failures(r)) return false;
  if (f.parent && r.parent?.run_id !== f.parent) return false;
  for (const [k, v] of Object.entries(f.metadata)) if (r.metadata[k] !== v) return false;
  const created = Date.parse(r.created_at ?? "");
  if (f.since && created < Date.parse(instant(f.since, now))) return false;
  if (f.until && created >= Date.parse(instant(f.until, now))) return false;
  return true;
}

// hasText looks where a reader of the palette would: id, agent, metadata, answer, error, question.
export function hasText(r: Run, text: string): boolean {
  const hay = [r.id, r.agent, ...Object.entries(r.metadata).flat(), r.output, r.error?.message, r.error?.code, r.waiting?.question, ...(r.waiting?.calls ?? []).map((c) => c.tool)];
  const low = hay.filter(Boolean).join("\n").toLowerCase();
  return text
    .toLowerCase()
    .split(/\s+/)
    .every((w) => low.includes(w));
}
