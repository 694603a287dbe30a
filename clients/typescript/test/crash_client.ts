// Follows a run and submits another while the gateway is killed. internal/verify/clients has the other side.
import assert from "node:assert/strict";
import { createInterface } from "node:readline";
import { once } from "node:events";
import { Client } from "turnpike";

const client = new Client({ retryFor: 120 });
const run = await client.submit("approval", "Hi");
console.log(`run ${run.id}`);
const seen: number[] = [];
for await (const event of run.events({ timeout: 120 })) {
  if (event.seq !== null) seen.push(event.seq);
  if (event.type === "run.waiting") console.log("following");
}
assert.deepEqual(seen, seen.map((_, i) => i + 1));
assert.equal((await run.get()).status, "completed");
console.log("followed");

await once(createInterface({ input: process.stdin }), "line");
const made = await client.submit("hello", "Hi", { metadata: { once: "yes" } });
const runs: string[] = [];
for await (const r of client.runs({ "metadata.once": "yes" })) runs.push(r.id);
assert.deepEqual(runs, [made.id]);
assert.equal(await made.result({ timeout: 120 }), "Hello.");
console.log("submitted");
process.exit(0); // standard input may be open
