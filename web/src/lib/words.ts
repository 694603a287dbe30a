// Numbers, times and states in words.
import { ended, type JSONValue, type Run } from "../api/types";
import { visible } from "./visible";

export const shortId = (id: string): string => id.slice(-10);

export function ago(at: string | number | null, now: number): string {
  if (at === null) return "";
  const s = Math.max(0, Math.round((now - (typeof at === "number" ? at : Date.parse(at))) / 1000));
  if (s < 2) return "now";
  const [n, unit] = s < 60 ? [s, "s"] : s < 3600 ? [s / 60, "m"] : s < 172_800 ? [s / 3600, "h"] : [s / 86_400, "d"];
  return `${Math.floor(n)} ${unit} ago`;
}

// span is a length of time in its two largest units at most.
export function span(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.round(s)} s`;
  const m = Math.floor(s / 60);
  if (m < 60) return m < 10 && Math.round(s) % 60 ? `${m} m ${Math.round(s) % 60} s` : `${m} m`;
  const h = Math.floor(m / 60);
  if (h < 48) return m % 60 && h < 10 ? `${h} h ${m % 60} m` : `${h} h`;
  return `${Math.floor(h / 24)} d`;
}

export function until(at: string, now: number): string {
  const ms = Date.parse(at) - now;
  return ms <= 0 ? "now" : "in " + span(ms);
}

export const count = (n: number): string => n.toLocaleString("en-US");
export const plural = (n: number, one: string, many = one + "s"): string => `${count(n)} ${n === 1 ? one : many}`;

export function money(usd: number | null): string {
  if (usd === null) return "";
  if (usd === 0) return "$0";
  return "$" + (usd < 0.01 ? usd.toFixed(4) : usd < 1 ? usd.toFixed(3) : usd.toFixed(2));
}

export function bytes(n: number): string {
  return n < 1000 ? `${n} B` : n < 1e6 ? `${(n / 1000).toFixed(1)} KB` : `${(n / 1e6).toFixed(1)} MB`;
}

export const tokens = (r: Run): number => r.usage.input_tokens + r.usage.output_tokens;

// duration is how long a run took, or has been at it. The time that it lay at an end does not count.
export function duration(r: Run, now: number): number | null {
  const from = r.started_at ?? r.created_at;
  if (!from) return null;
  return Math.max(0, (r.finished_at ? Date.parse(r.finished_at) : now) - Date.parse(from) - (r.idle_ms ?? 0));
}

const reasons: Record<string, string> = {
  waiting_approval: "a person to approve",
  waiting_human_input: "an answer",
  waiting_client_tool: "a client's result",
  waiting_tool: "an asynchronous result",
  waiting_child: "other runs",
  waiting_schedule: "its time",
};
export const waitReasons = Object.keys(reasons);
export const waitsFor = (reason: string): string => reasons[reason] ?? reason.replaceAll("_", " ");
export const words = (reason: string): string => reason.replaceAll("_", " ");

// call writes a tool call in one line.
export function call(tool: string, args: JSONValue | undefined, most = 90): string {
  if (args === null || args === undefined) return visible(tool) + "(…)";
  let inner: string;
  if (typeof args === "object" && !Array.isArray(args)) {
    inner = Object.entries(args)
      .map(([k, v]) => `${k} ${typeof v === "string" ? v : JSON.stringify(v)}`)
      .join(", ");
  } else {
    inner = typeof args === "string" ? args : JSON.stringify(args);
  }
  inner = visible(inner);
  return `${visible(tool)}(${inner.length > most ? inner.slice(0, most - 1) + "…" : inner})`;
}

export const firstLine = (text: string): string =>
  text
    .trim()
    .split("\n", 1)[0]!
    .replace(/^#+\s*/, "")
    .replace(/\*\*|`/g, "");

export interface Gist {
  lead: string; // what kind of thing it is
  text: string; // in the words of the run
}

// gist is what matters about a run, in words.
export function gist(r: Run, now: number): Gist {
  switch (r.status) {
    case "completed":
      return { lead: "", text: firstLine(r.output ?? "") || (r.structured_output === null ? "ended without a text" : JSON.stringify(r.structured_output)) };
    case "incomplete":
      return { lead: words(r.reason ?? "incomplete"), text: r.error?.message ?? firstLine(r.output ?? "") };
    case "failed":
      return { lead: words(r.error?.code ?? r.reason ?? "failed"), text: r.error?.message ?? r.transition.detail };
    case "cancelled":
      return { lead: "cancelled", text: r.transition.detail || (r.error?.message ?? "") };
    case "waiting":
      return waitGist(r, now);
    default: {
      const t = r.transition;
      if (t.reason === "recovered") return { lead: "a worker died", text: "another one goes on" };
      if (t.reason === "model_retry") return { lead: "model again", text: t.detail };
      if (r.status === "queued" && r.turn_count === 0 && t.reason === "submitted") return { lead: "", text: "waits for a worker" };
      return { lead: "", text: r.status === "running" ? `turn ${r.turn_count + 1}` : `turn ${r.turn_count + 1} is next` };
    }
  }
}

// troubles says what went wrong in a run that its status does not show.
export function troubles(r: Run): string[] {
  const t = r.trouble;
  if (!t) return [];
  const out: string[] = [];
  if (t.tool_errors) out.push(`${plural(t.tool_errors, "tool call")} failed`);
  if (t.model_retries) out.push(`${plural(t.model_retries, "model call")} repeated`);
  if (t.recovered) out.push(`${plural(t.recovered, "attempt")} lost`);
  if (t.hook_errors) out.push(`${plural(t.hook_errors, "hook")} failed`);
  if (!ended(r.status) && t.limits.length) out.push(`near its limit of ${t.limits.map(words).join(", ")}`);
  return out;
}

// failures is true of a run in which something failed; a limit that is near is no failure.
export const failures = (r: Run): boolean => !!r.trouble && r.trouble.tool_errors + r.trouble.model_retries + r.trouble.recovered + r.trouble.hook_errors > 0;

function waitGist(r: Run, now: number): Gist {
  const w = r.waiting;
  if (!w) return { lead: "waits", text: words(r.reason ?? "") };
  const calls = w.calls.map((c) => call(c.tool, c.arguments, 60)).join(", ");
  switch (w.reason) {
    case "waiting_approval": {
      const at = w.calls.map((c) => c.risk).filter((risk) => risk === "pays" || risk === "sends");
      return { lead: ["approve", ...new Set(at)].join(" · "), text: calls };
    }
    case "waiting_human_input":
      return { lead: "asks", text: w.question ?? w.calls[0]?.message ?? "" };
    case "waiting_client_tool":
      return { lead: "waits for a client", text: calls };
    case "waiting_tool":
      return { lead: "waits for a result", text: calls };
    case "waiting_child":
      return { lead: `waits for ${plural(w.calls.length, "run")}`, text: w.calls.map((c) => c.tool).join(", ") };
    default:
      return { lead: w.expires_at ? `again ${until(w.expires_at, now)}` : "waits", text: r.transition.detail };
  }
}

// needsPerson is true of what only somebody outside can bring on.
export const needsPerson = (r: Run): boolean => r.status === "waiting" && !!r.waiting && ["waiting_approval", "waiting_human_input", "waiting_client_tool", "waiting_tool"].includes(r.waiting.reason);
