// Serves tools over NATS: docs/how-to/nats-tools.md has the protocol.
import { randomBytes } from "node:crypto";
import { connect, type ConnectionOptions, headers, type Msg, type NatsConnection, type Subscription } from "@nats-io/transport-node";
import { ArgumentsError, NATSError, ToolError } from "./errors.js";
import { address, environment, serverURL } from "./login.js";
import { type Context, Result, type Tool } from "./tool.js";

const heartbeatHeader = "Turnpike-Heartbeat", progressHeader = "Turnpike-Progress", traceHeader = "traceparent";
const leastHeartbeat = 50; // milliseconds
const mostProgress = 1000, mostError = 64 << 10, mostFirstLine = 200; // bytes
const drainTime = 5000; // milliseconds: how long a program that ends waits for the server, each time
const mayHaveActed = "The call may have had an effect: check that before you repeat it";
const mostTimer = 2 ** 31 - 1; // milliseconds of setTimeout

/** Where tools are served. Unset fields are those of the environment. */
export interface ServeOptions {
  /** Of the NATS server: TURNPIKE_NATS_URL, or the `turnpike dev` that runs in the working directory. */
  url?: string;
  /** Of the deployment's subjects: TURNPIKE_PREFIX, or turnpike. */
  prefix?: string;
  /** Whose runs call the tools: TURNPIKE_TENANT, or default. */
  tenant?: string;
  /** Options of the connection, such as an authenticator. They take the place of the login in the environment. */
  connection?: ConnectionOptions;
  /** Ends `serve` when it is aborted, in addition to SIGINT and SIGTERM. */
  signal?: AbortSignal;
}

/**
 * Serves tools until SIGINT or SIGTERM. Then it accepts no more calls, answers those in flight, and resolves. A
 * connection that breaks is restored, however long that takes. A program that ends waits only some seconds for a
 * server that is away. Throws NATSError if no server answers at the start.
 */
export async function serve(tools: Tool[], o: ServeOptions = {}): Promise<void> {
  if (tools.length === 0) throw new TypeError("serve tools: the list of tools is empty: pass at least one tool");
  const prefix = o.prefix || process.env["TURNPIKE_PREFIX"] || "turnpike";
  const tenant = o.tenant || process.env["TURNPIKE_TENANT"] || "default";
  if (!/^[a-z0-9-]{1,40}$/.test(tenant)) throw new TypeError(`serve tools: the tenant ${tenant} is not valid: use 1 to 40 lowercase letters, digits and hyphens`);
  let nc: NatsConnection;
  try {
    const login = o.connection ?? environment(), server = address(serverURL(o.url));
    nc = await connect({
      ...login, ...server, ...(login.tls ? { tls: login.tls } : {}), name: `tool ${tools[0]?.name}`, maxReconnectAttempts: -1,
      reconnectTimeWait: 1000, ignoreAuthErrorAbort: true,
    });
  } catch (e) {
    throw new NATSError(`no NATS server lets this program in (${text(e)}): start \`turnpike dev\` in this directory, or set TURNPIKE_NATS_URL and the login`);
  }
  const link = new Link(nc);
  const services = tools.map((t) => new Service(nc, t, prefix, tenant, link));
  await nc.flush();
  for (const s of services) console.error(`${s.tool.name}: answers calls on ${s.subject}`);
  await new Promise<void>((resolve) => {
    for (const name of ["SIGINT", "SIGTERM"] as const) process.once(name, () => resolve());
    o.signal?.addEventListener("abort", () => resolve());
    if (o.signal?.aborted) resolve();
  });
  await Promise.all(services.map((s) => s.stop()));
  await link.finish();
}

/** The connection: logs that it is lost or restored, and ends it. */
class Link {
  up = true;
  /** Calls were answered while there was no connection. */
  unsent = false;
  #closing = false;
  #restored = () => {};

  constructor(readonly nc: NatsConnection) {
    void this.#watch();
  }

  async #watch(): Promise<void> {
    for await (const s of this.nc.status()) {
      if (this.#closing) return;
      if (s.type === "disconnect" && this.up) {
        this.up = false;
        console.error(`connection to NATS lost: ${s.server}`);
      } else if (s.type === "reconnect") {
        this.up = true;
        this.unsent = false; // the library has sent it
        console.error("connected to NATS again");
        this.#restored();
      }
    }
  }

  /** Ends the connection once the server has all answers. It waits only some seconds for a server that is away. */
  async finish(): Promise<void> {
    if (!this.up && this.unsent) await inTime(new Promise<void>((resolve) => { this.#restored = resolve; }));
    this.#closing = true;
    if ((this.up || this.unsent) && !(this.up && await inTime(this.nc.drain()))) {
      console.error(`NATS has not answered for ${drainTime / 1000} seconds: answers of calls may be lost`);
    }
    await inTime(this.nc.close());
  }
}

/** Reports whether something succeeds in the time that a program that ends has for the server. */
async function inTime(work: Promise<unknown>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => { timer = setTimeout(resolve, drainTime, false); });
  try {
    return await Promise.race([work.then(() => true, () => false), late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Runs the calls of one tool, as a NATS micro service that `nats micro ls` and `turnpike tools ls` find. */
class Service {
  readonly subject: string;
  readonly #identity: { name: string; id: string; version: string; metadata: Record<string, string> };
  readonly #started = new Date().toISOString();
  readonly #control: Subscription[] = [];
  readonly #calls = new Set<Promise<void>>();
  readonly #slots: Slots;
  readonly #sub: Subscription;
  #requests = 0;
  #errors = 0;
  #lastError = "";
  #nanoseconds = 0;

  constructor(readonly nc: NatsConnection, readonly tool: Tool, prefix: string, tenant: string, readonly link: Link) {
    const root = tenant === "default" ? prefix : `${prefix}.t.${tenant}`;
    const discovery = tenant === "default" ? "$SRV" : `${root}.srv`;
    this.subject = `${root}.tool.${tool.name}`;
    this.#slots = new Slots(tool.concurrency);
    this.#identity = {
      name: tool.name, id: randomBytes(11).toString("hex"), version: tool.version,
      metadata: { description: tool.description, schema: JSON.stringify(tool.schema) },
    };
    this.#sub = nc.subscribe(this.subject, { queue: "q", callback: (e, m) => { if (!e) this.#take(m); } });
    for (const [verb, report] of Object.entries(this.#reports())) {
      for (const to of [[], [tool.name], [tool.name, this.#identity.id]]) {
        this.#control.push(nc.subscribe([discovery, verb, ...to].join("."), {
          callback: (e, m) => { if (!e) m.respond(JSON.stringify(report())); },
        }));
      }
    }
  }

  /** Accepts no more calls than those that the server has already sent, and resolves when all are answered. */
  async stop(): Promise<void> {
    for (const sub of this.#control) sub.unsubscribe();
    if (this.link.up) await inTime(this.#sub.drain());
    this.#sub.unsubscribe();
    await Promise.all(this.#calls);
  }

  #reports(): Record<string, () => unknown> {
    const endpoint = { name: this.tool.name, subject: this.subject, queue_group: "q" };
    return {
      PING: () => ({ type: "io.nats.micro.v1.ping_response", ...this.#identity }),
      INFO: () => ({
        type: "io.nats.micro.v1.info_response", ...this.#identity, description: this.tool.description,
        endpoints: [{ ...endpoint, metadata: this.#identity.metadata }],
      }),
      STATS: () => ({
        type: "io.nats.micro.v1.stats_response", ...this.#identity, started: this.#started,
        endpoints: [{
          ...endpoint, num_requests: this.#requests, num_errors: this.#errors, last_error: this.#lastError,
          processing_time: this.#nanoseconds, average_processing_time: Math.floor(this.#nanoseconds / Math.max(this.#requests, 1)),
        }],
      }),
    };
  }

  #take(m: Msg): void {
    if (!m.reply) return; // the caller expects no answer
    const began = performance.now();
    const call = answer(this.nc, this.tool, this.#slots, m, m.reply).then((failure) => {
      this.#requests++;
      this.#nanoseconds += Math.round((performance.now() - began) * 1e6);
      if (failure) {
        this.#errors++;
        this.#lastError = failure;
      }
    }).finally(() => {
      this.link.unsent ||= !this.link.up;
      this.#calls.delete(call);
    });
    this.#calls.add(call);
  }
}

/** A number of calls that may run at once. */
class Slots {
  readonly #waiting: (() => void)[] = [];
  constructor(private free: number) {}

  async take(): Promise<void> {
    if (this.free > 0) this.free--;
    else await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  give(): void {
    const next = this.#waiting.shift();
    if (next) next();
    else this.free++;
  }
}

interface Request {
  run_id?: string;
  call_id?: string;
  idempotency_key?: string;
  deadline?: string;
  arguments?: unknown;
}

/** Makes one call. Resolves to the first line of the error that the caller received, or nothing. */
async function answer(nc: NatsConnection, tool: Tool, slots: Slots, m: Msg, reply: string): Promise<string> {
  const refuse = (code: string, reason: string) => {
    const whole = cut(reason || `Tool "${tool.name}" failed without a message. ${mayHaveActed}`, mostError);
    const first = cut(whole.split(/[\r\n]/, 1)[0] ?? "", mostFirstLine);
    const h = headers();
    h.set("Nats-Service-Error", first);
    h.set("Nats-Service-Error-Code", code);
    nc.publish(reply, JSON.stringify({ error: whole }), { headers: h });
    return first;
  };
  let request: Request;
  try {
    request = m.json<Request>();
    if (typeof request !== "object" || request === null || Array.isArray(request)) throw new TypeError("it is not a JSON object");
    if (request.deadline && Number.isNaN(Date.parse(request.deadline))) throw new TypeError("its deadline is not a time");
  } catch (e) {
    return refuse("400", `The request to tool "${tool.name}" is not a valid request of a worker (${text(e)}): send a JSON object with the field arguments`);
  }
  const abort = new AbortController();
  const every = Number(m.headers?.get(heartbeatHeader) || 0);
  let over = false;
  const beat = (progress?: string) => {
    if (!(every > 0) || over) return; // the caller cannot tell it from the reply
    const h = headers();
    h.set(heartbeatHeader, String(every));
    if (progress !== undefined) h.set(progressHeader, JSON.stringify(cut(progress, mostProgress)));
    nc.publish(reply, "", { headers: h });
  };
  const context: Context = {
    runId: request.run_id ?? "", callId: request.call_id ?? "", idempotencyKey: request.idempotency_key ?? "",
    deadline: request.deadline ? new Date(request.deadline) : undefined, traceParent: m.headers?.get(traceHeader) ?? "", signal: abort.signal,
    progress: beat,
  };
  const cancel = nc.subscribe(`${reply}.cancel`, { callback: () => abort.abort() });
  const timer = context.deadline && setTimeout(() => abort.abort(), Math.min(context.deadline.getTime() - Date.now(), mostTimer));
  beat();
  const beats = every > 0 ? setInterval(beat, Math.max(every, leastHeartbeat)) : undefined;
  try {
    await slots.take();
    let content: unknown;
    try {
      if (abort.signal.aborted) return "";
      content = await tool.call(request.arguments, context);
    } finally {
      slots.give();
      over = true;
    }
    return respond(nc, tool, reply, content, refuse);
  } catch (e) {
    if (abort.signal.aborted) return ""; // the caller no longer listens
    if (e instanceof ArgumentsError) return refuse("400", e.message);
    if (e instanceof ToolError) return refuse("500", e.message);
    console.error(`tool ${tool.name} failed:`, e);
    return refuse("500", `Tool "${tool.name}" failed: ${text(e)}. ${mayHaveActed}; the author of the tool must correct it`);
  } finally {
    over = true;
    clearInterval(beats);
    clearTimeout(timer);
    cancel.unsubscribe();
  }
}

/** Sends the result of a call. */
function respond(nc: NatsConnection, tool: Tool, reply: string, result: unknown, refuse: (code: string, reason: string) => string): string {
  const made = result instanceof Result ? result : new Result(result);
  let data: string;
  try {
    const content = JSON.stringify(made.content ?? "") as string | undefined;
    if (content === undefined) throw new TypeError(`a ${typeof made.content} cannot be encoded as JSON`);
    const images = made.more.images ? `,"images":${JSON.stringify(made.more.images)}` : "";
    const files = made.more.files ? `,"files":${JSON.stringify(made.more.files)}` : "";
    data = `{"content":${content}${images}${files}${made.more.pending ? `,"pending":true` : ""}}`;
  } catch (e) {
    return refuse("500", `Tool "${tool.name}" was called, but its result cannot be written as JSON (${text(e)}). Continue without it; the author of the tool must correct it`);
  }
  const bytes = Buffer.byteLength(data), most = nc.info?.max_payload ?? 1 << 20;
  if (bytes > most) {
    return refuse("500", `Tool "${tool.name}" was called, but its result has ${bytes} bytes, and the NATS server accepts at most ${most}: return less, or raise max_payload of the server`);
  }
  nc.publish(reply, data);
  return "";
}

function text(e: unknown): string {
  return e instanceof Error ? e.message : String(e);
}

/** Returns the first bytes of a text, without half a character at the end. */
function cut(value: string, most: number): string {
  const bytes = Buffer.from(value);
  if (bytes.length <= most) return value;
  let end = most;
  while (end > 0 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end--;
  return bytes.subarray(0, end).toString();
}
