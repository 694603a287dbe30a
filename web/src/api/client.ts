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

interface Options {
  body?: unknown;
  text?: string; // a body that is sent as it is
  key?: string; // Idempotency-Key: the same request counts once
  abort?: AbortSignal;
}

export async function request<T>(method: string, path: string, { body, text, key, abort }: Options = {}): Promise<T> {
  const headers: Record<string, string> = {};
  if (tenant.value) headers["Turnpike-Tenant"] = tenant.value;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  const init: RequestInit = { method, headers };
  if (body !== undefined) init.body = JSON.stringify(body);
  if (text !== undefined) init.body = text;
  if (abort) init.signal = abort;
  let answer: Response;
  try {
    answer = await fetch(path, init);
  } catch (e) {
    if (abort?.aborted) throw e;
    throw new ApiError(0, "offline", "The gateway does not answer. The page tries again by itself; what you sent was not taken.");
  }
  const got = await answer.text();
  let value: unknown = null;
  try {
    value = got ? JSON.parse(got) : null;
  } catch {
    throw new ApiError(answer.status, "not_json", `The answer to ${method} ${path} is not JSON: is there a proxy between?`);
  }
  if (!answer.ok) {
    const p = (value ?? {}) as { code?: string; detail?: string; title?: string; request_id?: string; errors?: Fault[] };
    throw new ApiError(answer.status, p.code ?? "", p.detail || p.title || answer.statusText, p.request_id, p.errors);
  }
  return value as T;
}

export const get = <T>(path: string, abort?: AbortSignal): Promise<T> => request<T>("GET", path, abort ? { abort } : {});
export const post = <T>(path: string, body: unknown, key?: string): Promise<T> => request<T>("POST", path, key ? { body, key } : { body });

export const newKey = (): string => {
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
