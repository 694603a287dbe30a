// Convert is a tool in TypeScript for agents of any deployment: it converts quantities.
//
//	npm install && npm start
//
// With Node.js 22.18 or later, which runs TypeScript as it is, tsx is not needed:
//
//	node convert.ts
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { connect, headers } from "@nats-io/transport-node";
import { type ServiceMsg, Svcm } from "@nats-io/services";

const description = "Converts a length, a mass or a temperature to another unit.";
const schema = {
  type: "object",
  properties: {
    value: { type: "number" },
    from: { type: "string", description: "unit of the value: m, km, ft, mi, g, kg, lb, C, F or K" },
    to: { type: "string", description: "unit to convert to" },
  },
  required: ["value", "from", "to"],
  additionalProperties: false,
};

// Kind, factor and offset: a unit is so many of its kind's base unit, counted from an offset.
const units = new Map<unknown, [kind: string, factor: number, offset: number]>([
  ["m", ["length", 1, 0]], ["km", ["length", 1000, 0]], ["ft", ["length", 0.3048, 0]], ["mi", ["length", 1609.344, 0]],
  ["g", ["mass", 1, 0]], ["kg", ["mass", 1000, 0]], ["lb", ["mass", 453.59237, 0]],
  ["C", ["temperature", 1, 273.15]], ["F", ["temperature", 5 / 9, (459.67 * 5) / 9]], ["K", ["temperature", 1, 0]],
]);

interface Call {
  call_id: string;
  run_id: string;
  arguments: Record<string, unknown>;
  idempotency_key: string;
  deadline?: string;
}

// It depends on nothing but its arguments, so it may be called twice for one call. A
// tool that changes the world keeps call.idempotency_key with the change.
async function convert(call: Call, signal: AbortSignal): Promise<unknown> {
  const { value, from, to, ...rest } = call.arguments ?? {};
  if (typeof value !== "number" || Object.keys(rest).length > 0) {
    throw new Error("the arguments are {value: a number, from: a unit, to: a unit}");
  }
  const source = units.get(from), target = units.get(to);
  if (!source || !target) throw new Error(`unknown unit: from "${from}" to "${to}": use m, km, ft, mi, g, kg, lb, C, F or K`);
  if (source[0] !== target[0]) throw new Error(`a ${source[0]} is not a ${target[0]}: use two units of one kind`);
  // Makes calls slow, to see what happens when an instance dies.
  await pause(Number(process.env.CONVERT_DELAY_MS ?? 0), signal);
  return { value: Number(((value * source[1] + source[2] - target[2]) / target[1]).toPrecision(10)), unit: to };
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); reject(signal.reason); });
  });
}

// The rest is the protocol of Turnpike's tools: docs/how-to/nats-tools.md.

// The server of TURNPIKE_NATS_URL, else of the `turnpike dev` that runs here or at the root of the repository, else the usual one.
function server(): string {
  const given = process.env.TURNPIKE_NATS_URL;
  for (const dir of [process.env.TURNPIKE_DATA_DIR || ".turnpike", "../../../.turnpike"]) {
    const file = join(dir, "nats.url");
    if (!existsSync(file)) continue;
    const dev = readFileSync(file, "utf8").trim();
    // Its address gets its password, wherever it comes from.
    if (!given || given === dev.replace(/\/\/.*@/, "//")) return dev;
  }
  return given || "nats://127.0.0.1:4222";
}

// Services of NATS's library answer the questions that find them on $SRV, which is the default tenant's.
if ((process.env.TURNPIKE_TENANT || "default") !== "default") {
  console.error("TURNPIKE_TENANT: this example serves the default tenant only; docs/how-to/nats-tools.md#tenants");
  process.exit(1);
}

// The client takes user and password beside the address only.
const [, user, pass, address] = /^nats:\/\/([^:@]+):([^@]+)@(.+)$/.exec(server()) ?? ["", undefined, undefined, server()];
const login = user && pass ? { user: decodeURIComponent(user), pass: decodeURIComponent(pass) } : {};
const nc = await connect({ servers: address, ...login, name: "tool convert", maxReconnectAttempts: -1 }).catch((e: Error) => {
  console.error(`no NATS server answers (${e.message}): start \`turnpike dev\`, or set TURNPIKE_NATS_URL`);
  process.exit(1);
});

const maxTimeout = 2 ** 31 - 1; // of setTimeout

async function answer(msg: ServiceMsg): Promise<void> {
  if (!msg.reply) return; // nobody would hear of it
  const reply = msg.reply;
  const abort = new AbortController();
  // The caller says when it does not listen any more ...
  const cancel = nc.subscribe(`${reply}.cancel`, { callback: () => abort.abort() });
  // ... and wants to hear that somebody works for it.
  const every = Number(msg.headers?.get("Turnpike-Heartbeat") || 0);
  const heartbeat = () => {
    const h = headers();
    h.set("Turnpike-Heartbeat", String(every));
    nc.publish(reply, "", { headers: h });
  };
  if (every > 0) heartbeat();
  const heartbeats = every > 0 ? setInterval(heartbeat, Math.max(every, 50)) : undefined;
  let deadline: NodeJS.Timeout | undefined;
  try {
    const call = msg.json<Call>();
    if (call.deadline) deadline = setTimeout(() => abort.abort(), Math.min(Date.parse(call.deadline) - Date.now(), maxTimeout));
    const content = JSON.stringify({ content: await convert(call, abort.signal) });
    if (Buffer.byteLength(content) > (nc.info?.max_payload ?? 0)) throw new Error("the result is larger than the NATS server takes");
    msg.respond(content);
  } catch (e) {
    if (abort.signal.aborted) return;
    const text = e instanceof Error ? e.message : String(e);
    msg.respondError(500, text.split("\n")[0].slice(0, 200), JSON.stringify({ error: text }));
  } finally {
    clearInterval(heartbeats);
    clearTimeout(deadline);
    cancel.unsubscribe();
  }
}

const running = new Set<Promise<void>>();
const service = await new Svcm(nc).add({
  name: "convert", version: "1.0.0", description, metadata: { description, schema: JSON.stringify(schema) },
});
service.addEndpoint("convert", {
  subject: `${process.env.TURNPIKE_PREFIX ?? "turnpike"}.tool.convert`,
  handler: (err, msg) => {
    if (err) return;
    const call = answer(msg).finally(() => running.delete(call));
    running.add(call);
  },
});

// No more calls, but an answer to those that came.
for (const name of ["SIGINT", "SIGTERM"] as const) {
  process.once(name, async () => {
    await service.stop();
    await Promise.all(running);
    await nc.drain();
  });
}
