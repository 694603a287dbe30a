// HTTP requests to a gateway, with retries, and streams of server-sent events.
import { NotFound, problem, Problem, type ProblemBody, Unavailable } from "./errors.js";

const firstDelay = 100, mostDelay = 2000; // milliseconds before the first retry, and between later ones
const leastRate = 16; // bytes a millisecond of an upload: a gateway refuses slower ones
const silence = 45_000; // milliseconds: a gateway sends a comment every 15 s on a stream without events

export interface TransportOptions {
  url: string;
  token?: string | undefined;
  tenant?: string | undefined;
  retryFor: number; // seconds
  timeout: number; // seconds
}

export interface ServerEvent {
  id: string;
  event: string;
  data: string;
}

/** The body of a request that may be repeated. */
type Body = string | Uint8Array<ArrayBuffer> | Blob;

export class Transport {
  readonly base: string;
  readonly #headers: Record<string, string> = {};

  constructor(readonly options: TransportOptions) {
    const url = /^(\[[^/@?#]+\]|[^/@:?#]+):\d+(\/|$)/.test(options.url) ? "http://" + options.url : options.url; // a host and a port alone
    if (!/^https?:\/\/[^/]/.test(url)) {
      throw new TypeError(`${url} is not the address of a gateway: write one such as http://127.0.0.1:7070`);
    }
    this.base = url.replace(/\/+$/, "");
    if (options.token) this.#headers["Authorization"] = `Bearer ${options.token}`;
    if (options.tenant) this.#headers["Turnpike-Tenant"] = options.tenant;
  }

  /**
   * Makes a request that may be repeated, and returns the answer's JSON. It retries 429, 503 and connections that
   * fail, for `retryFor` seconds, after the time that the gateway names.
   */
  async call<T>(method: string, path: string, body?: unknown, more: { key?: string; text?: string; ifMatch?: number; signal?: AbortSignal | undefined } = {}): Promise<T> {
    const headers: Record<string, string> = {};
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (more.text !== undefined) headers["Content-Type"] = "application/yaml";
    if (more.key) headers["Idempotency-Key"] = more.key;
    if (more.ifMatch !== undefined) headers["If-Match"] = `"${more.ifMatch}"`;
    const data = more.text ?? (body === undefined ? undefined : JSON.stringify(body));
    return this.send(method, path, headers, data, async (answer) => {
      const text = await answer.text();
      if (text === "") return undefined as T;
      try {
        return JSON.parse(text) as T;
      } catch {
        throw foreign(answer.status, text);
      }
    }, more.signal);
  }

  /**
   * Makes a request that may be repeated as `call` does, and returns what `read` makes of the answer. Throws the reason
   * of a signal that is aborted.
   */
  async send<T>(
    method: string, path: string, headers: Record<string, string>, data: Body | undefined, read: (answer: Response) => Promise<T>, signal?: AbortSignal,
  ): Promise<T> {
    const retries = new Retries(this.options.retryFor);
    const timeout = this.options.timeout * 1000 + (data instanceof Blob ? data.size : data?.length ?? 0) / leastRate;
    for (let retried = false; ;) {
      const limit = limited(Math.ceil(timeout), signal);
      try {
        return await read(await this.open(method, path, { Accept: "application/json", ...headers }, data, limit.signal));
      } catch (e) {
        if (signal?.aborted) throw signal.reason;
        const error = asProblem(e, this.base);
        if (error instanceof Problem) error.retried = retried;
        if (method === "DELETE" && retried && error instanceof NotFound) return undefined as T; // by an earlier try
        await retries.after(error, signal);
        retried ||= error instanceof Unavailable;
      } finally {
        limit.free();
      }
    }
  }

  /** Yields the items of a list, over all its pages. */
  async *pages<T>(path: string, parameters: Record<string, string | number | undefined> = {}): AsyncGenerator<T, void, undefined> {
    for (let cursor: string | undefined; ;) {
      const page = await this.call<{ items: T[]; next_cursor: string | null }>("GET", path + query({ ...parameters, cursor }));
      yield* page.items;
      if (!page.next_cursor) return;
      cursor = page.next_cursor;
    }
  }

  /** Sends one request, and throws the error of a refusal. */
  async open(method: string, path: string, headers: Record<string, string>, body: Body | undefined, signal: AbortSignal): Promise<Response> {
    const answer = await fetch(this.base + path, {
      // A gateway redirects no API request, and the token must not reach another host.
      method, headers: { ...this.#headers, ...headers }, signal, redirect: "manual", ...(body === undefined ? {} : { body }),
    });
    if (answer.status >= 300 || answer.status === 0) throw refusal(answer, await answer.text());
    return answer;
  }

  /** Reads one connection's worth of a stream, from behind the event with this id. `opened` is called when it is open. */
  async *events(path: string, lastId: string, signal: AbortSignal, opened: () => void): AsyncGenerator<ServerEvent, void, undefined> {
    const quiet = new AbortController();
    const stop = () => quiet.abort(signal.reason);
    signal.addEventListener("abort", stop);
    let timer = setTimeout(() => quiet.abort(), silence);
    try {
      signal.throwIfAborted();
      const headers: Record<string, string> = { Accept: "text/event-stream" };
      if (lastId) headers["Last-Event-ID"] = lastId;
      const answer = await this.open("GET", path, headers, undefined, quiet.signal);
      opened();
      const reading = async function* () {
        for await (const chunk of answer.body ?? []) {
          clearTimeout(timer);
          timer = setTimeout(() => quiet.abort(), silence);
          yield chunk as Uint8Array;
        }
      };
      yield* parseEvents(reading());
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      quiet.abort();
    }
  }
}

/** The tries of one request: `after` is called with the error of each that failed. Seconds count from the first. */
export class Retries {
  #end = 0;
  #delay = firstDelay;

  constructor(readonly seconds: number) {}

  reset(): void {
    this.#end = 0;
    this.#delay = firstDelay;
  }

  /** Waits before the next try, or throws the error if it will last or no time is left. */
  async after(error: unknown, signal?: AbortSignal): Promise<void> {
    if (!mayPass(error)) throw error;
    this.#end ||= Date.now() + this.seconds * 1000;
    const wait = Math.max(this.#delay * (0.5 + Math.random() / 2), (error.retryAfter ?? 0) * 1000);
    if (Date.now() + wait > this.#end) throw error;
    await pause(wait, signal);
    this.#delay = Math.min(this.#delay * 2, mostDelay);
  }
}

/** Reports whether the same request may succeed later. */
export function mayPass(error: unknown): error is Problem {
  return error instanceof Problem && [0, 429, 502, 503, 504].includes(error.status);
}

/** Resolves after some milliseconds, or when the signal is aborted. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const done = () => { clearTimeout(timer); signal?.removeEventListener("abort", done); resolve(); };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done);
    if (signal?.aborted) done();
  });
}

/** Returns a signal that is aborted after some milliseconds, or when the other one is. `free` must be called. */
export function limited(ms: number | undefined, signal?: AbortSignal): { signal: AbortSignal; free: () => void } {
  const controller = new AbortController();
  const stop = () => controller.abort(signal?.reason);
  const late = () => controller.abort(new DOMException("no answer in time", "TimeoutError"));
  const timer = ms === undefined ? undefined : setTimeout(late, ms);
  signal?.addEventListener("abort", stop);
  if (signal?.aborted) stop();
  return { signal: controller.signal, free: () => { clearTimeout(timer); signal?.removeEventListener("abort", stop); } };
}

/** Returns the error to throw: that of the answer, or Unavailable for a failed connection to the gateway's address. */
export function asProblem(e: unknown, address: string): unknown {
  if (!(e instanceof Error) || e instanceof Problem) return e;
  const broken = e instanceof TypeError || e.name === "AbortError" || e.name === "TimeoutError"; // fetch has no errors of its own
  if (!broken) return e;
  if (e.cause instanceof Error && e.cause.name === "NotReadableError") return e.cause; // the file of a Blob has changed
  const cause = e.cause instanceof Error ? e.cause.message || String((e.cause as NodeJS.ErrnoException).code ?? "") : e.message;
  const remedy = "start it, for example with `turnpike dev`, or set TURNPIKE_URL or the url of the Client to another address";
  return problem({ code: "unreachable", detail: `no gateway answers at ${address} (${cause}): ${remedy}` }, 0);
}

function refusal(answer: Response, text: string): Problem {
  const after = Number(answer.headers.get("Retry-After") || NaN);
  const retryAfter = Number.isNaN(after) ? undefined : after;
  try {
    const body = JSON.parse(text) as ProblemBody | null;
    if (body?.code) return problem(body, answer.status, retryAfter);
  } catch {
    // it is no JSON
  }
  return foreign(answer.status, text, retryAfter);
}

function foreign(status: number, text: string, retryAfter?: number): Problem {
  return problem({ code: "foreign", detail: `the answer is not that of a gateway: ${JSON.stringify(text.slice(0, 100))}` }, status, retryAfter);
}

/** Yields the events of a stream. An event that is cut off is dropped. */
export async function* parseEvents(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<ServerEvent, void, undefined> {
  const decoder = new TextDecoder();
  let rest = "", id = "", event = "", data: string[] = [];
  for await (const chunk of chunks) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    for (const raw of lines) {
      const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
      if (line === "") {
        if (data.length > 0) yield { id, event: event || "message", data: data.join("\n") };
        event = "";
        data = [];
        continue;
      }
      const colon = line.indexOf(":");
      const name = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (name === "data") data.push(value);
      else if (name === "event") event = value;
      else if (name === "id") id = value;
    }
  }
}

/** Returns the part of an address behind its path. Parameters that are undefined are left out. */
export function query(parameters: Record<string, string | number | undefined>): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(parameters)) if (v !== undefined) q.set(k, String(v));
  return q.size > 0 ? `?${q}` : "";
}
