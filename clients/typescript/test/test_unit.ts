// Tests that need no server.
import assert from "node:assert/strict";
import * as fs from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { ArgumentsError, Client, type Context, type FromSchema, tool, Unavailable } from "turnpike";

const input = {
  type: "object",
  properties: {
    stops: {
      type: "array", minItems: 1,
      items: { type: "object", properties: { city: { type: "string" }, days: { type: "integer", minimum: 1 } }, required: ["city"], additionalProperties: false },
    },
    speed: { enum: ["slow", "fast"] },
    limit: { type: ["number", "null"] },
    code: { type: "string", pattern: "^[A-Z]+$", maxLength: 3 },
    place: { anyOf: [{ type: "string" }, { type: "object", properties: { lat: { type: "number" } }, required: ["lat"] }] },
    extra: { type: "object", additionalProperties: { type: "boolean" } },
  },
  required: ["stops", "speed"],
} as const;

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends (<T>() => T extends B ? 1 : 2) ? true : false;
type Want = {
  stops: { city: string; days?: number }[];
  speed: "slow" | "fast";
  limit?: number | null;
  code?: string;
  place?: string | { lat: number };
  extra?: Record<string, boolean>;
};
const typed: Same<FromSchema<typeof input>, Want> = true;

const context = { signal: new AbortController().signal, progress() {} } as unknown as Context;
const plan = tool({ name: "plan-trip", version: "2.0.0", input, run: ({ stops, speed }) => `${stops.map((s) => s.city).join()} ${speed}` });

test("arguments that match", async () => {
  assert.ok(typed);
  assert.equal(await plan.call({ stops: [{ city: "Rome", days: 2 }], speed: "slow", limit: null, extra: { a: true } }, context), "Rome slow");
  assert.equal(plan.schema.additionalProperties, false);
});

test("arguments that do not", async () => {
  const good = { stops: [{ city: "Rome" }], speed: "slow" };
  for (const [change, place] of [
    [{ stops: [{ city: "Rome" }, {}] }, "stops[1].city"], [{ stops: [{ city: "Rome", days: 0 }] }, "stops[0].days"], [{ stops: [] }, "stops"],
    [{ stops: [{ city: "Rome", x: 1 }] }, "stops[0].x"], [{ speed: "SLOW" }, "speed"], [{ limit: "3" }, "limit"], [{ limit: true }, "limit"],
    [{ code: "abc" }, "code"], [{ code: "ABCD" }, "code"], [{ place: 7 }, "place"], [{ place: {} }, "place.lat"], [{ extra: { a: 1 } }, "extra.a"],
    [{ toString: 1 }, "toString"],
  ] as const) {
    await assert.rejects(plan.call({ ...good, ...change }, context), (e) => e instanceof ArgumentsError && e.message.includes(place), place);
  }
  for (const value of [null, [], "x", undefined]) await assert.rejects(plan.call(value, context), ArgumentsError);
});

test("tools that cannot be", () => {
  for (const bad of [
    { name: "a.b" }, { name: "" }, { name: "x".repeat(65) }, { version: "1" }, { input: { type: "object", oneOf: [] } },
    { input: { type: "object", properties: {}, required: ["x"] } }, { input: { type: "object", properties: { a: { format: "date" } } } },
  ]) {
    assert.throws(() => tool({ name: "t", input: { type: "object" }, run() {}, ...bad } as Parameters<typeof tool>[0]), TypeError, JSON.stringify(bad));
  }
});

test("an upload that is repeated, and a file that has changed", { skip: !("openAsBlob" in fs) }, async () => { // Node.js 20
  const seen: unknown[] = [];
  const server = createServer((request, response) => {
    let bytes = 0;
    request.on("data", (chunk: Buffer) => { bytes += chunk.length; });
    request.on("end", () => {
      const { "content-length": length, "content-type": type } = request.headers;
      seen.push([request.url, type, length, bytes]);
      if (seen.length === 1) response.destroy(); // without an answer
      else response.writeHead(seen.length === 2 ? 503 : 201, { "Retry-After": "0" }).end('{"id": "file_1"}');
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const client = new Client({ url: `127.0.0.1:${(server.address() as AddressInfo).port}`, retryFor: 10 });
  const directory = await mkdtemp(join(tmpdir(), "turnpike-"));
  try {
    const path = join(directory, "large");
    await writeFile(path, new Uint8Array(300_000));
    const blob = await fs.openAsBlob(path);
    assert.equal((await client.upload(new File([blob], "a b.txt", { type: "text/plain" }))).id, "file_1");
    const once = ["/v1/files?name=a+b.txt", "text/plain", "300000", 300_000];
    assert.deepEqual(seen, [once, once, once]);
    // Its size gives a large file more time than `timeout`.
    const hasty = new Client({ url: `127.0.0.1:${(server.address() as AddressInfo).port}`, retryFor: 0, timeout: 0 });
    assert.equal((await hasty.upload(new Uint8Array(300_000))).id, "file_1");
    await writeFile(path, "changed");
    await assert.rejects(client.upload(blob), { name: "NotReadableError" });
  } finally {
    server.close();
    server.closeAllConnections();
    await rm(directory, { recursive: true });
  }
});

test("a gateway that does not answer", async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  await new Promise((resolve) => server.close(resolve));
  const run = new Client({ url: address, retryFor: 0 }).run("run_1");
  for (const read of [() => run.get(), () => run.events().next()]) {
    await assert.rejects(read(), (e) => e instanceof Unavailable && e.message.includes(`no gateway answers at ${address} (`) && e.message.includes("TURNPIKE_URL"));
  }
});

test("waits that are aborted during a request, and while it is repeated", async () => {
  let asked = () => {}, status = 0;
  const server = createServer((request, response) => {
    if (request.url === "/v1/runs:batch") return response.writeHead(202).end('{"batch_id": "batch_1", "run_ids": []}');
    if (status > 0) response.writeHead(status, { "Retry-After": "20" }).end(); // else it does not answer
    asked();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const client = new Client({ url: `127.0.0.1:${(server.address() as AddressInfo).port}` });
  const batch = await client.batch([]);
  try {
    for (status of [0, 503]) {
      for (const wait of [
        (signal: AbortSignal) => client.run("run_1").wait({ signal }), (signal: AbortSignal) => client.run("run_1").result({ signal }),
        (signal: AbortSignal) => client.run("run_1").events({ signal }).next(), (signal: AbortSignal) => batch.wait({ signal }),
        (signal: AbortSignal) => client.testWebhook("https://a.example", "secret://S", { signal }),
      ]) {
        const controller = new AbortController();
        const arrived = new Promise<void>((resolve) => { asked = resolve; });
        const waits = assert.rejects(wait(controller.signal), { message: "mine" });
        await arrived;
        controller.abort(new Error("mine"));
        await waits;
      }
    }
  } finally {
    server.close();
    server.closeAllConnections();
  }
});

test("a limit of runs, and a wait that is aborted", async () => {
  const asked: string[] = [];
  const server = createServer((request, response) => {
    asked.push(request.url ?? "");
    if (request.url?.startsWith("/v1/runs?")) return response.end('{"items": [{"id": "a"}, {"id": "b"}], "next_cursor": "c"}'); // endless
    if (!request.url?.includes("/events")) return response.end('{"status": "running", "waiting": null}');
    response.writeHead(200, { "Content-Type": "text/event-stream" }).write(":\n\n"); // silent
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const client = new Client({ url: `127.0.0.1:${(server.address() as AddressInfo).port}` });
  const ids = async (limit: number) => {
    const found: string[] = [];
    for await (const r of client.runs({ limit })) found.push(r.id);
    return found;
  };
  try {
    assert.deepEqual(await ids(3), ["a", "b", "a"]);
    assert.deepEqual(asked, ["/v1/runs?limit=3", "/v1/runs?limit=3&cursor=c"]);
    assert.deepEqual(await ids(0), []);
    await assert.rejects(ids(-1), RangeError);
    const run = client.run("run_1");
    const controller = new AbortController();
    const waits = assert.rejects(run.wait({ signal: controller.signal }), { name: "AbortError" });
    controller.abort();
    await waits;
    await assert.rejects(run.wait({ signal: AbortSignal.abort(new Error("mine")) }), { message: "mine" });
    await assert.rejects(run.wait({ timeout: 0.01 }), { name: "Timeout" });
  } finally {
    server.close();
    server.closeAllConnections();
  }
});
