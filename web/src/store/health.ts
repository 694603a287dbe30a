// What may be wrong with the deployment: what the first screen says above the runs. Each list is
// read seldom, and one that the caller may not read is left out.
import { computed } from "@preact/signals";
import type { DeadLetter, Queue, Queues, Worker } from "../api/types";
import { failures, money, plural, span } from "../lib/words";
import { examinedAll, followNewest, newest, newestRead } from "./agents";
import { now } from "./clock";
import { List } from "./list";
import { href } from "./route";

const workers = new List<Worker>(() => "/v1/workers?limit=1000", 15_000);
const queues = new List<Queue, Queues>(() => "/v1/queues", 15_000);
const dead = new List<DeadLetter>(() => "/v1/dead?limit=200", 30_000, 100);

export function followHealth(): () => void {
  const stops = [followNewest(), workers.open(), queues.open(), dead.open()];
  return () => stops.forEach((stop) => stop());
}

// looked is true once all that the caller may read has been read.
export const looked = computed(() => newestRead.value && [workers, queues, dead].every((l) => l.loaded.value || l.error.value?.status === 403));

export interface Sign {
  key: string;
  text: string;
  href: string;
  bad: boolean;
}

const hour = 3600e3;
const slow = 60; // seconds that a turn may wait for a worker

// midnight is the beginning of the day, where the reader is.
const midnight = (at: number): number => new Date(at).setHours(0, 0, 0, 0);

export const signs = computed<Sign[]>(() => {
  const out: Sign[] = [];
  const at = Math.floor(now.value / 15_000) * 15_000;
  const runs = [...newest.value.values()];
  const more = examinedAll.value ? "" : " or more";
  const day = at - 24 * hour;
  const failed = new Map<string, number>();
  let old = 0;
  let spent = 0;
  let troubled = 0;
  for (const r of runs) {
    const created = Date.parse(r.created_at ?? "");
    if (r.status === "failed" && created >= day) failed.set(r.agent, (failed.get(r.agent) ?? 0) + 1);
    if (r.status === "waiting" && created < at - hour) old++;
    if (failures(r) && created >= day) troubled++;
    if (created >= midnight(at)) spent += r.usage.cost_usd ?? 0;
  }
  for (const [agent, n] of [...failed].sort((a, b) => b[1] - a[1]).slice(0, 3))
    out.push({ key: "agent " + agent, text: `${agent}: ${n}${more} failed in 24 h`, href: href("runs", "", { agent, status: "failed", since: "24h" }), bad: true });
  if (failed.size > 3) out.push({ key: "agents", text: `${failed.size - 3} more agents fail`, href: href("runs", "", { status: "failed", since: "24h" }), bad: true });
  if (old)
    out.push({
      key: "waits",
      text: `${plural(old, "run")}${more} submitted over 1 h ago still ${old === 1 ? "waits" : "wait"}`,
      href: href("runs", "", { status: "waiting", until: "1h" }),
      bad: true,
    });
  const open = dead.items.value.filter((l) => l.status === "open").length;
  if (open) out.push({ key: "dead", text: `${plural(open, "dead letter")} open`, href: href("dead"), bad: true });
  const lost = workers.items.value.filter((w) => w.status !== "alive").length;
  if (lost) out.push({ key: "lost", text: `${plural(lost, "worker")} unreachable`, href: href("workers"), bad: true });
  if (workers.loaded.value && !workers.error.value && !workers.items.value.length) out.push({ key: "none", text: "no worker", href: href("workers"), bad: true });
  const backlog = queues.items.value.reduce((n, q) => n + q.backlog, 0);
  const oldest = Math.max(0, ...queues.items.value.map((q) => q.oldest_seconds));
  if (backlog && oldest >= slow) out.push({ key: "backlog", text: `${plural(backlog, "turn")} in the backlog, the oldest for ${span(oldest * 1000)}`, href: href("workers"), bad: true });
  if (troubled) out.push({ key: "troubled", text: `${plural(troubled, "run")}${more} with failures in 24 h`, href: href("runs", "", { trouble: "true", since: "24h" }), bad: false });
  if (spent) out.push({ key: "spent", text: `${money(spent)}${more} spent today`, href: href("runs", "", { since: new Date(midnight(at)).toISOString() }), bad: false });
  return out;
});
