// Requests to the gateway. Only the store calls this; views call the store.
import { signal } from "@preact/signals";

// The tenant that this tab is about, for those who have roles in several.
export const tenant = signal(sessionStorage.getItem("tenant") ?? "");

export function chooseTenant(name: string): void {
  if (name) sessionStorage.setItem("tenant", name);
  else sessionStorage.removeItem("tenant");
  tenant.value = name;
}

// Fault is a mistake in a document that was sent, with its place from 1, if that is known.
export interface Fault {
  at?: string;
  detail: string;
  line?: number;
  column?: number;
  warning?: boolean; // it was taken all the same
}

// ApiError is an answer that is not the one that was asked for. status 0: no answer came.
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly requestId = "",
    readonly faults: Fault[] = [],
  ) {
    super(detail);
  }
}

export const errorOf = (e: unknown): ApiError => (e instanceof ApiError ? e : new ApiError(0, "page", e instanceof Error ? e.message : String(e)));

// passes is true of an error that may be over in a moment.
export const passes = (e: ApiError): boolean => e.status === 0 || e.status === 429 || e.status >= 500;

interface Options {
  body?: unknown;
  text?: string; // a body that is sent as it is
  once?: boolean; // however often it is sent, it counts once
  match?: string; // If-Match: the version that is changed
  of?: string; // a tenant in place of the one that this tab is about
  abort?: AbortSignal;
}

// Keys of requests of which nobody knows whether they were taken. Whoever does the same again
// soon sends the same key, so it counts once.
const unknown = new Map<string, string>();
const remembered = 600_000;

export async function request<T>(method: string, path: string, options: Options = {}): Promise<T> {
  if (!options.once) return send<T>(method, path, options);
  const same = [tenant.peek(), method, path, JSON.stringify(options.body)].join("\n");
  const key = unknown.get(same) ?? newKey();
  unknown.delete(same);
  for (let again = true; ; again = false) {
    try {
      return await send<T>(method, path, options, key);
    } catch (e) {
      const err = errorOf(e);
      if (again && err.status === 0) {
        await new Promise((done) => setTimeout(done, 500));
        continue;
      }
      if (err.status === 0 || err.status >= 500) {
        unknown.set(same, key);
        setTimeout(() => unknown.get(same) === key && unknown.delete(same), remembered);
      }
      if (err.status !== 0) throw err;
      throw new ApiError(0, err.code, "The gateway did not answer twice, so it is unknown whether it accepted this. Repeat the action: within ten minutes it counts once.");
    }
  }
}

async function send<T>(method: string, path: string, { body, text, abort, match, of = tenant.value }: Options, key = ""): Promise<T> {
  const headers: Record<string, string> = {};
  if (of) headers["Turnpike-Tenant"] = of;
  if (match) headers["If-Match"] = match;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  const init: RequestInit = { method, headers };
  if (body !== undefined) init.body = JSON.stringify(body);
  if (text !== undefined) init.body = text;
  if (abort) init.signal = abort;
  let answer: Response;
  let got: string;
  try {
    answer = await fetch(path, init);
    got = await answer.text();
  } catch (e) {
    if (abort?.aborted) throw e;
    throw new ApiError(0, "offline", "The gateway does not answer." + (method === "GET" ? "" : " It is unknown whether it accepted this: check before you repeat it."));
  }
  let value: unknown = null;
  try {
    value = got ? JSON.parse(got) : null;
  } catch {
    throw new ApiError(answer.status, "not_json", `The answer to ${method} ${path} is not JSON: check whether a proxy answered instead of the gateway.`);
  }
  if (!answer.ok) {
    const p = (value ?? {}) as { code?: string; detail?: string; title?: string; request_id?: string; errors?: Fault[] };
    throw new ApiError(answer.status, p.code ?? "", p.detail || p.title || answer.statusText, p.request_id, p.errors);
  }
  return value as T;
}

export const get = <T>(path: string, abort?: AbortSignal): Promise<T> => request<T>("GET", path, abort ? { abort } : {});
export const post = <T>(path: string, body: unknown): Promise<T> => request<T>("POST", path, { body });
// postOnce is for what would be done twice if it were sent twice.
export const postOnce = <T>(path: string, body: unknown): Promise<T> => request<T>("POST", path, { body, once: true });

const newKey = (): string => {
  const random = crypto.getRandomValues(new Uint8Array(12));
  return "page-" + Array.from(random, (b) => b.toString(16).padStart(2, "0")).join("");
};

// query builds "?a=b", without what is empty.
export function query(values: Record<string, string | number | undefined | null>): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(values)) if (v !== undefined && v !== null && v !== "") q.set(k, String(v));
  const text = q.toString();
  return text ? "?" + text : "";
}
