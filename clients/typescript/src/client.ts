import { randomUUID } from "node:crypto";
import { Memory, Schedule, Trigger } from "./resources.js";
import { Batch, bounded, over, Run, type Wait } from "./run.js";
import type { FromSchema, Schema } from "./schema.js";
import { pause, query, Transport } from "./transport.js";
import type {
  Agent, AgentVersion, DeadLetter, Evaluation, EvaluationReport, EvaluationSummary, File, Hook, HookSettings, PendingEvent, RunFilter, RunInfo, SavedAgent,
  ScheduleInfo, Submission, Token, TriggerInfo, WebhookTest,
} from "./types.js";

const maxPage = 1000; // the most items that a gateway lists at once

export interface ClientOptions {
  /** Of the gateway: TURNPIKE_URL, or http://127.0.0.1:7070. */
  url?: string;
  /** An API key, or a token of the gateway's OpenID provider: TURNPIKE_TOKEN. */
  token?: string;
  /** For callers with roles in several tenants: TURNPIKE_TENANT. */
  tenant?: string;
  /** Seconds in which a request that gets 429, 503 or no answer is repeated; default 30. */
  retryFor?: number;
  /** Seconds after which a request counts as unanswered; default 60. Each 16 KB of an upload add one. */
  timeout?: number;
}

/** What a submission has besides agent and input. Submissions with the same `key` give one run. */
export type SubmitOptions = Omit<Submission, "agent" | "input"> & { key?: string };

export interface TokenOptions {
  /** Default: viewer and submitter. */
  roles?: ("viewer" | "submitter" | "approver")[];
  /** Whose runs the token may start and read; default all. Excludes `run`. */
  agents?: string[];
  /** The only run that the token may read. */
  run?: string;
  /** A duration such as 15m, the default; at most 24h. */
  expiresIn?: string;
}

/**
 * Submits runs to a gateway and reads them. Submissions and signals have an idempotency key, so that one that is
 * repeated counts once. Certificates are those that Node.js trusts: NODE_EXTRA_CA_CERTS adds an authority.
 */
export class Client {
  readonly #transport: Transport;

  constructor(o: ClientOptions = {}) {
    this.#transport = new Transport({
      url: o.url || process.env["TURNPIKE_URL"] || "http://127.0.0.1:7070", token: o.token || process.env["TURNPIKE_TOKEN"],
      tenant: o.tenant || process.env["TURNPIKE_TENANT"], retryFor: o.retryFor ?? 30, timeout: o.timeout ?? 60,
    });
  }

  /** Stores a version of an agent: an object, or a text in YAML or JSON. An unchanged one makes no version. */
  putAgent(name: string, definition: object | string): Promise<SavedAgent> {
    if (typeof definition === "string") return this.#transport.call("PUT", agent(name), undefined, { text: definition });
    return this.#transport.call("PUT", agent(name), definition);
  }

  /** Reads a version of an agent, by default the latest. */
  getAgent(name: string, options: { version?: number } = {}): Promise<Agent> {
    return this.#transport.call("GET", agent(name) + query({ version: options.version }));
  }

  /** Yields the agents. */
  agents(): AsyncGenerator<Agent, void, undefined> {
    return this.#transport.pages("/v1/agents");
  }

  /** Yields the versions of an agent, the newest first, with the figures of their runs. */
  agentVersions(name: string): AsyncGenerator<AgentVersion, void, undefined> {
    return this.#transport.pages(`${agent(name)}/versions`);
  }

  /** Removes an agent. Its runs keep their version. */
  deleteAgent(name: string): Promise<void> {
    return this.#transport.call("DELETE", agent(name));
  }

  /** Submits a run and resolves to its handle once it is durable. */
  async submit(agent: string, input: Submission["input"], options: SubmitOptions = {}): Promise<Run> {
    const { key = randomUUID(), ...more } = options;
    const made = await this.#transport.call<RunInfo>("POST", "/v1/runs", { agent, input, ...more }, { key });
    return new Run(this.#transport, made.id);
  }

  /** Submits a run whose output must match a schema, and resolves to the output. See `submit` and `Run.result`. */
  async do<const S extends Schema>(agent: string, input: Submission["input"], output: S, options: SubmitOptions & Wait = {}): Promise<FromSchema<S>> {
    const { timeout, signal, ...more } = options;
    const run = await this.submit(agent, input, { output_schema: output, ...more });
    return run.result({ output, ...(timeout === undefined ? {} : { timeout }), ...(signal ? { signal } : {}) });
  }

  /** Returns the handle of a run. It makes no request. */
  run(id: string): Run {
    return new Run(this.#transport, id);
  }

  /**
   * Yields runs, the newest first: at most `limit`, or all. Filters are the parameters of GET /v1/runs, such as status and
   * metadata.KEY.
   */
  async *runs(filters: { limit?: number | string; [parameter: string]: number | string | undefined } = {}): AsyncGenerator<RunInfo, void, undefined> {
    let left = Number(filters.limit ?? Infinity);
    if (!(left >= 0)) throw new RangeError(`limit is ${filters.limit}: set 0 or more, or omit it`);
    if (left === 0) return;
    const parameters = { ...filters, limit: filters.limit === undefined ? undefined : Math.min(left, maxPage) };
    for await (const run of this.#transport.pages<RunInfo>("/v1/runs", parameters)) {
      yield run;
      if (--left <= 0) return;
    }
  }

  /**
   * Aborts all runs in flight that match a filter, and resolves to their ids, the newest first. With `dryRun` it aborts
   * none. Throws Invalid if the filter is empty. It makes a request for every 1,000 runs. If one fails, some runs may be
   * aborted: call it again.
   */
  async cancelRuns(filter: RunFilter, options: { reason?: string; dryRun?: boolean } = {}): Promise<string[]> {
    const { reason = "", dryRun = false } = options;
    const ids: string[] = [];
    for (let cursor: string | undefined; ;) {
      const body = { filter, reason, dry_run: dryRun, cursor };
      const page = await this.#transport.call<{ run_ids: string[]; next_cursor: string | null }>("POST", "/v1/runs:cancel", body);
      ids.push(...page.run_ids);
      if (!page.next_cursor) return ids;
      cursor = page.next_cursor;
    }
  }

  /** Submits 1 to 1,000 runs: all of them, or none. */
  async batch(runs: Submission[], options: { maxParallel?: number; countWaiting?: boolean; key?: string } = {}): Promise<Batch> {
    const body = {
      runs, ...(options.maxParallel === undefined ? {} : { max_parallel: options.maxParallel }), ...(options.countWaiting ? { count_waiting: true } : {}),
    };
    const made = await this.#transport.call<{ batch_id: string; run_ids: string[] }>("POST", "/v1/runs:batch", body, { key: options.key ?? randomUUID() });
    return new Batch(this.#transport, made.batch_id, made.run_ids);
  }

  /**
   * Uploads a file; a part `{ type: "file", file_id }` names it. A Blob is sent while it is read, such as a file that
   * `openAsBlob` of node:fs has opened; name and media type are those of the Blob by default. Without a media type the
   * gateway finds it by the name, or else by the content.
   *
   * The gateway deletes the file a day after the last run that names it. The client repeats an upload whose answer is
   * lost, and the gateway deletes an unused copy after a day.
   */
  upload(content: Uint8Array<ArrayBuffer> | Blob, options: { name?: string; mediaType?: string } = {}): Promise<File> {
    const own: { name?: unknown; type?: string } = content instanceof Blob ? content : {};
    const name = options.name ?? (typeof own.name === "string" ? own.name : undefined);
    const headers = { "Content-Type": options.mediaType ?? (own.type || "application/octet-stream") };
    return this.#transport.send("POST", `/v1/files${query({ name })}`, headers, content, async (answer) => await answer.json() as File);
  }

  /** Reads what is known of a file, without its content. */
  getFile(id: string): Promise<File> {
    return this.#transport.call("GET", file(id));
  }

  /** Reads the content of a file. */
  download(id: string): Promise<Uint8Array<ArrayBuffer>> {
    return this.#transport.send("GET", `${file(id)}/content`, { Accept: "*/*" }, undefined, async (answer) => new Uint8Array(await answer.arrayBuffer()));
  }

  /** Yields the files, without their contents. */
  files(): AsyncGenerator<File, void, undefined> {
    return this.#transport.pages("/v1/files");
  }

  /** Deletes a file. Throws Conflict if a run or a schedule names it. */
  deleteFile(id: string): Promise<void> {
    return this.#transport.call("DELETE", file(id));
  }

  /** Returns the memory of a scope: tenant, agent:NAME or metadata.KEY:VALUE. It makes no request. */
  memory(scope: string): Memory {
    return new Memory(this.#transport, scope);
  }

  /** Yields the scopes that have a memory. */
  async *memoryScopes(): AsyncGenerator<string, void, undefined> {
    for await (const item of this.#transport.pages<{ scope: string }>("/v1/memory:scopes")) yield item.scope;
  }

  /** Returns the handle of a schedule. It makes no request. */
  schedule(name: string): Schedule {
    return new Schedule(this.#transport, name);
  }

  /** Yields the schedules by name. */
  schedules(): AsyncGenerator<ScheduleInfo, void, undefined> {
    return this.#transport.pages("/v1/schedules");
  }

  /** Returns the handle of a trigger. It makes no request. */
  trigger(name: string): Trigger {
    return new Trigger(this.#transport, name);
  }

  /** Yields the triggers by name. */
  triggers(): AsyncGenerator<TriggerInfo, void, undefined> {
    return this.#transport.pages("/v1/triggers");
  }

  /** Stores the settings of a hook, all of them. Gateways use them within two seconds. */
  putHook(name: string, settings: HookSettings): Promise<Hook> {
    return this.#transport.call("PUT", hook(name), settings);
  }

  /** Reads a hook. */
  getHook(name: string): Promise<Hook> {
    return this.#transport.call("GET", hook(name));
  }

  /** Yields the hooks by name. */
  hooks(): AsyncGenerator<Hook, void, undefined> {
    return this.#transport.pages("/v1/hooks");
  }

  /** Removes a hook. Its runs stay. */
  deleteHook(name: string): Promise<void> {
    return this.#transport.call("DELETE", hook(name));
  }

  /** Yields the messages that could not be processed, the oldest first. */
  deadLetters(): AsyncGenerator<DeadLetter, void, undefined> {
    return this.#transport.pages("/v1/dead");
  }

  /** Reads a dead letter: its cause, and what to do. */
  getDeadLetter(seq: number): Promise<DeadLetter> {
    return this.#transport.call("GET", `/v1/dead/${seq}`);
  }

  /**
   * Processes the message of a dead letter again. Replaying a letter again changes nothing, except that a webhook gets
   * its event again.
   */
  replayDeadLetter(seq: number): Promise<DeadLetter> {
    return this.#transport.call("POST", `/v1/dead/${seq}/replay`);
  }

  /** Yields the events that webhooks have not accepted yet, those of the oldest run first. */
  pendingEvents(): AsyncGenerator<PendingEvent, void, undefined> {
    return this.#transport.pages("/v1/webhooks/pending");
  }

  /**
   * Has a worker send a made-up event to a receiver, once, and resolves to how that ended. `secret` refers to secrets of
   * the workers, as in the webhook of a run. It looks every `interval` seconds, default 0.2, and throws Timeout after
   * `timeout` seconds, default 60. If the answer to the request is lost, the receiver may get two events.
   */
  async testWebhook(url: string, secret: string | string[], options: Wait & { interval?: number } = {}): Promise<WebhookTest> {
    const { signal, free } = bounded({ timeout: 60, ...options });
    try {
      let test = await this.#transport.call<WebhookTest>("POST", "/v1/webhooks/tests", { url, secret }, { signal: options.signal });
      while (test.status === "pending") {
        await pause((options.interval ?? 0.2) * 1000, signal);
        if (signal.aborted) throw over(options, `no worker has ended the webhook test ${test.id}`);
        test = await this.#transport.call<WebhookTest>("GET", webhookTest(test.id), undefined, { signal: options.signal });
      }
      return test;
    } finally {
      free();
    }
  }

  /** Reads a test of a webhook. The gateway keeps tests for an hour at least. */
  getWebhookTest(id: string): Promise<WebhookTest> {
    return this.#transport.call("GET", webhookTest(id));
  }

  /** Stores the report of an evaluation, and replaces the one with that id. The tenant keeps its newest 500. */
  putEvaluation(id: string, report: EvaluationReport): Promise<EvaluationSummary> {
    return this.#transport.call("PUT", evaluation(id), report);
  }

  /** Reads an evaluation with its results. */
  getEvaluation(id: string): Promise<Evaluation> {
    return this.#transport.call("GET", evaluation(id));
  }

  /** Yields the evaluations, of an agent or of all, the newest first and without their results. */
  evaluations(filters: { agent?: string } = {}): AsyncGenerator<EvaluationSummary, void, undefined> {
    return this.#transport.pages("/v1/evaluations", filters);
  }

  /** Deletes an evaluation. Its runs stay. */
  deleteEvaluation(id: string): Promise<void> {
    return this.#transport.call("DELETE", evaluation(id));
  }

  /**
   * Issues a short-lived token for a user of this program, which needs an API key with the role issuer. The token
   * reaches the runs of that user only, of `agents` or the one `run` if given. Pass its text to the user's browser.
   */
  createToken(user: string, options: TokenOptions = {}): Promise<Token> {
    const { roles = ["viewer", "submitter"], expiresIn, ...more } = options;
    return this.#transport.call("POST", "/v1/tokens", { user, roles, ...more, ...(expiresIn === undefined ? {} : { expires_in: expiresIn }) });
  }
}

function agent(name: string): string {
  return `/v1/agents/${encodeURIComponent(name)}`;
}

function evaluation(id: string): string {
  return `/v1/evaluations/${encodeURIComponent(id)}`;
}

function webhookTest(id: string): string {
  return `/v1/webhooks/tests/${encodeURIComponent(id)}`;
}

function file(id: string): string {
  return `/v1/files/${encodeURIComponent(id)}`;
}

function hook(name: string): string {
  return `/v1/hooks/${encodeURIComponent(name)}`;
}
