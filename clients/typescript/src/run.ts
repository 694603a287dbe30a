import { randomUUID } from "node:crypto";
import { Ended, OutputError, RunFailed, Timeout } from "./errors.js";
import { type FromSchema, mismatch, type Schema } from "./schema.js";
import type { Image, ResultFile } from "./tool.js";
import { asProblem, limited, pause, query, Retries, type Transport } from "./transport.js";
import { atRest, type BatchInfo, ended, type Event, type ForkRequest, type Message, type RunInfo, type Signal, type Transcript, type Turn } from "./types.js";

const reconnectDelay = 250; // milliseconds
const steady = 1000; // milliseconds after which an open stream counts as restored: a proxy may cut streams again and again

/**
 * How long to wait: seconds, after which the wait throws Timeout, or until a signal is aborted, whose reason it throws.
 * The signal also ends a request in flight, which may otherwise outlast the timeout.
 */
export interface Wait {
  timeout?: number;
  signal?: AbortSignal;
}

export interface Decision {
  arguments?: Record<string, unknown>;
  reason?: string;
  hash?: string;
}

/** A run of an agent. */
export class Run {
  readonly #transport: Transport;
  readonly #path: string;

  constructor(transport: Transport, readonly id: string) {
    this.#transport = transport;
    this.#path = `/v1/runs/${encodeURIComponent(id)}`;
  }

  /** Reads the run as it stands. */
  get(): Promise<RunInfo> {
    return this.#transport.call("GET", this.#path);
  }

  /** Resolves once the run has ended or waits for a person or another program. Throws Timeout. */
  wait(wait: Wait = {}): Promise<RunInfo> {
    return this.#until(atRest, wait);
  }

  /**
   * Waits for the end of the run and returns its output: text, or a value that matches a schema. Throws RunFailed if
   * the run did not complete, OutputError if its output does not match, and Timeout.
   */
  result(wait?: Wait): Promise<string>;
  result<const S extends Schema>(wait: Wait & { output: S }): Promise<FromSchema<S>>;
  async result(wait: Wait & { output?: Schema } = {}): Promise<unknown> {
    const info = await this.#until(ended, wait);
    if (info.status !== "completed") throw new RunFailed(this.id, info.status, info.reason ?? "", info.error?.message ?? info.transition.detail ?? "");
    if (!wait.output) return info.output ?? "";
    let value = info.structured_output;
    try {
      value ??= JSON.parse(info.output ?? "null") as unknown;
    } catch (e) {
      throw new OutputError(this.id, info.output, String(e));
    }
    const reason = mismatch(wait.output, value);
    if (reason) throw new OutputError(this.id, value, reason);
    return value;
  }

  /**
   * Yields the events after number `after` until the run has ended. It reconnects when the connection breaks:
   * committed events come without gap or double. Live events, whose `seq` is null, are lost in between. Throws Timeout.
   */
  async *events(wait: Wait & { after?: number } = {}): AsyncGenerator<Event, void, undefined> {
    const { signal, free } = bounded(wait);
    const retries = new Retries(this.#transport.options.retryFor);
    let after = wait.after ?? 0;
    let last = after ? String(after) : "";
    try {
      for (;;) {
        let opened = Infinity;
        const frames = this.#transport.events(`${this.#path}/events`, last, signal, () => { opened = Date.now(); });
        let failure: unknown;
        try {
          for (;;) {
            const next = await frames.next();
            if (next.done) break;
            const event = JSON.parse(next.value.data) as Event;
            last = next.value.id || last;
            retries.reset();
            if (event.seq !== null) {
              if (event.seq <= after) continue;
              after = event.seq;
            }
            yield event;
          }
        } catch (e) {
          failure = asProblem(e, this.#transport.base);
        } finally {
          await frames.return();
        }
        if (signal.aborted) throw over(wait, `run ${this.id} has not ended`);
        if (failure !== undefined) {
          if (Date.now() - opened > steady) retries.reset();
          await retries.after(failure, signal);
          continue;
        }
        // A gateway that shuts down ends streams as the end of a run does.
        if (await this.#ended(after, wait.signal)) return;
        await pause(reconnectDelay, signal);
      }
    } finally {
      free();
    }
  }

  /** Reads the transcript as the model sees it; `full` adds messages that it no longer sees. */
  async messages(options: { full?: boolean } = {}): Promise<Message[]> {
    return (await this.#transport.call<{ items: Message[] }>("GET", `${this.#path}/messages${options.full ? "?view=full" : ""}`)).items;
  }

  /** Reads the whole transcript in the format of a provider. It may be the input of a submission. */
  transcript(format: Transcript["format"]): Promise<Transcript> {
    return this.#transport.call("GET", `${this.#path}/messages${query({ format })}`);
  }

  /** Reads the audit trail: one row a transition. */
  async turns(): Promise<Turn[]> {
    return (await this.#transport.call<{ items: Turn[] }>("GET", `${this.#path}/turns`)).items;
  }

  /** Aborts the run. Throws Ended if it has ended before. */
  async cancel(reason = ""): Promise<RunInfo> {
    try {
      return await this.#transport.call("POST", `${this.#path}/cancel`, { reason });
    } catch (e) {
      if (e instanceof Ended && e.retried) {
        const info = await this.get();
        if (info.status === "cancelled") return info;
      }
      throw e;
    }
  }

  /** Approves a waiting call. `arguments` replace those of the model; `hash` names the call that was reviewed. */
  approve(callId: string, decision: Decision = {}): Promise<RunInfo> {
    return this.signal({ approvals: [{ call_id: callId, decision: "approve", ...decision }] } as Signal);
  }

  /** Denies a waiting call. The model reads the reason. */
  deny(callId: string, decision: Omit<Decision, "arguments"> = {}): Promise<RunInfo> {
    return this.signal({ approvals: [{ call_id: callId, decision: "deny", ...decision }] });
  }

  /** Answers the question that the run waits with. */
  answer(text: string): Promise<RunInfo> {
    return this.signal({ answer: text });
  }

  /**
   * Sends a user message: it steers a run in flight at its next turn, and continues one that has ended. With the mode
   * `interrupt` it aborts the turn in flight; `rollback` also withdraws that turn, and throws EffectsStarted if a tool
   * call of it has started; with `reject` a busy run throws Busy.
   */
  message(text: string, options: Pick<Signal, "mode"> = {}): Promise<RunInfo> {
    return this.signal({ message: text, ...options });
  }

  /**
   * Sends the result of a call that this program made: of a client tool, or of one that answers later. The model reads
   * images and files next to the content. A file is best uploaded and named by its id: the data of others stays in the
   * history of the run.
   */
  toolResult(callId: string, content: unknown, options: { isError?: boolean; images?: Image[]; files?: ResultFile[] } = {}): Promise<RunInfo> {
    const { isError = false, ...more } = options;
    return this.signal({ tool_results: [{ call_id: callId, content, is_error: isError, ...more }] } as Signal);
  }

  /** Sends a signal. It counts once, however often it is sent with the same key. */
  signal(body: Signal, key: string = randomUUID()): Promise<RunInfo> {
    return this.#transport.call("POST", `${this.#path}/signals`, body, { key });
  }

  /** Starts a run that shares the history through `turn`, with changes. Turn 0 is the input alone. */
  async fork(request: ForkRequest, key: string = randomUUID()): Promise<Run> {
    const made = await this.#transport.call<RunInfo>("POST", `${this.#path}/fork`, request, { key });
    return new Run(this.#transport, made.id);
  }

  /** Deletes the run with its descendants. Throws Conflict if one is in flight. */
  delete(): Promise<void> {
    return this.#transport.call("DELETE", this.#path);
  }

  async #until(enough: (info: RunInfo) => boolean, wait: Wait): Promise<RunInfo> {
    const read = () => this.#transport.call<RunInfo>("GET", this.#path, undefined, { signal: wait.signal });
    let info = await read();
    if (enough(info)) return info;
    for await (const event of this.events(wait)) {
      // The event may be of an earlier wait or end.
      if ((event.type === "run.waiting" || event.type === "run.finished") && enough((info = await read()))) return info;
    }
    return read();
  }

  async #ended(after: number, signal: AbortSignal | undefined): Promise<boolean> {
    if (!ended(await this.#transport.call<RunInfo>("GET", this.#path, undefined, { signal }))) return false;
    const page = await this.#transport.call<{ items: Event[] }>("GET", `${this.#path}/events?limit=1&after=${after}`, undefined, { signal });
    return page.items.length === 0;
  }
}

/** Returns what a wait throws whose signal is aborted: the reason of the caller's signal, or Timeout. */
export function over(wait: Wait, text: string): unknown {
  return wait.signal?.aborted ? wait.signal.reason : new Timeout(text);
}

/** Returns a signal that is aborted with the caller's or after its timeout. `free` must be called. */
export function bounded(wait: Wait): { signal: AbortSignal; free: () => void } {
  return limited(wait.timeout === undefined ? undefined : wait.timeout * 1000, wait.signal);
}

/** Runs that were submitted together. `runs` are in the order of the submission. */
export class Batch {
  readonly #transport: Transport;
  readonly #path: string;
  readonly runs: Run[];

  constructor(transport: Transport, readonly id: string, runIds: string[]) {
    this.#transport = transport;
    this.#path = `/v1/batches/${encodeURIComponent(id)}`;
    this.runs = runIds.map((r) => new Run(transport, r));
  }

  /** Reads the counts and one page of runs. */
  get(page: { limit?: number; cursor?: string } = {}): Promise<BatchInfo> {
    return this.#transport.call("GET", this.#path + query(page));
  }

  /** Resolves once all runs have ended, and looks every `interval` seconds. Throws Timeout. */
  async wait(options: Wait & { interval?: number } = {}): Promise<BatchInfo> {
    const { signal, free } = bounded(options);
    try {
      for (;;) {
        const info = await this.#transport.call<BatchInfo>("GET", this.#path, undefined, { signal: options.signal });
        if (info.done) return info;
        await pause((options.interval ?? 0.5) * 1000, signal);
        if (signal.aborted) throw over(options, `batch ${this.id} has not ended`);
      }
    } finally {
      free();
    }
  }
}
