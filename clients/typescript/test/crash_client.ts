// Follows runs and makes changes while the gateway is killed. internal/verify/clients has the other side.
import assert from "node:assert/strict";
import { createInterface } from "node:readline";
import { once } from "node:events";
import { Client } from "turnpike";

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

const client = new Client({ retryFor: 120 });
const minutes = { timeout: 120 };
const memory = client.memory("tenant"), schedule = client.schedule("asks");
const stopped = await client.submit("approval", "Hi");
const old = (await memory.read("old.md")).version;

const run = await client.submit("approval", "Hi");
console.log(`run ${run.id}`);
const seen: number[] = [];
for await (const event of run.events(minutes)) {
  if (event.seq !== null) seen.push(event.seq);
  if (event.type === "run.waiting") console.log("following");
}
assert.deepEqual(seen, seen.map((_, i) => i + 1));
assert.equal((await run.get()).status, "completed");
console.log("followed");

// Changes whose answers are lost, so that they are repeated.
await once(createInterface({ input: process.stdin }), "line");
const [cancelled, made, fired, written] = await Promise.all([
  stopped.cancel(),
  client.submit("hello", "Hi", { metadata: { once: "yes" } }),
  schedule.run(),
  memory.write("new.md", "new", { version: 0 }),
  memory.delete("old.md", { version: old }),
  client.schedule("old").delete(),
]);
assert.equal(cancelled.status, "cancelled");
assert.deepEqual((await all(client.runs({ "metadata.once": "yes" }))).map((r) => r.id), [made.id]);
assert.equal(await made.result(minutes), "Hello.");
assert.deepEqual((await all(client.runs({ "metadata.schedule": "asks" }))).map((r) => r.id), [fired.id]);
assert.deepEqual((await all(memory.files())).map((f) => [f.path, f.version]), [["new.md", written.version]]);
assert.deepEqual((await all(client.schedules())).map((s) => s.name), ["asks"]);
console.log("submitted");

assert.equal((await fired.wait(minutes)).status, "waiting");
console.log(`waits ${fired.id}`);
assert.equal(await fired.result(minutes), "Done.");
console.log("done");
process.exit(0); // standard input may be open
