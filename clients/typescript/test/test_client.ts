// Tests of the client against the deployment at TURNPIKE_URL.
import assert from "node:assert/strict";
import { createHash, randomUUID } from "node:crypto";
import * as fs from "node:fs";
import { mkdtemp, open, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import {
  Busy, Changed, Client, Conflict, EffectsStarted, Ended, type EvaluationReport, type Event, Forbidden, Full, Invalid, NotFound, NotWaiting, OutputError, Problem, type Run,
  RunFailed, type RunInfo, Stale, Timeout, Unauthenticated, Unavailable,
} from "turnpike";

const client = new Client({ timeout: 30 });
const minute = { timeout: 60 };

/** Saves an agent of its own for a test, and returns its name. */
async function agent(responses: object[], more: object = {}): Promise<string> {
  const name = `a-${randomUUID().slice(0, 12)}`;
  await client.putAgent(name, { model: { provider: "scripted", responses }, ...more });
  return name;
}

const call = (name: string, args: object = {}) => ({ tool_calls: [{ name, id: "c1", arguments: args }] });

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

/** Returns a check of an error for assert.rejects. */
function is<E extends Error>(kind: abstract new (...args: never[]) => E, more: Partial<E> = {}) {
  return (e: unknown) => {
    assert.ok(e instanceof kind, String(e));
    for (const [k, v] of Object.entries(more)) assert.equal((e as Record<string, unknown>)[k], v);
    return true;
  };
}

/** Resolves to the run once it has ended, or waits, at a later version than this one. */
async function rest(run: Run, version: number): Promise<RunInfo> {
  for await (const event of run.events(minute)) {
    if ((event.type === "run.waiting" || event.type === "run.finished") && (event.version ?? 0) > version) break;
  }
  return run.get();
}

const invoice = {
  type: "object", properties: { customer: { type: "string" }, total: { type: "number" }, lines: { type: "array", items: { type: "string" } } },
  required: ["customer", "total", "lines"], additionalProperties: false,
} as const;

test("agents", async () => {
  const name = await agent([{ text: "Hello." }]);
  assert.equal((await client.getAgent(name)).version, 1);
  const saved = await client.putAgent(name, `name: ${name}\nmodel:\n  provider: scripted\n  responses: [{text: Hello again.}]\n`);
  assert.equal(saved.version, 2);
  assert.equal(await (await client.submit(name, "Hi")).result(minute), "Hello again.");
  assert.equal(await (await client.submit(name, "Hi", { agent_version: 1 })).result(minute), "Hello.");
  assert.deepEqual([(await client.getAgent(name, { version: 1 })).version, (await client.getAgent(name)).version], [1, 2]);
  const versions = (await all(client.agentVersions(name))).map((v) => [v.version, v.latest, v.runs.statuses]);
  assert.deepEqual(versions, [[2, true, { completed: 1 }], [1, false, { completed: 1 }]]);
  assert.ok((await all(client.agents())).some((a) => a.name === name));
  await client.deleteAgent(name);
  await assert.rejects(client.getAgent(name), is(NotFound, { status: 404, code: "agent_not_found" }));
  await assert.rejects(client.putAgent("bad", { model: { provider: "scripted", responses: [] }, tools: [{ knd: "nats", name: "x" }] }), (e) => {
    is(Invalid, { code: "invalid_agent" })(e);
    return (e as Invalid).errors.some((f) => f.at?.startsWith("tools[0]"));
  });
});

test("submit", async () => {
  const name = await agent([{ text: "Hello." }]);
  const mark = randomUUID();
  const run = await client.submit(name, [{ role: "user", parts: [{ type: "text", text: "Hi" }] }], {
    key: mark, metadata: { mark }, priority: "high", limits: { max_turns: 3, deadline: "10m" },
  });
  assert.equal(await run.result(minute), "Hello.");
  const info = await run.get();
  assert.deepEqual([info.status, info.reason, info.agent, info.priority, info.budget.max_turns], ["completed", "completed", name, "high", 3]);
  assert.deepEqual((await all(client.runs({ "metadata.mark": mark, status: "completed" }))).map((r) => r.id), [run.id]);
  assert.deepEqual((await run.messages()).map((m) => m.role), ["user", "assistant"]);
  assert.equal((await run.turns())[0]?.reason, "submitted");
  const transcript = await run.transcript("openai");
  assert.deepEqual([transcript.format, transcript.messages.map((m) => m["role"])], ["openai", ["user", "assistant"]]);
  const again = await client.submit(name, transcript);
  assert.equal(await again.result(minute), "Hello.");
  assert.deepEqual((await again.messages()).map((m) => m.role), ["user", "assistant", "assistant"]);
  // The same key and body is the same run, another body a conflict.
  const [one, two] = await Promise.all([client.submit(name, "Hi", { key: `${mark}2` }), client.submit(name, "Hi", { key: `${mark}2` })]);
  assert.equal(one.id, two.id);
  await assert.rejects(client.submit(name, "Ho", { key: `${mark}2` }), is(Conflict, { code: "idempotency_conflict" }));
  await assert.rejects(run.cancel(), is(Ended));
  await run.delete();
  await assert.rejects(run.get(), is(NotFound));
});

test("structured output", async () => {
  const good = await agent([{ text: '{"customer": "Ada", "total": 12, "lines": ["tea"]}' }], { loop: { type: "single_call" } });
  const made = await client.do(good, "Read this.", invoice, minute);
  const total: number = made.total; // the compiler knows its type
  assert.deepEqual([made.customer, total, made.lines[0]], ["Ada", 12, "tea"]);
  const bad = await agent([{ text: '{"customer": "Ada"}' }], { loop: { type: "single_call" } });
  await assert.rejects(client.do(bad, "Read this.", invoice, minute), is(RunFailed, { status: "failed", reason: "invalid_output" }));
  const plain = await client.submit(await agent([{ text: "no JSON" }]), "Hi");
  await assert.rejects(plain.result({ output: invoice, ...minute }), is(OutputError));
});

test("failure", async () => {
  const run = await client.submit(await agent([{ error: "invalid_request" }]), "Hi");
  await assert.rejects(run.result(minute), is(RunFailed, { status: "failed", reason: "model_error" }));
  await assert.rejects(client.submit(`nobody-${randomUUID()}`, "Hi"), is(NotFound));
  await assert.rejects(client.submit(await agent([{ text: "x" }]), "Hi", { limits: { max_turns: -1 } }), is(Invalid, { status: 400, code: "invalid_request" }));
});

test("events", async () => {
  const name = await agent([call("pick"), { text: "Done." }], { tools: [{ name: "pick", kind: "client", schema: { type: "object" } }] });
  const run = await client.submit(name, "Hi", { stream: "deltas" });
  const info = await run.wait(minute);
  assert.deepEqual([info.status, info.waiting?.reason, info.waiting?.calls[0]?.tool], ["waiting", "waiting_client_tool", "pick"]);
  await assert.rejects(all(run.events({ timeout: 0.2 })), is(Timeout));
  await run.toolResult("c1", { file: "a.txt" });
  const numbers = (events: Event[]) => events.map((e) => e.seq).filter((s) => s !== null);
  const events = await all(run.events(minute));
  const committed = numbers(events);
  assert.deepEqual(committed, committed.map((_, i) => i + 1));
  assert.equal(events.at(-1)?.type, "run.finished");
  assert.deepEqual(numbers(await all(run.events({ after: 3, ...minute }))), committed.slice(3));
});

test("fork", async () => {
  const run = await client.submit(await agent([{ text: "One." }, { text: "Two." }]), "Hi");
  assert.equal(await run.result(minute), "One.");
  const fork = await run.fork({ turn: 0, input: "Ho" });
  assert.equal((await fork.wait(minute)).status, "completed");
  assert.deepEqual((await fork.messages()).filter((m) => m.role === "user").map((m) => (m.parts[0] as { text?: string }).text), ["Hi", "Ho"]);
});

test("webhook", async () => {
  const name = await agent([{ text: "Hello." }]);
  const webhook = (secret: string) => ({ url: "https://example.com/events", secret });
  await assert.rejects(client.submit(name, "Hi", { webhook: webhook("the secret itself") }), (e) => is(Invalid)(e) && (e as Invalid).detail.includes("webhook.secret"));
  const run = await client.submit(name, "Hi", { webhook: webhook("secret://EVENTS") });
  assert.equal(await run.result(minute), "Hello.");
  let event;
  while (!event) event = (await all(client.pendingEvents())).find((e) => e.run_id === run.id); // its worker has still to announce it
  assert.deepEqual([event.type, event.host, event.agent], ["run.finished", "example.com:443", name]);
});

test("variables", async () => {
  const variables = { type: "object", required: ["customer"], properties: { customer: { type: "string" } } };
  const name = await agent([{ text: "Hello." }, { text: "Hello." }], { instructions: "Help {{customer}}.", variables });
  const run = await client.submit(name, "Hi", { variables: { customer: "Ada" } });
  assert.equal(await run.result(minute), "Hello.");
  assert.deepEqual((await run.get()).variables, { customer: "Ada" });
  assert.deepEqual((await (await run.fork({ turn: 0 })).get()).variables, { customer: "Ada" });
  assert.deepEqual((await (await run.fork({ turn: 0, variables: { customer: "Bo" } })).get()).variables, { customer: "Bo" });
  await assert.rejects(client.submit(name, "Hi"), (e) => is(Invalid)(e) && (e as Invalid).detail.includes("variables.customer"));
  const batch = await client.batch([{ agent: name, input: "Hi", variables: { customer: "Cy" } }]);
  assert.deepEqual((await batch.runs[0]?.get())?.variables, { customer: "Cy" });
});

async function waiting(responses: object[] = [call("pay", { amount: 7 }), { text: "Done." }]): Promise<Run> {
  const tools = [{ name: "pay", kind: "client", approval: "always", schema: { type: "object" } }];
  const run = await client.submit(await agent(responses, { tools }), "Hi");
  assert.equal((await run.wait(minute)).waiting?.reason, "waiting_approval");
  return run;
}

test("approve", async () => {
  const run = await waiting();
  await assert.rejects(run.answer("yes"), is(NotWaiting, { status: 409, code: "not_waiting" }));
  await assert.rejects(run.approve("c1", { hash: "0".repeat(64) }), is(Stale));
  const hash = (await run.get()).waiting?.calls[0]?.hash ?? "";
  await run.approve("c1", { arguments: { amount: 5 }, reason: "less", hash });
  assert.deepEqual((await run.wait(minute)).waiting?.calls[0]?.arguments, { amount: 5 });
  await run.toolResult("c1", "no money", { isError: true });
  assert.equal(await run.result(minute), "Done.");
});

test("deny", async () => {
  const run = await waiting();
  await run.deny("c1", { reason: "too much" });
  assert.equal(await run.result(minute), "Done.");
  assert.match(JSON.stringify(await run.messages()), /too much/);
});

test("answer", async () => {
  const run = await client.submit(await agent([call("ask", { question: "Which?" }), { text: "Done." }], { tools: [{ name: "ask", kind: "human" }] }), "Hi");
  assert.equal((await run.wait(minute)).waiting?.reason, "waiting_human_input");
  await run.answer("The red one.");
  assert.equal(await run.result(minute), "Done.");
});

test("files of a result", async () => {
  const run = await waiting();
  await run.approve("c1");
  await run.wait(minute);
  const made = await client.upload(new TextEncoder().encode("# Receipt"), { name: "receipt.md" });
  const files = [{ file_id: made.id }, { media_type: "text/plain", data: "aGk=" }];
  await run.toolResult("c1", "paid", { images: [{ media_type: "image/png", data: "aGk=" }], files });
  assert.equal(await run.result(minute), "Done.");
  const part = (await run.messages()).find((m) => m.role === "tool")?.parts[0];
  assert.deepEqual(part?.files?.map((f) => [f.file_id, f.media_type?.split(";")[0]]), [[made.id, "text/markdown"], [undefined, "text/plain"]]);
  assert.deepEqual(part?.images?.map((i) => i.media_type), ["image/png"]);
});

test("message", async () => {
  const run = await client.submit(await agent([{ text: "One." }, { text: "Two." }]), "Hi");
  assert.equal(await run.result(minute), "One.");
  const { version } = await run.get();
  await run.message("And then?", { mode: "reject" }); // it is not busy
  assert.equal((await rest(run, version)).output, "Two.");
});

test("reject", async () => {
  const run = await client.submit(await agent([{ text: "late", delay: "1h" }]), "Hi");
  await assert.rejects(run.message("Stop.", { mode: "reject" }), is(Busy, { status: 409, code: "run_busy" }));
  await run.cancel();
});

test("enqueue", async () => {
  const run = await waiting();
  await run.message("Hurry.", { mode: "enqueue" });
  await run.deny("c1");
  assert.equal(await run.result(minute), "Done.");
  assert.ok((await run.messages()).some((m) => m.role === "user" && JSON.stringify(m.parts).includes("Hurry.")));
});

test("interrupt", async () => {
  const run = await waiting();
  await run.message("Send a voucher.", { mode: "interrupt" });
  assert.equal(await run.result(minute), "Done.");
  assert.ok((await run.turns()).some((t) => t.reason === "interrupted"));
  assert.ok((await run.messages()).some((m) => m.role === "tool" && JSON.stringify(m.parts).includes("interrupted")));
});

test("rollback", async () => {
  const run = await waiting([call("pay", { amount: 7 }), call("pay", { amount: 5 }), { text: "Done." }]);
  const { version } = await run.get();
  await run.message("5, I mean.", { mode: "rollback" });
  const info = await rest(run, version);
  const asked = info.waiting?.calls[0];
  assert.deepEqual(asked?.arguments, { amount: 5 });
  assert.deepEqual((await run.messages()).map((m) => m.role), ["user", "user", "assistant"]);
  await run.approve("c1", { hash: asked?.hash ?? "" });
  assert.equal((await rest(run, info.version)).waiting?.reason, "waiting_client_tool");
  await assert.rejects(run.message("No, 3.", { mode: "rollback" }), is(EffectsStarted, { status: 409, code: "effects_started" }));
  await run.toolResult("c1", "paid");
  assert.equal(await run.result(minute), "Done.");
});

test("cancel", async () => {
  const run = await waiting();
  await run.cancel("not needed");
  assert.equal((await run.wait(minute)).status, "cancelled");
  await assert.rejects(run.result(minute), is(RunFailed, { reason: "aborted_waiting" }));
});

test("cancel runs", async () => {
  const [one, other] = [await waiting(), await waiting()];
  assert.deepEqual(await client.cancelRuns({ status: ["waiting"], metadata: { mark: randomUUID() } }), []);
  const { agent: name } = await one.get();
  assert.deepEqual(await client.cancelRuns({ agent: name }, { dryRun: true }), [one.id]);
  assert.equal((await one.get()).status, "waiting");
  assert.deepEqual(await client.cancelRuns({ agent: name }, { reason: "not needed" }), [one.id]);
  assert.deepEqual([(await one.wait(minute)).status, (await other.get()).status], ["cancelled", "waiting"]);
  await assert.rejects(client.cancelRuns({}), is(Invalid));
});

test("memory", async () => {
  const scope = `metadata.user:${randomUUID()}`;
  const memory = client.memory(scope);
  assert.deepEqual(await all(memory.files()), []);
  const made = await memory.write("notes/ann.md", "Vegetarian.\n", { version: 0 });
  assert.deepEqual([made.path, made.bytes, made.version], ["notes/ann.md", 12, 1]);
  await assert.rejects(memory.write("notes/ann.md", "Vegetarian.\n", { version: 0 }), is(Changed, { status: 412, code: "memory_changed" }));
  assert.equal((await memory.write("notes/ann.md", "Vegan.\n", { version: 1 })).version, 2);
  await memory.write("/memories/a ö%.md", "Odd.\n");
  assert.deepEqual((await all(memory.files())).map((f) => [f.path, f.content]), [["a ö%.md", undefined], ["notes/ann.md", undefined]]);
  assert.equal((await memory.read("notes/ann.md")).content, "Vegan.\n");
  assert.ok((await all(client.memoryScopes())).includes(scope));
  for (const odd of ["", "notes/../a.md"]) await assert.rejects(memory.delete(odd), is(Invalid));
  for (const odd of [".", ".."]) await assert.rejects(memory.delete(odd), TypeError);
  await assert.rejects(memory.delete("notes/ann.md", { version: 1 }), is(Changed));
  await memory.delete("notes/ann.md", { version: 2 });
  await assert.rejects(memory.read("notes/ann.md"), is(NotFound, { code: "memory_not_found" }));
  await assert.rejects(memory.delete("notes"), is(NotFound));
  await memory.erase();
  assert.ok(!(await all(client.memoryScopes())).includes(scope));
  await assert.rejects(memory.erase(), is(NotFound));
});

test("a memory of more than a page", async () => {
  const memory = client.memory(`metadata.user:${randomUUID()}`);
  const names = Array.from({ length: 60 }, (_, n) => `${String(n).padStart(3, "0")}.md`);
  for (const name of names) await memory.write(name, name);
  assert.deepEqual((await all(memory.files())).map((f) => f.path), names);
  await memory.erase();
});

test("schedule", async () => {
  const name = await agent([{ text: "Hello." }]);
  const schedule = client.schedule(`s-${randomUUID().slice(0, 12)}`);
  await assert.rejects(schedule.get(), is(NotFound, { code: "schedule_not_found" }));
  await assert.rejects(schedule.put({ cron: "0 9 * *", run: { agent: name, input: "Hi" } }), (e) => is(Invalid)(e) && (e as Invalid).detail.includes("0 9 * *"));
  const made = await schedule.put({
    cron: "0 9 * * MON-FRI", timezone: "Europe/Berlin", overlap: "queue_one", jitter: "30s", run: { agent: name, input: "Hi", metadata: { for: "me" } },
  });
  assert.deepEqual([made.name, made.cron, made.overlap, made.next.length, made.fired], [schedule.name, "0 9 * * MON-FRI", "queue_one", 5, 0]);
  const paused = await schedule.pause();
  assert.deepEqual([paused.paused, paused.next], [true, []]);
  const run = await schedule.run("once");
  assert.equal((await schedule.run("once")).id, run.id);
  assert.notEqual((await schedule.run()).id, run.id);
  assert.equal(await run.result(minute), "Hello.");
  const { metadata } = await run.get();
  assert.deepEqual([metadata["for"], metadata["schedule"], "scheduled_at" in metadata], ["me", schedule.name, true]);
  assert.equal((await schedule.resume()).next.length, 5);
  assert.ok((await all(client.schedules())).some((s) => s.name === schedule.name));
  await schedule.delete();
  await assert.rejects(schedule.delete(), is(NotFound));
});

test("file", async () => {
  const content = new Uint8Array(60_000).map((_, i) => i % 251);
  const made = await client.upload(content, { name: "table.csv" });
  assert.deepEqual([made.name, made.bytes, made.media_type.split(";")[0]], ["table.csv", content.length, "text/csv"]);
  assert.equal(made.sha256, createHash("sha256").update(content).digest("hex"));
  assert.deepEqual(await client.getFile(made.id), made);
  assert.deepEqual(await client.download(made.id), content);
  assert.ok((await all(client.files())).some((f) => f.id === made.id));
  const run = await client.submit(await agent([{ text: "Read." }]), [{ role: "user", parts: [{ type: "file", file_id: made.id }] }]);
  assert.equal(await run.result(), "Read.");
  await assert.rejects(client.deleteFile(made.id), (e) => is(Conflict)(e) && (e as Conflict).code === "file_in_use");
  const free = await client.upload(new Uint8Array([120]));
  await client.deleteFile(free.id);
  await assert.rejects(client.getFile(free.id), (e) => is(NotFound)(e) && (e as NotFound).code === "file_not_found");
  await assert.rejects(client.download(free.id), is(NotFound));
});

test("a file of the disk", { skip: !("openAsBlob" in fs) }, async () => { // Node.js 20
  const directory = await mkdtemp(join(tmpdir(), "turnpike-"));
  try {
    const path = join(directory, "notes.md");
    await writeFile(path, "# Title");
    const made = await client.upload(await fs.openAsBlob(path, { type: "text/markdown" }), { name: "notes.md" });
    assert.deepEqual([made.name, made.media_type.split(";")[0], made.bytes], ["notes.md", "text/markdown", 7]);
    assert.equal(new TextDecoder().decode(await client.download(made.id)), "# Title");
    const file = await open(path, "r+");
    await file.truncate(64 << 20);
    await file.close();
    const own = new Client({ timeout: 30, retryFor: 0 });
    await assert.rejects(own.upload(await fs.openAsBlob(path)), is(Full, { status: 413, code: "body_too_large" }));
  } finally {
    await rm(directory, { recursive: true });
  }
});

test("trigger", async () => {
  const tools = [{ name: "ask", kind: "human" }];
  const run = await client.submit(await agent([call("ask", { question: "Which?" }), { text: "Done." }], { tools }), "Hi");
  await run.wait(minute);
  const trigger = client.trigger(`t-${randomUUID().slice(0, 12)}`);
  const bad = trigger.put({ stream: "ANSWERS", signal: { run: `'${run.id}`, answer: "event.text" } });
  await assert.rejects(bad, (e) => is(Invalid)(e) && (e as Invalid).detail.includes("signal.run"));
  const made = await trigger.put({ stream: "ANSWERS", subjects: ["answers.*"], from: "all", signal: { run: `'${run.id}'`, answer: "event.text" } });
  assert.deepEqual([made.name, made.stream, made.from, made.status.dead], [trigger.name, "ANSWERS", "all", 0]);
  assert.equal(await run.result(minute), "Done."); // by the message that the stream has
  assert.match(JSON.stringify(await run.messages()), /The red one\./);
  const now = await trigger.get();
  assert.deepEqual([now.subjects, now.status.pending, now.status.last_error], [["answers.*"], 0, undefined]);
  assert.equal((await trigger.put({ stream: "ANSWERS", run: { agent: "a" }, paused: true })).paused, true);
  assert.ok((await all(client.triggers())).some((t) => t.name === trigger.name));
  await trigger.delete();
  await assert.rejects(trigger.get(), is(NotFound, { code: "trigger_not_found" }));
});

test("webhook test", async () => {
  const url = process.env["TURNPIKE_RECEIVER_URL"] ?? "";
  const ended = await client.testWebhook(url, "secret://RECEIVER");
  assert.deepEqual([ended.status, ended.response_status, ended.error], ["delivered", 204, ""]);
  assert.deepEqual(await client.getWebhookTest(ended.id), ended);
  const failed = await client.testWebhook(url, ["secret://RECEIVER", "secret://MISSING"]);
  assert.deepEqual([failed.status, failed.response_status], ["failed", 0]);
  assert.match(failed.error, /MISSING/);
  await assert.rejects(client.testWebhook(url, "secret://RECEIVER", { timeout: 0 }), is(Timeout));
  await assert.rejects(client.testWebhook(url, "the secret itself"), is(Invalid));
  await assert.rejects(client.getWebhookTest("test_01ARZ3NDEKTSV4RRFFQ69G5FAV"), is(NotFound, { code: "webhook_test_not_found" }));
});

test("evaluation", async () => {
  const name = `a-${randomUUID().slice(0, 12)}`, id = `e-${randomUUID().slice(0, 12)}`;
  const figures = { turns: 1, tokens: 7, cost_usd: 0.5, seconds: 2 };
  const results: EvaluationReport["results"] = [{
    case: "france", version: `${name}@1`, repeat: 1, run_id: "run_01ARZ3NDEKTSV4RRFFQ69G5FAV", status: "completed", failures: ["no Paris"], ...figures,
  }];
  const report = (passed: number): EvaluationReport => ({ repeat: 1, versions: [{ version: `${name}@1`, runs: 1, passed, ...figures }], results });
  const made = await client.putEvaluation(id, report(0));
  assert.deepEqual([made.id, made.cases, made.versions], [id, 1, report(0).versions]);
  assert.deepEqual((await client.getEvaluation(id)).results, results);
  assert.deepEqual(await all(client.evaluations({ agent: name })), [made]);
  assert.deepEqual(await all(client.evaluations({ agent: "nobody" })), []);
  await assert.rejects(client.putEvaluation(id, report(1)), (e) => is(Invalid)(e) && (e as Invalid).detail.includes("versions[0]"));
  await client.deleteEvaluation(id);
  await assert.rejects(client.getEvaluation(id), is(NotFound, { code: "evaluation_not_found" }));
});

test("dead letter", async () => {
  const [letter] = (await all(client.deadLetters())).filter((d) => d.agent === "late-typescript"); // of a submission without an agent
  assert.ok(letter);
  assert.deepEqual([letter.kind, letter.status, await client.getDeadLetter(letter.seq)], ["submission", "open", letter]);
  await client.putAgent("late-typescript", { model: { provider: "scripted", responses: [{ text: "At last." }] } });
  for (let i = 0; i < 2; i++) {
    const { replay } = await client.replayDeadLetter(letter.seq);
    assert.equal(await client.run(replay?.run_id ?? "").result(minute), "At last.");
  }
  assert.equal((await all(client.runs({ agent: "late-typescript" }))).length, 1);
});

test("hook", async () => {
  const name = `h-${randomUUID().slice(0, 12)}`;
  const bad = client.putHook(name, { verify: "github", secret: "the secret itself", run: { agent: "triage" } });
  await assert.rejects(bad, (e) => is(Invalid)(e) && (e as Invalid).detail.includes("secret"));
  const made = await client.putHook(name, {
    verify: "github", secret: "secret://GITHUB", filter: "event.action == 'opened'", run: { agent: await agent([{ text: "Hello." }]), input: "event.issue.title" },
  });
  assert.deepEqual([made.name, made.path, made.verify], [name, `/v1/hooks/${name}`, "github"]);
  assert.deepEqual(await client.getHook(name), made);
  assert.ok((await all(client.hooks())).some((h) => h.name === name));
  await client.deleteHook(name);
  await assert.rejects(client.getHook(name), is(NotFound, { code: "hook_not_found" }));
});

test("batch", async () => {
  const name = await agent([{ text: "Noted." }]);
  const batch = await client.batch(["Tea.", "Coffee.", "Water."].map((input) => ({ agent: name, input })), { maxParallel: 2 });
  const info = await batch.wait(minute);
  assert.deepEqual([info.total, info.counts, info.max_parallel], [3, { completed: 3 }, 2]);
  assert.deepEqual(info.items.map((i) => i.id), batch.runs.map((r) => r.id));
  await assert.rejects(client.batch([{ agent: name, input: "Tea." }, { agent: name, input: "" }]), (e) => e instanceof Invalid && e.detail.includes("runs[1]"));
});

test("token", async () => {
  const url = process.env["TURNPIKE_KEYS_URL"] ?? "", id = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"; // a gateway that wants keys
  await assert.rejects(new Client({ url, token: "tp_x_y" }).run(id).get(), (e) => {
    is(Unauthenticated, { status: 401, code: "unauthenticated" })(e);
    return (e as Problem).requestId !== "";
  });
  const own = new Client({ url, token: process.env["TURNPIKE_KEY"] ?? "" });
  await assert.rejects(own.run(id).get(), is(NotFound));
  const made = await own.createToken("ada", { roles: ["viewer"], expiresIn: "5m" });
  assert.deepEqual([made.user, made.roles], ["ada", ["viewer"]]);
  const user = new Client({ url, token: made.token });
  for await (const run of user.runs()) assert.fail(run.id);
  await assert.rejects(user.agents().next(), is(Forbidden));
});

test("nobody answers", async () => {
  await assert.rejects(new Client({ url: "http://127.0.0.1:1", retryFor: 0.3 }).run("run_x").get(), is(Unavailable, { status: 0, code: "unreachable" }));
  assert.throws(() => new Client({ url: "localhost" }), TypeError);
});

test("what answers is not a gateway", async () => {
  const answers = [[429, "1"], [503, "0"], [302, ""], [200, ""]] as const;
  const keys: unknown[] = [];
  const server = createServer((request, response) => {
    const [status, after] = answers[keys.push(request.headers["idempotency-key"]) - 1] ?? [500, ""];
    response.writeHead(status, { Location: "http://127.0.0.1:1/", ...(after ? { "Retry-After": after } : {}) }).end("<html>");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const own = new Client({ url: `127.0.0.1:${(server.address() as AddressInfo).port}`, token: "secret", retryFor: 10 });
  // A redirect, which is not followed, and a page.
  for (let i = 0; i < 2; i++) await assert.rejects(own.submit("a", "b"), is(Problem, { code: "foreign" }));
  server.close();
  server.closeAllConnections();
  assert.equal(new Set(keys.slice(0, 3)).size, 1); // retries of one submission have its key
  assert.equal(keys.length, 4);
});
